"""The core's answer to one SharePod, and the words for it."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Final

import msgspec

from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.explain import Change, shortest_change
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy

MESSAGE_LENGTH: Final = 1000
"""Characters of the reasons that a condition or an event tells; the rest is counted."""


def decide(policy: Policy, ledger: Ledger, demand: Demand, where: Eligible) -> Decision:
    """Where a demand goes.

    Args:
        policy: the placement policy.
        ledger: the cluster as it is now.
        demand: who asks; its own choice of nodes is respected.
        where: the nodes that its pod may go to.
    """
    with ledger.what_if() if where.gpus else nullcontext():
        refused = _leave_out(ledger, where.gpus)
        decision = policy(ledger, restrict_nodes(demand, where))

    def told() -> dict[str, str]:
        known = {place: refused.get(place, why) for place, why in decision.reasons.items()}
        return {**known, **_refused(demand, where)}

    return msgspec.structs.replace(decision, reasons=LazyReasons(told))


def helpful_change(
    policy: Policy, ledger: Ledger, demand: Demand, where: Eligible
) -> Change | None:
    """Whose leaving would let in a demand that waits; None where nobody's would.

    Args:
        policy: the placement policy.
        ledger: the cluster as it is now.
        demand: who waits.
        where: as :func:`decide` was told.
    """
    return shortest_change(policy, ledger, restrict_nodes(demand, where))


def explain(decision: Decision) -> str:
    """Why a demand waits, in a sentence of bounded length."""
    if not decision.reasons:
        return "no node has reported a GPU yet: is the node agent running?"
    # What makes it impossible anywhere comes before what is wrong with each GPU.
    first = [decision.field] if decision.field and decision.field in decision.reasons else []
    order = [*first, *(place for place in decision.reasons if place not in first)]
    told: list[str] = []
    length = 0
    for place in order:
        text = f"{place}: {decision.reasons[place]}"
        length += len(text) + 2
        if told and length > MESSAGE_LENGTH:
            break
        told.append(text[:MESSAGE_LENGTH])
    rest = len(order) - len(told)
    return "; ".join([*told, f"and {rest} more"] if rest else told)


def restrict_nodes(demand: Demand, where: Eligible) -> Demand:
    """The demand, for no node that refuses its pod."""
    nodes = where.nodes if demand.nodes is None else demand.nodes & where.nodes
    return msgspec.structs.replace(demand, nodes=nodes)


def _leave_out(ledger: Ledger, gpus: Mapping[str, str]) -> dict[str, str]:
    """Have vGPUs take nobody; ``node/id`` -> why not, of those for which that is the reason."""
    there = [ledger.devices[gpuid] for gpuid in gpus if gpuid in ledger.devices]
    taking = [device for device in there if device.healthy and not device.fenced]
    for device in taking:
        ledger.mark(device.id, fenced=True)
    return {device.path: gpus[device.id] for device in taking}


def _refused(demand: Demand, where: Eligible) -> dict[str, str]:
    """Why not, of each node that the demand names, or of all, that does not take its pod."""
    if demand.nodes is None:
        return dict(where.refusals)
    known = {name: why for name, why in where.refusals.items() if name in demand.nodes}
    absent = demand.nodes - where.nodes - where.refusals.keys()
    return known | dict.fromkeys(sorted(absent), "there is no such node")
