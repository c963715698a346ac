"""Sorts the devices of each node as Algorithm 1 compares them.

A key begins with the step that the device comes from: 0 for a device without an affinity label or
an idle one (line 21), 1 for a device with one (line 23). Then come compute and memory left,
negative for worst fit, and the id.
"""

from collections.abc import Collection

from kubeshare.core.constraints.checks import groups
from kubeshare.core.constraints.device_search import Key, SortedDevices
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.index.node_summaries import NodeSummaries


class UnlabelledDevices(NodeSummaries[SortedDevices]):
    """The devices of each node without an affinity label, by best fit."""

    def summarise(self, node: Node, devices: Collection[Device]) -> SortedDevices:
        """Sort the devices of a node."""
        del node
        usable = [device for device in devices if not device.affinities and groups(device)]
        return SortedDevices.of((key(device, labelled=False), device) for device in usable)


class LabelledDevices(NodeSummaries[SortedDevices]):
    """The devices of each node with an affinity label, by worst fit."""

    def summarise(self, node: Node, devices: Collection[Device]) -> SortedDevices:
        """Sort the devices of a node."""
        del node
        usable = [device for device in devices if device.affinities and groups(device)]
        return SortedDevices.of((key(device, labelled=True), device) for device in usable)


def key(device: Device, *, labelled: bool) -> Key:
    """The sort key of a device, by worst fit if it is labelled."""
    if labelled:
        return 1, -device.compute_left, -device.memory_left, device.order
    return 0, device.compute_left, device.memory_left, device.order
