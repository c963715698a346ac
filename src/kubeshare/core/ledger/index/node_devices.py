"""The devices of each node."""

from collections import defaultdict
from collections.abc import Collection

from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.ledger import Ledger


class NodeDevices:
    """An index of a ledger: the devices of each node, known or not."""

    def __init__(self, ledger: Ledger) -> None:
        self._devices: dict[str, dict[str, Device]] = defaultdict(dict)
        for device in ledger.devices.values():
            self.device_changed(None, device)

    def on(self, node: str) -> Collection[Device]:
        """The devices of a node, in no order."""
        return self._devices.get(node, {}).values()

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """Replace a device."""
        if before is not None:
            del self._devices[before.node][before.id]
        if after is not None:
            self._devices[after.node][after.id] = after

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """Ignore a change of a node: its devices do not change with it."""
