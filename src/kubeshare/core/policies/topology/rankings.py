"""The devices in use of all nodes, the closest fit first."""

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from kubeshare.core.constraints.checks import Group, has_room, labels_admit
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.index import node_ranking
from kubeshare.core.ledger.index.device_tree import Entry
from kubeshare.core.ledger.index.group_trees import GroupTrees
from kubeshare.core.policies.topology.node_state import NodeState
from kubeshare.core.topology.tree import bits

StateOf: TypeAlias = Callable[[str], NodeState | None]

_BITS: Final = 64


class InUseRanking:
    """The devices with holders and room for more: least compute left, then least memory.

    Equal ones are ordered by the free cores of the node, fewest first, its name, the number.
    So a change on a node moves all its devices. Those with nothing left are of use to hardly any
    demand; they have a ranking of their own, which is not refreshed for the others.

    Args:
        nodes: the names of all nodes.
        full: whether this ranking is for devices with neither compute nor memory left.

    Attributes:
        stale: names of nodes that have changed since the last refresh.
    """

    def __init__(self, nodes: Iterable[str], *, full: bool) -> None:
        self.stale = set(nodes)
        self._full = full
        self._trees = GroupTrees(self._entry, _least)
        self._of: dict[str, list[Device]] = {}  # node -> its devices in the trees
        self._orders: dict[str, str] = {}  # GPUID -> its sort key among equal devices

    def refresh(self, state_of: StateOf) -> None:
        """Update the devices of changed nodes."""
        at_once = len(self.stale) * node_ranking.AT_ONCE > len(self._of)
        # All are removed first, since a device may have moved from one node to another.
        for name in self.stale:
            for device in self._of.pop(name, ()):
                if not at_once:
                    self._trees.remove(device)
                del self._orders[device.id]
        for name in self.stale:
            added = self._in_use(state_of(name))
            if added:
                self._of[name] = added
            if not at_once:
                for device in added:
                    self._trees.add(device)
        if at_once:
            known = (device for devices in self._of.values() for device in devices)
            self._trees = GroupTrees(self._entry, _least, known)
        self.stale.clear()

    def first(self, demand: Demand, among: tuple[Group, ...]) -> Device | None:
        """The device in these groups that fits a demand for a fraction of one GPU best."""
        return self._trees.first(demand, among)

    def _in_use(self, state: NodeState | None) -> list[Device]:
        """The devices of a node that belong here, with their sort keys stored."""
        if state is None:
            return []
        devices = []
        for number in bits(state.in_use):
            device = state.devices[number]
            if self._full is not (device.compute_left > 0 or device.memory_left > 0):
                self._orders[device.id] = f"{state.free:012}{state.key}\0\0{number:04}"
                devices.append(device)
        return devices

    def _entry(self, _: Group, device: Device) -> Entry:
        return _number(device), self._orders[device.id], device.memory_left, device


def _least(_: Group, compute: int, memory: int) -> tuple[int, int]:
    return compute << _BITS | memory, memory


def closest_in_use(
    states: Iterable[NodeState], demand: Demand, *, label_in_use: bool
) -> Device | None:
    """What :meth:`InUseRanking.first` finds, by a search of a few nodes.

    Args:
        states: the nodes.
        demand: the demand, for a fraction of one GPU.
        label_in_use: whether a device has its affinity label.
    """
    best: tuple[object, ...] | None = None
    found: Device | None = None
    for state in states:
        for number in bits(state.in_use):
            device = state.devices[number]
            if demand.model not in ("", device.model) or not has_room(device, demand):
                continue
            if labels_admit(device, demand, label_in_use=label_in_use):
                position = (_number(device), state.free, state.key, number)
                if best is None or position < best:
                    best, found = position, device
    return found


def _number(device: Device) -> int:
    """Compute left, then memory left."""
    return device.compute_left << _BITS | device.memory_left
