"""Scores each node by the GPU that binpack would choose.

The score is what the policy compares GPUs by: 0, the memory left, then node and number for a
device; 1, the memory, then node and model for a new vGPU.
"""

from collections.abc import Collection, Iterable, Sequence

from kubeshare.core.constraints.checks import groups
from kubeshare.core.constraints.first_fit import FirstFit, SortedDevices
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.index.node_summaries import NodeSummaries
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural
from kubeshare.core.policies.binpack.index import order
from kubeshare.core.policies.scoring import Score, smallest_free


class BinpackNodes(NodeSummaries[SortedDevices]):
    """The devices of each node, the fullest first."""

    def summarise(self, node: Node, devices: Collection[Device]) -> SortedDevices:
        """Sort the devices of a node."""
        del node
        usable = [device for device in devices if groups(device)]
        return SortedDevices.of(
            0, (((device.memory_left, order(device)), device) for device in usable)
        )


def score_one(ledger: Ledger, demand: Demand, nodes: Sequence[str]) -> dict[str, Score]:
    """The scores of the nodes where a demand for one GPU, not asked for by id, fits."""
    first = FirstFit(ledger, demand)
    scores = first.keys
    first.search(ledger.index(BinpackNodes).refreshed(), nodes, demand.memory.bytes or 0)
    if first.label_in_use:
        return scores
    return scores | score_new(ledger, demand, [name for name in nodes if name not in scores])


def score_new(ledger: Ledger, demand: Demand, nodes: Iterable[str]) -> dict[str, Score]:
    """The scores of the nodes where a new vGPU for a demand fits."""
    return {
        node.name: (1, kind.memory_bytes, natural(node.name), kind.model)
        for node, kind in smallest_free(ledger, demand, nodes)
    }
