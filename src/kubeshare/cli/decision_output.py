"""Formats a decision for `plan` and `explain`, as text and as JSON."""

from collections.abc import Iterator

from kubeshare.core.decision import Decision
from kubeshare.core.diagnosis.explain import Change


def as_fields(decision: Decision, change: Change | None) -> dict[str, object]:
    """A decision as the fields of a JSON object."""
    fields: dict[str, object] = {
        "decision": decision.outcome,
        "node": decision.node,
        "gpus": list(decision.devices),
        "created": decision.created,
        "reasons": dict(decision.reasons),
    }
    if decision.field is not None:
        fields["field"] = decision.field
    if change is not None:
        fields["change"] = list(change.words)
    return fields


def as_lines(head: str, decision: Decision, change: Change | None) -> Iterator[str]:
    """A decision as lines for people; the first says where, the others why not elsewhere."""
    words = [head, decision.outcome]
    words += [f"{decision.node}/{device_id}" for device_id in decision.devices]
    words += ["(new)"] if decision.created else []
    words += [f"({decision.field})"] if decision.field else []
    yield " ".join(words)
    for place, reason in decision.reasons.items():
        yield f"    {place}: {reason}"
    if change:
        yield f"    {change}"
