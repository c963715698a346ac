"""The locality policy: Algorithm 1 of the KubeShare paper, with its errata.

HPDC '20, section 4.3. Comments name the lines of the printed algorithm ("Line 9", "Lines 4-6").
It has errors; where the algorithm and the text of the paper differ, the text is followed:

* lines 4-6 print "return -1": here the demand is pending, with the reason;
* lines 5 and 19 print a subset: a demand has one label, so it is membership;
* lines 9 and 10 do not check that the demand fits the device: here it must;
* line 17 prints "false": the idle devices pass unfiltered, but they must have room too;
* line 24 opens a device even if no physical GPU is left: here the demand is pending.

The loop of lines 15-17 is replaced by an index of the ledger
(:mod:`kubeshare.core.policies.locality.index`). Nothing is recorded here: lines 7, 11-13 and 25
are :func:`kubeshare.core.decision.commit`.

Ties never depend on the order of a listing. Best fit is the least compute left, then the least
memory left, then the id; worst fit is the most of both, then the id.
"""

from collections.abc import Collection, Iterable
from functools import partial
from typing import Final

from kubeshare.core.constraints.affinity_labels import is_label_in_use
from kubeshare.core.constraints.checks import admitted
from kubeshare.core.constraints.named import named_devices
from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis import feasibility
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import opening
from kubeshare.core.policies.locality import several_gpus
from kubeshare.core.policies.locality.index import LocalityIndex
from kubeshare.core.policies.locality.node_scores import score_new, score_one
from kubeshare.core.policies.locality.reasons import explain
from kubeshare.core.policies.scoring import Score, allowed_nodes, ranked
from kubeshare.core.policies.several_shares import policy as several_shares
from kubeshare.core.policies.several_shares.search import Gpu, Preference, one_by_one


def decide(ledger: Ledger, demand: Demand) -> Decision:
    """Decide where a demand is placed; a pure function of its arguments.

    Returns:
        ``bound`` to a device of the ledger or to a new one, ``pending`` until something
        changes, or ``rejected`` because no GPU of this cluster could ever fit it.
    """
    demand = ledger.comparable(demand)
    if demand.shares:
        return several_shares.decide(ledger, demand, _RULES)
    index = ledger.index(LocalityIndex)
    reasons_for = partial(explain, ledger.snapshot(), demand)
    infeasible = _infeasible(ledger, index, demand)
    if infeasible:
        why = LazyReasons(partial(reasons_for, infeasible=infeasible))
        return Decision(outcome="rejected", reasons=why, field=infeasible[0])
    if demand.count > 1:
        return several_gpus.decide(ledger, demand)
    taken, may_open = _existing(ledger, index, demand)
    if taken is not None:
        return Decision(
            outcome="bound",
            node=taken.node,
            devices=(taken.id,),
            reasons=LazyReasons(partial(reasons_for, taken=taken.id)),
        )
    node = index.node_for_new(demand) if may_open else None
    if node is not None:
        on = ledger.nodes[node]
        smallest = opening.suitable(set(on.free), demand)[0]
        (new,) = opening.new_devices(ledger, demand, on, (smallest,))
        return Decision(
            outcome="bound",
            node=node,
            devices=(new.id,),
            new=(new,),
            reasons=LazyReasons(partial(reasons_for, new_on=node)),
        )
    return Decision(outcome="pending", reasons=LazyReasons(reasons_for))


def score(ledger: Ledger, demand: Demand, nodes: Iterable[str]) -> dict[str, Score]:
    """The scores of those of `nodes` where a demand fits; see :mod:`..scoring`."""
    demand = ledger.comparable(demand)
    if demand.shares:
        return several_shares.score(ledger, demand, nodes, _RULES, score)
    if _infeasible(ledger, ledger.index(LocalityIndex), demand):
        return {}
    asked = allowed_nodes(demand, nodes)
    if demand.count > 1:
        return ranked(several_gpus.picks(ledger, demand), asked)
    if not demand.device_id:
        return score_one(ledger, demand, asked)
    named = named_devices(ledger, demand)
    if named is None:
        return score_new(ledger, demand, asked)
    # The best of a node comes last, and stays.
    named.sort(key=several_gpus.order, reverse=True)
    return {device.node: several_gpus.order(device) for device in named if device.node in asked}


def _existing(ledger: Ledger, index: LocalityIndex, demand: Demand) -> tuple[Device | None, bool]:
    """The existing device for a demand, and whether a new one may be opened otherwise."""
    if demand.device_id:
        named = named_devices(ledger, demand)
        return min(named or (), key=several_gpus.order, default=None), named is None
    allowed = admitted(demand, label_in_use=is_label_in_use(ledger, demand))
    # Without a label, lines 21-22: first devices without an affinity label, including idle ones.
    # With one that no device has, lines 9-10: the idle devices.
    best = index.best_fit(demand, allowed.unlabelled)
    if best is None:
        # Line 23: then those with one. With a label that a device has, lines 2-8: only those.
        best = index.worst_fit(demand, allowed.labelled)
    # Lines 14, 24 and 26: then a new one.
    return best, allowed.new


def _infeasible(ledger: Ledger, index: LocalityIndex, demand: Demand) -> tuple[str, str] | None:
    """The field that makes the demand infeasible in this cluster, and why; None if none."""
    bad_id = opening.infeasible_id(ledger, demand)
    if bad_id:
        return bad_id
    if demand.count > 1:
        return feasibility.infeasible(ledger, demand)
    return feasibility.infeasible_on_all(index.kinds, demand)


def _infeasible_share(ledger: Ledger, demand: Demand) -> tuple[str, str] | None:
    return _infeasible(ledger, ledger.index(LocalityIndex), demand)


def _prefer(node: Node, devices: Collection[Device]) -> Preference:
    """Existing vGPUs in the order of Algorithm 1, then new ones, the smallest first."""
    del node, devices  # only the GPUs themselves matter

    def order(gpu: Gpu) -> tuple[object, ...]:
        labelled = bool(gpu.before.affinities)
        fit = several_gpus.worst_fit if labelled else several_gpus.best_fit
        return gpu.new, labelled, fit(gpu.device)

    return one_by_one(order)


_RULES: Final = several_shares.Rules(decide, _prefer, _infeasible_share)
