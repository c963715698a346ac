"""Placement by topology: the Gaia paper's algorithms 1 to 4, as meant.

Algorithm 1 parts demands by size: less than a GPU is *Fragment*, one is *Singular*,
several are *Link*. The print has slips; where its text and its print differ the text is
followed, and where both are silent there is a total order (:mod:`..topology.closest`):

* "node in T" would match inner nodes: GPUs alone are candidates;
* Fragment prints m <= Resources and says "greater than": an exact fit fits;
* Fragment does not mention memory: it must fit too, and decides among equal compute;
* Singular's "cousin" is any other GPU below the same parent, and one that is used in
  part counts as used;
* Link prints a loop that never ends, a root that never qualifies, and children that
  cost nothing: each set is valued by the links between its GPUs.

The tree spans the cluster: it is the best set of all nodes that is taken; of equal ones
that of the node with the fewest free cores, then of the first by name. The GPUs of one
demand are on one node and of one model. The pool is what it is: no device is opened.
"""

from functools import partial

from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.topology.index import Place, TopologyIndex
from kubeshare.core.policies.topology.node_state import whole_gpus
from kubeshare.core.policies.topology.reasons import explain


def decide(ledger: Ledger, demand: Demand) -> Decision:
    """Where a demand goes; a pure function of its arguments.

    Returns:
        ``bound`` to devices of the ledger, ``pending`` until something changes, or
        ``rejected`` because no node of this cluster could ever take it, or because it
        asks for what this policy does not know.
    """
    index = ledger.index(TopologyIndex)
    told = partial(explain, ledger.snapshot(), demand)
    impossible = _unknown(demand)
    place = None if impossible else _choose(index, demand)
    if place:
        return Decision(
            outcome="bound",
            node=place.node,
            devices=tuple([device.id for device in place.devices]),
            reasons=LazyReasons(partial(told, place)),
        )
    impossible = impossible or index.never(ledger, demand)
    if impossible:
        why = LazyReasons(partial(told, impossible=impossible))
        return Decision(outcome="rejected", reasons=why, field=impossible[0])
    return Decision(outcome="pending", reasons=LazyReasons(told))


def _choose(index: TopologyIndex, demand: Demand) -> Place | None:
    """Algorithm 1."""
    count = whole_gpus(demand)
    if count:
        return index.idle(demand, count)
    return index.in_use(demand) or index.idle(demand, 0)


def _unknown(demand: Demand) -> tuple[str, str] | None:
    """The field that asks for what this policy does not know, and why."""
    labels = {
        "affinity": demand.affinity,
        "antiAffinity": demand.anti_affinity,
        "exclusion": demand.exclusion,
    }
    for field, label in labels.items():
        if label:
            return field, f"{label} is a label, and the topology policy goes by links"
    if demand.count > 1 and not whole_gpus(demand):
        return "request", "of several GPUs the topology policy gives whole ones"
    if demand.device_id:
        return "id", "the topology policy chooses the GPU"
    return None
