"""Formats a decision for `plan` and `explain`, as text and as JSON."""

from collections.abc import Iterator, Sequence

from kubeshare.core.decision import Decision
from kubeshare.core.diagnosis.explain import Change
from kubeshare.core.natural_sort import natural


def as_fields(decision: Decision, change: Change | None) -> dict[str, object]:
    """A decision as the fields of a JSON object."""
    fields: dict[str, object] = {
        "decision": decision.outcome,
        "node": decision.node,
        "gpus": list(_gpus(decision)),
        "created": decision.created,
        "reasons": dict(decision.reasons),
    }
    if decision.shares:
        fields["shares"] = {name: sorted(gpus, key=natural) for name, gpus in _on(decision).items()}
    if decision.field is not None:
        fields["field"] = decision.field
    if change is not None:
        fields["change"] = list(change.words)
    return fields


def as_lines(head: str, decision: Decision, change: Change | None) -> Iterator[str]:
    """A decision as lines for people; the first says where, the others why not elsewhere."""
    words = [head, decision.outcome]
    words += [f"{decision.node}/{device_id}" for device_id in _gpus(decision)]
    words += ["(new)"] if decision.created else []
    words += [f"({decision.field})"] if decision.field else []
    yield " ".join(words)
    for place, reason in decision.reasons.items():
        yield f"    {place}: {reason}"
    for name, gpus in _on(decision).items():
        paths = ", ".join(f"{decision.node}/{gpu}" for gpu in sorted(gpus, key=natural))
        yield f"    share {name}: {paths}"
    if change:
        yield f"    {change}"


def _gpus(decision: Decision) -> Sequence[str]:
    """The different GPUs; several shares may be on one."""
    if not decision.shares:
        return decision.devices
    return sorted(set(decision.devices), key=natural)


def _on(decision: Decision) -> dict[str, list[str]]:
    """Name of each share → its GPUs; empty in the short form."""
    found: dict[str, list[str]] = {name: [] for name in decision.shares}
    if decision.shares:
        for name, gpu in zip(decision.shares, decision.devices, strict=True):
            found[name].append(gpu)
    return found
