"""The topology policy's index: the best of all nodes without looking at all of them.

The tree of the Gaia paper spans the cluster. Above the nodes it has nothing that a set
of GPUs could share, so the best set of the cluster is the best of the nodes' own best
ones. A *ranking* keeps those sorted, for one kind of demand: the first entry is the
answer. A change on a node makes one entry of each ranking stale; it is made anew when
the ranking is asked the next time, so a ranking that nobody asks costs nothing.
"""

from bisect import bisect_left
from typing import Any, Final, NamedTuple

from kubeshare.core.demand import Demand, Memory
from kubeshare.core.diagnosis import feasibility
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.topology.node_state import Asked, NodeState, has_room
from kubeshare.core.policies.topology.rankings import IdleRanking, InUseRanking
from kubeshare.core.topology.selection import Score
from kubeshare.core.units import MICROS

_MOST_KEPT: Final = 64
"""Kinds of demands about which something is kept; one more takes the oldest one's place."""


class Place(NamedTuple):
    """The devices chosen for a demand, of one node.

    Attributes:
        node: its name.
        devices: in the order of their numbers.
        score: of idle devices among idle ones; None for one that is in use already.
    """

    node: str
    devices: tuple[Device, ...]
    score: Score | None


class TopologyIndex:
    """All nodes' states, and the rankings of the demands that came so far."""

    def __init__(self, ledger: Ledger) -> None:
        self._nodes: dict[str, Node] = dict(ledger.nodes)
        self._devices: dict[str, dict[str, Device]] = {}  # node -> id -> device
        for device in ledger.devices.values():
            self._devices.setdefault(device.node, {})[device.id] = device
        self._states: dict[str, NodeState] = {}
        self._idle: dict[Asked, IdleRanking] = {}
        self._in_use: dict[str, InUseRanking] = {}
        self._never: dict[tuple[str, Memory, int], tuple[str, str] | None] = {}
        self._sizes: list[int] = []  # all there are, ascending; none when they are not known

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """A device came, changed or went."""
        if before and after and _identity(before) == _identity(after):
            self._devices[after.node][after.id] = after
            state = self._states.get(after.node)
            if state:
                state.update(after)
            self._stale(after.node)
            return
        self._never.clear()
        self._sizes.clear()
        if before:
            on_node = self._devices[before.node]
            del on_node[before.id]
            if not on_node:
                del self._devices[before.node]
            self._rebuild(before.node)
        if after:
            self._devices.setdefault(after.node, {})[after.id] = after
            self._rebuild(after.node)

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """A node came, changed or went."""
        self._never.clear()
        if before:
            del self._nodes[before.name]
            self._rebuild(before.name)
        if after:
            self._nodes[after.name] = after
            self._rebuild(after.name)

    def in_use(self, demand: Demand) -> Place | None:
        """Fragment: the device in use that has the least left and takes the demand."""
        ranking = self._in_use.get(demand.model)
        if ranking is None:
            _make_room(self._in_use)
            ranking = self._in_use[demand.model] = InUseRanking(demand.model, self._nodes)
        ranking.refresh(self._state)
        sizes = self._known_sizes()
        least = demand.memory.on(sizes[0]) if sizes else 0
        for name, number in ranking.fitting(demand.request_micros, least, demand.nodes):
            device = self._states[name].devices[number]
            if has_room(device, demand):
                return Place(name, (device,), None)
        return None

    def idle(self, demand: Demand, count: int) -> Place | None:
        """Fragment's fallback (count 0), Singular (1) and Link: the best idle devices."""
        memory = self._threshold(demand)
        if memory is None:
            return None
        asked = Asked(count, demand.model, memory)
        ranking = self._idle.get(asked)
        if ranking is None:
            _make_room(self._idle)
            ranking = self._idle[asked] = IdleRanking(asked, self._nodes)
        ranking.refresh(self._state)
        found = ranking.first(demand.nodes)
        if found is None:
            return None
        name, gpus, score = found
        return Place(name, self._states[name].chosen(gpus), score)

    def never(self, ledger: Ledger, demand: Demand) -> tuple[str, str] | None:
        """:func:`kubeshare.core.diagnosis.feasibility.why`, cached by the index."""
        asked = (demand.model, demand.memory, demand.count)
        if asked not in self._never:
            _make_room(self._never)
            self._never[asked] = feasibility.why(ledger, demand)
        return self._never[asked]

    def _threshold(self, demand: Demand) -> int | None:
        """The size of a GPU from which on the demand fits, 0 for all; None where none will do."""
        if demand.memory.bytes is None:
            return 0 if demand.memory.on(MICROS) <= MICROS else None
        sizes = self._known_sizes()
        at = bisect_left(sizes, demand.memory.bytes)
        if at == len(sizes):
            return None
        return sizes[at] if at else 0

    def _known_sizes(self) -> list[int]:
        """How large devices are."""
        if not self._sizes:
            devices = (device for on_node in self._devices.values() for device in on_node.values())
            self._sizes = sorted({device.memory_bytes for device in devices})
        return self._sizes

    def _state(self, name: str) -> NodeState | None:
        """A node's state, up to date; None when there is no such node."""
        state = self._states.get(name)
        if state is None:
            node = self._nodes.get(name)
            if node is None:
                return None
            devices = self._devices.get(name, {})
            state = self._states[name] = NodeState(node, devices.values())
        return state

    def _rebuild(self, name: str) -> None:
        self._states.pop(name, None)
        self._stale(name)

    def _stale(self, name: str) -> None:
        for idle in self._idle.values():
            idle.stale.add(name)
        for in_use in self._in_use.values():
            in_use.stale.add(name)


def _identity(device: Device) -> tuple[object, ...]:
    """All of a device but who holds it and how it is."""
    return (device.node, device.index, device.row, device.model, device.memory_bytes)


def _make_room(kept: dict[Any, Any]) -> None:
    """Forget the oldest when there are as many as are kept."""
    if len(kept) >= _MOST_KEPT:
        del kept[next(iter(kept))]
