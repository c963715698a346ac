"""The core's answer to one SharePod, and the words for it."""

from collections.abc import Mapping
from typing import Final

import msgspec

from kubeshare.core.decision import Decision, Reasons
from kubeshare.core.demand import Demand
from kubeshare.core.explain import Change, shortest_change
from kubeshare.core.ledger import Ledger
from kubeshare.core.policies import Policy

MESSAGE_LENGTH: Final = 1000
"""Characters of the reasons that a condition or an event tells; the rest is counted."""


def decide(policy: Policy, ledger: Ledger, demand: Demand, refusals: Mapping[str, str]) -> Decision:
    """Where a demand goes.

    Args:
        policy: the placement policy.
        ledger: the cluster as it is now.
        demand: who asks; its own choice of nodes is respected.
        refusals: node -> why its pod cannot go there, ``""`` where it can.
    """
    decision = policy(ledger, _bounded(demand, refusals))
    known = {name: why for name, why in refusals.items() if why and _asked(name, demand)}
    absent = (demand.nodes or frozenset()) - refusals.keys()
    known |= dict.fromkeys(sorted(absent), "there is no such node")
    told = Reasons(lambda: {**decision.reasons, **known})
    return msgspec.structs.replace(decision, reasons=told)


def change_that_helps(
    policy: Policy, ledger: Ledger, demand: Demand, refusals: Mapping[str, str]
) -> Change | None:
    """Whose leaving would let in a demand that waits; None where nobody's would.

    Args:
        policy: the placement policy.
        ledger: the cluster as it is now.
        demand: who waits.
        refusals: as :func:`decide` was told.
    """
    return shortest_change(policy, ledger, _bounded(demand, refusals))


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


def _bounded(demand: Demand, refusals: Mapping[str, str]) -> Demand:
    """The demand, for no node that refuses its pod."""
    allowed = frozenset(name for name, refusal in refusals.items() if not refusal)
    asked = allowed if demand.nodes is None else demand.nodes & allowed
    return msgspec.structs.replace(demand, nodes=asked)


def _asked(node: str, demand: Demand) -> bool:
    return demand.nodes is None or node in demand.nodes
