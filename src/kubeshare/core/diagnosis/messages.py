"""Writes why a demand is not placed, for its author."""

from collections.abc import Iterable
from typing import Final

import msgspec

from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.hidden_gpuids import readable_reasons
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.reasons import NOT_ASKED

MESSAGE_LENGTH: Final = 1000
"""Characters of reasons in a condition or event; further reasons are counted."""


def explain(
    ledger: Ledger,
    demand: Demand,
    decision: Decision,
    places: int = 0,
    mates: Iterable[Demand] = (),
) -> str:
    """Why a demand is not scheduled, in a sentence of bounded length.

    Args:
        ledger: the cluster.
        demand: the demand; its author reads the sentence.
        decision: the decision.
        places: the GPUs and nodes there are, if the decision has the reasons of some only.
        mates: others of its gang, of whose demand the decision may be instead.
    """
    if not decision.reasons:
        return "no node has reported a GPU yet: is the node agent running?"
    # What makes it infeasible everywhere comes before the reasons of each GPU.
    first = [decision.field] if decision.field and decision.field in decision.reasons else []
    order = [*first, *(place for place in decision.reasons if place not in first)]
    shown: list[str] = []
    length, rest = 0, max(places, len(order))
    in_order = ((place, decision.reasons[place]) for place in order)
    for reason in readable_reasons(in_order, ledger, demand, mates):
        text = f"{reason.place}: {reason.why}"
        length += len(text) + 2
        if shown and length > MESSAGE_LENGTH:
            break
        shown.append(text[:MESSAGE_LENGTH])
        rest -= reason.number
    return "; ".join([*shown, f"and {rest} more"] if rest else shown)


def explain_nodes(ledger: Ledger, demand: Demand, decision: Decision) -> dict[str, str]:
    """Name of each node that was passed over → why; the arguments are those of ``explain``."""
    found: dict[str, list[str]] = {}
    for reason in readable_reasons(decision.reasons.items(), ledger, demand):
        place = reason.place.removeprefix(f"{reason.node}/")
        words = reason.why if place == reason.node else f"{place}: {reason.why}"
        found.setdefault(reason.node, []).append(words)
    return {node: "; ".join(reasons) for node, reasons in found.items()}


def asked_for(decision: Decision) -> Decision:
    """A decision without the nodes that the demand may not use."""
    known = {place: why for place, why in decision.reasons.items() if why != NOT_ASKED}
    return msgspec.structs.replace(decision, reasons=known)
