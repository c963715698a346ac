"""Sorts the devices of each node, the fullest first."""

from collections.abc import Collection

from kubeshare.core.constraints.checks import groups
from kubeshare.core.constraints.device_search import Key, SortedDevices
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.index.node_summaries import NodeSummaries
from kubeshare.core.policies.binpack.index import order


class BinpackNodes(NodeSummaries[SortedDevices]):
    """The devices of each node, the fullest first."""

    def summarise(self, node: Node, devices: Collection[Device]) -> SortedDevices:
        """Sort the devices of a node."""
        del node
        return SortedDevices.of((key(device), device) for device in devices if groups(device))


def key(device: Device) -> Key:
    """The sort key of a device: 0, which is before any new vGPU, the memory left, its order."""
    return 0, device.memory_left, order(device)
