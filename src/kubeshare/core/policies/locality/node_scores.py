"""Scores each node by the GPU that Algorithm 1 chooses.

The score is what the algorithm compares GPUs by. It begins with the step that the GPU comes from:
0 for a device without an affinity label (line 21) or an idle one, 1 for a device with one (line
23), 2 for a new vGPU. Then come compute and memory left, negative for worst fit, and the id, or
the number of free GPUs and the node.
"""

from collections.abc import Collection, Iterable, Sequence

from kubeshare.core.constraints.checks import groups
from kubeshare.core.constraints.first_fit import FirstFit, SortedDevices
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.index.node_summaries import NodeSummaries
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural
from kubeshare.core.policies.scoring import Score, smallest_free
from kubeshare.core.units import MICROS


class UnlabelledDevices(NodeSummaries[SortedDevices]):
    """The devices of each node without an affinity label, by best fit."""

    def summarise(self, node: Node, devices: Collection[Device]) -> SortedDevices:
        """Sort the devices of a node."""
        del node
        usable = [device for device in devices if not device.affinities and groups(device)]
        return SortedDevices.of(
            0, (((each.compute_left, each.memory_left, each.order), each) for each in usable)
        )


class LabelledDevices(NodeSummaries[SortedDevices]):
    """The devices of each node with an affinity label, by worst fit."""

    def summarise(self, node: Node, devices: Collection[Device]) -> SortedDevices:
        """Sort the devices of a node."""
        del node
        usable = [device for device in devices if device.affinities and groups(device)]
        return SortedDevices.of(
            1, (((-each.compute_left, -each.memory_left, each.order), each) for each in usable)
        )


def score_one(ledger: Ledger, demand: Demand, nodes: Sequence[str]) -> dict[str, Score]:
    """The scores of the nodes where a demand for one GPU, not asked for by id, fits."""
    first = FirstFit(ledger, demand)
    scores = first.keys
    if not first.label_in_use:
        least = 0 if demand.proportional else demand.request_micros
        first.search(ledger.index(UnlabelledDevices).refreshed(), nodes, least)
        nodes = [name for name in nodes if name not in scores]
    # No device has a label that none carries.
    if first.label_in_use or not demand.affinity:
        first.search(ledger.index(LabelledDevices).refreshed(), nodes, -MICROS)
        nodes = [name for name in nodes if name not in scores]
    return scores if first.label_in_use else scores | score_new(ledger, demand, nodes)


def score_new(ledger: Ledger, demand: Demand, nodes: Iterable[str]) -> dict[str, Score]:
    """The scores of the nodes where a new vGPU for a demand fits."""
    return {
        node.name: (2, len(node.free), natural(node.name))
        for node, _ in smallest_free(ledger, demand, nodes)
    }
