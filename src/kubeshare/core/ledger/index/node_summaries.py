"""Keeps a summary of each node, recomputed when it changes."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.index.node_devices import NodeDevices

if TYPE_CHECKING:
    from kubeshare.core.ledger.ledger import Ledger

Summary = TypeVar("Summary")


class NodeSummaries(NodeDevices, ABC, Generic[Summary]):
    """An index of a ledger: what a policy needs to know about each node.

    A change only marks its node. The next query recomputes the marked ones, so an index that is
    not queried costs next to nothing.
    """

    def __init__(self, ledger: "Ledger") -> None:
        self._nodes = ledger.nodes
        # A dict keeps the order of the nodes: what is made one after another is near in memory,
        # and a score that goes through thousands of nodes mostly waits for memory.
        self._stale = dict.fromkeys(ledger.nodes)
        self._of: dict[str, Summary] = {}
        super().__init__(ledger)

    @abstractmethod
    def summarise(self, node: Node, devices: Collection[Device]) -> Summary:
        """The summary of a node with these devices."""

    def refreshed(self) -> Mapping[str, Summary]:
        """Node → its present summary."""
        for name in self._stale:
            node = self._nodes.get(name)
            if node is None:
                self._of.pop(name, None)
            else:
                self._of[name] = self.summarise(node, self.on(name))
        self._stale.clear()
        return self._of

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """Replace a device, and mark its node."""
        super().device_changed(before, after)
        self._stale |= {device.node: None for device in (before, after) if device}

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """Mark a node."""
        self._stale |= {node.name: None for node in (before, after) if node}
