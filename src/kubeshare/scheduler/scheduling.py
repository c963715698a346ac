"""Decides where a demand goes, and explains the decision in words."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Final

import msgspec

from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.explain import Change, shortest_change
from kubeshare.core.diagnosis.messages import asked_for, explain
from kubeshare.core.ledger.index.gpuids import GpuidIndex
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy

LARGE_CLUSTER: Final = 2000
"""GPUs from which on only some nodes are gone through for a message: 10 ms otherwise."""
EXPLAINED_NODES: Final = 16
"""Nodes that are gone through then; a message has room for about twenty GPUs."""


def decide(policy: Policy, ledger: Ledger, demand: Demand, eligible: Eligible) -> Decision:
    """The policy's decision, with reasons for nodes and vGPUs that are not eligible.

    Args:
        policy: places the demand.
        ledger: the cluster as it is now.
        demand: the demand; nodes that it names itself are respected.
        eligible: the nodes that its pod may run on.
    """
    with ledger.what_if() if eligible.gpus else nullcontext():
        excluded = _fence(ledger, eligible.gpus)
        decision = policy(ledger, restrict_nodes(demand, eligible))

    def reasons() -> dict[str, str]:
        known = {place: excluded.get(place, why) for place, why in decision.reasons.items()}
        return {**known, **_node_refusals(demand, eligible)}

    return msgspec.structs.replace(decision, reasons=LazyReasons(reasons))


def helpful_change(
    policy: Policy, ledger: Ledger, demand: Demand, eligible: Eligible, reader: Demand | None = None
) -> Change | None:
    """The holders whose removal would let a pending demand in; None if there are none.

    The arguments are those of :func:`decide`, and the ``reader`` of
    :func:`kubeshare.core.diagnosis.explain.leave_clauses`.
    """
    few = _few_nodes(ledger, demand, eligible) or eligible
    return shortest_change(policy, ledger, restrict_nodes(demand, few), reader)


def explain_pending(
    policy: Policy, ledger: Ledger, demand: Demand, eligible: Eligible, decision: Decision
) -> str:
    """Why a demand is pending; on a large cluster only some nodes are gone through.

    Args:
        policy: the policy of the decision, as the other arguments are those of :func:`decide`.
        ledger: unchanged since then.
        demand: the demand.
        eligible: the nodes that its pod may run on.
        decision: the decision.
    """
    few = None if decision.field else _few_nodes(ledger, demand, eligible)
    if few is None:
        return explain(ledger, demand, decision)
    sample = decide(policy, ledger, demand, few)
    if sample.outcome != "pending" or sample.field:
        return explain(ledger, demand, decision)
    return explain(ledger, demand, asked_for(sample), len(ledger.devices) + len(ledger.nodes))


def restrict_nodes(demand: Demand, eligible: Eligible) -> Demand:
    """The demand, restricted to the eligible nodes."""
    nodes = eligible.nodes if demand.nodes is None else demand.nodes & eligible.nodes
    return msgspec.structs.replace(demand, nodes=nodes)


def _few_nodes(ledger: Ledger, demand: Demand, eligible: Eligible) -> Eligible | None:
    """Some eligible nodes with GPUs of the demand's model; None if all have to be gone through.

    What a GPUID or an affinity label asks for may be on any node.
    """
    if len(ledger.devices) <= LARGE_CLUSTER or demand.device_id or demand.affinity:
        return None
    allowed = restrict_nodes(demand, eligible).nodes or frozenset()
    few: set[str] = set()
    for device in ledger.devices.values():
        if device.node in allowed and demand.model in ("", device.model):
            few.add(device.node)
            if len(few) == EXPLAINED_NODES:
                break
    return msgspec.structs.replace(eligible, nodes=frozenset(few), refusals={}) if few else None


def _fence(ledger: Ledger, gpus: Mapping[tuple[str, str], str]) -> dict[str, str]:
    """Fence the excluded vGPUs in the ledger; ``node/id`` -> why, of those fenced only for that."""
    fenced = {}
    for (node, gpuid), why in gpus.items():
        for device in ledger.index(GpuidIndex).find(node, gpuid):
            if device.healthy and not device.fenced:
                ledger.mark(device.id, fenced=True)
                fenced[device.path] = why
    return fenced


def _node_refusals(demand: Demand, eligible: Eligible) -> dict[str, str]:
    """Why not, of each ineligible node that the demand names, or of all if it names none."""
    if demand.nodes is None:
        return dict(eligible.refusals)
    known = {name: why for name, why in eligible.refusals.items() if name in demand.nodes}
    absent = demand.nodes - eligible.nodes - eligible.refusals.keys()
    return known | dict.fromkeys(sorted(absent), "there is no such node")
