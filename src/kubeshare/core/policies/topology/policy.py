"""The topology policy: algorithms 1 to 4 of the Gaia paper.

Algorithm 1 divides demands by size: less than a GPU is *Fragment*, one is *Singular*, several
are *Link*. The printed algorithms have errors; where they differ from the text, the text is
followed, and where neither decides, there is a total order
(:mod:`kubeshare.core.topology.selection`):

* "node in T" would match inner nodes: only GPUs are candidates;
* Fragment prints m <= Resources and says "greater than": an exact fit fits;
* Fragment does not mention memory: it must fit too, and decides among equal compute;
* Singular's "cousin" is any other GPU below the same parent, and a partly used one counts as
  used;
* Link prints a loop that never ends, a root that never qualifies, and children that cost
  nothing: here the links between its GPUs value a set.

The tree spans the cluster: the best set of all nodes is taken, of equal ones that of the node
with the fewest free cores, then of the first by name. The GPUs of one demand are on one node and
of one model.

The idle GPUs of the tree are the idle vGPUs, and the free GPUs of nodes whose driver gives a GPU
by UUID: a new vGPU is opened on each of those that is chosen. On other nodes the device plugin
chooses the GPU. A new vGPU is opened there only if no node has enough GPUs that can be chosen: on
the node that opens the fewest, then the smallest, then with the fewest free cores, then by name.

Of the different shares of a demand, the largest is placed as above, the others as near to it as
they fit (:mod:`kubeshare.core.policies.topology.near`).
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

import msgspec

from kubeshare.core.constraints.affinity_labels import is_label_in_use
from kubeshare.core.constraints.checks import admitted
from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import opening
from kubeshare.core.policies.scoring import Score, allowed_nodes
from kubeshare.core.policies.several_shares import policy as several_shares
from kubeshare.core.policies.topology.index import Placement, TopologyIndex
from kubeshare.core.policies.topology.near import prefer_near
from kubeshare.core.policies.topology.node_scores import score_short
from kubeshare.core.policies.topology.node_state import whole_gpus
from kubeshare.core.policies.topology.reasons import explain


def decide(ledger: Ledger, demand: Demand) -> Decision:
    """Decide where a demand is placed; a pure function of its arguments.

    Returns:
        ``bound`` to devices of the ledger or to new ones, ``pending`` until something changes, or
        ``rejected`` because no node of this cluster could ever fit it, or because it uses a
        field that this policy does not support.
    """
    demand = ledger.comparable(demand)
    if demand.shares:
        return several_shares.decide(ledger, demand, _RULES)
    index = ledger.index(TopologyIndex)
    reasons = partial(explain, ledger.snapshot(), demand)
    infeasible = _unsupported(demand)
    place = None if infeasible else _choose(ledger, index, demand)
    if place:
        devices, new = _devices(ledger, demand, place)
        return Decision(
            outcome="bound",
            node=place.node,
            devices=tuple([device.id for device in devices]),
            new=new,
            reasons=LazyReasons(partial(reasons, place._replace(devices=devices), len(new))),
        )
    infeasible = infeasible or index.infeasible(ledger, demand)
    if infeasible:
        why = LazyReasons(partial(reasons, infeasible=infeasible))
        return Decision(outcome="rejected", reasons=why, field=infeasible[0])
    return Decision(outcome="pending", reasons=LazyReasons(reasons))


def score(ledger: Ledger, demand: Demand, nodes: Iterable[str]) -> dict[str, Score]:
    """The scores of those of `nodes` where a demand fits; see :mod:`..scoring`."""
    demand = ledger.comparable(demand)
    if demand.shares:
        return several_shares.score(ledger, demand, nodes, _RULES, score)
    return {} if _unsupported(demand) else score_short(ledger, demand, allowed_nodes(demand, nodes))


def _choose(ledger: Ledger, index: TopologyIndex, demand: Demand) -> Placement | None:
    """Algorithm 1, among the devices that the demand's labels allow."""
    count = whole_gpus(demand)
    label_in_use = is_label_in_use(ledger, demand)
    groups = admitted(demand, label_in_use=label_in_use)
    if not count:
        in_use = index.in_use(
            demand, groups.unlabelled + groups.labelled, label_in_use=label_in_use
        )
        if in_use:
            return in_use
    # A device with the demand's affinity label is occupied.
    return None if label_in_use else index.idle(demand, count) or index.opening(demand, count)


def _devices(
    ledger: Ledger, demand: Demand, place: Placement
) -> tuple[tuple[Device, ...], tuple[Device, ...]]:
    """All devices of a placement, and those of them that are new."""
    if not place.opened and all(device.id for device in place.devices):
        return place.devices, ()
    # None of the GPUs that can be selected: those are among the devices of the placement.
    node = msgspec.structs.replace(ledger.nodes[place.node], selectable=())
    unplaced = opening.new_devices(ledger, demand, node, place.opened)
    ids = opening.new_ids(ledger, demand)
    devices = tuple(
        [
            device if device.id in ledger.devices else msgspec.structs.replace(device, id=next(ids))
            for device in (*place.devices, *unplaced)
        ]
    )
    return devices, tuple([device for device in devices if device.id not in ledger.devices])


def _unsupported(demand: Demand) -> tuple[str, str] | None:
    """The field that this policy does not support, and why; None if none."""
    if demand.count > 1 and not whole_gpus(demand):
        return "request", "of several GPUs the topology policy gives whole ones"
    if demand.device_id:
        return "id", "the topology policy chooses the GPU"
    return None


def _infeasible(ledger: Ledger, demand: Demand) -> tuple[str, str] | None:
    return ledger.index(TopologyIndex).infeasible(ledger, demand)


_RULES: Final = several_shares.Rules(decide, prefer_near, _infeasible, _unsupported)
