"""The index of devices by node and GPUID."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final, Protocol

from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.ledger import Ledger

_NONE: Final = frozenset[str]()


class GpuidIndex:
    """An index of a ledger: the devices of each GPUID, one for each node that has it."""

    def __init__(self, ledger: Ledger) -> None:
        self._devices = ledger.devices
        self._ids: dict[str, set[str]] = defaultdict(set)  # GPUID -> ids of devices
        for device in ledger.devices.values():
            self._ids[device.name].add(device.id)

    def named(self, demand: Demand) -> list[Device]:
        """The devices with the GPUID of a demand, on the nodes that its author named."""
        found = (self._devices[each] for each in self._ids.get(demand.device_id, _NONE))
        return [device for device in found if is_named(device, demand)]

    def find(self, node: str, gpuid: str) -> list[Device]:
        """The devices of a node with a GPUID; more than one only after a race of two writers."""
        found = (self._devices[each] for each in self._ids.get(gpuid, _NONE))
        return [device for device in found if device.node == node]

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """Follow a device that was added, removed or named differently."""
        if before is not None and (after is None or after.name != before.name):
            ids = self._ids[before.name]
            ids.discard(before.id)
            if not ids:
                del self._ids[before.name]
        if after is not None:
            self._ids[after.name].add(after.id)

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """Ignore a change of a node: it names no device."""


def is_named(device: Device, demand: Demand) -> bool:
    """Whether a device is one that the author of a demand named, by GPUID and perhaps node."""
    scope = demand.device_nodes
    return device.name == demand.device_id and (scope is None or device.node in scope)


class HasDevices(Protocol):
    """A ledger, or a snapshot of one."""

    @property
    def devices(self) -> Mapping[str, Device]:
        """Id → device."""


def exists(state: HasDevices, demand: Demand) -> bool:
    """Whether a device that a demand names exists, in whatever state, so none is opened."""
    if isinstance(state, Ledger):
        return bool(state.index(GpuidIndex).named(demand))
    return any(is_named(device, demand) for device in state.devices.values())
