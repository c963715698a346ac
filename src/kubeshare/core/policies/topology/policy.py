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

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from kubeshare.core.constraints.affinity_labels import is_label_in_use
from kubeshare.core.constraints.checks import admitted
from kubeshare.core.constraints.filter import State
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import answers, opening
from kubeshare.core.policies.rules import FEASIBLE, Choice, Refusal, Rules
from kubeshare.core.policies.scoring import Score
from kubeshare.core.policies.several_shares.search import Preference
from kubeshare.core.policies.topology.index import Placement, TopologyIndex
from kubeshare.core.policies.topology.near import prefer_near
from kubeshare.core.policies.topology.node_scores import score_short
from kubeshare.core.policies.topology.node_state import whole_gpus
from kubeshare.core.policies.topology.reasons import explain


def decide(ledger: Ledger, demand: Demand) -> Decision:
    """Decide where a demand is placed: :func:`kubeshare.core.policies.answers.decide`."""
    return answers.decide(ledger, demand, _RULES)


def score(ledger: Ledger, demand: Demand, nodes: Iterable[str]) -> dict[str, Score]:
    """Score nodes for a demand: :func:`kubeshare.core.policies.answers.score`."""
    return answers.score(ledger, demand, nodes, _RULES)


class _Topology(Rules):
    """See :mod:`kubeshare.core.policies.topology.policy`."""

    def refuses(self, ledger: Ledger, demand: Demand) -> Refusal | None:
        """Shares of several GPUs, and a GPU that is not for the policy to choose."""
        del ledger
        if demand.count > 1 and not whole_gpus(demand):
            return "request", "of several GPUs the topology policy gives whole ones"
        if demand.device_id:
            return "id", "the topology policy chooses the GPU"
        return None

    def choose(self, ledger: Ledger, demand: Demand) -> Placement | None:
        """Algorithm 1, among the devices that the demand's labels allow."""
        index, count = ledger.index(TopologyIndex), whole_gpus(demand)
        label_in_use = is_label_in_use(ledger, demand)
        if not count:
            groups = admitted(demand, label_in_use=label_in_use)
            in_use = index.in_use(
                demand, groups.unlabelled + groups.labelled, label_in_use=label_in_use
            )
            if in_use:
                return in_use
        if label_in_use:  # then a device with the demand's affinity label is occupied
            return None
        idle = index.idle(demand, count) or index.opening(demand, count)
        return None if idle is None else _opened(ledger, demand, idle)

    def score(self, ledger: Ledger, demand: Demand, nodes: Sequence[str]) -> dict[str, Score]:
        """The scores of the GPUs that it would choose on each node."""
        return score_short(ledger, demand, nodes)

    def prefer(self, node: Node, devices: Collection[Device]) -> Preference:
        """Near to the GPUs of the shares before."""
        return prefer_near(node, devices)

    def explain(
        self,
        state: State,
        demand: Demand,
        choice: Choice | None = None,
        infeasible: Refusal = FEASIBLE,
    ) -> dict[str, str]:
        """See :meth:`kubeshare.core.policies.rules.Rules.explain`."""
        assert choice is None or isinstance(choice, Placement)
        return explain(state, demand, choice, infeasible)


def _opened(ledger: Ledger, demand: Demand, place: Placement) -> Placement:
    """The placement with a new device for each free GPU."""
    if not place.opened and all(device.id for device in place.devices):
        return place
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
    new = tuple([device for device in devices if device.id not in ledger.devices])
    return msgspec.structs.replace(place, devices=devices, new=new)


_RULES: Final = _Topology()
