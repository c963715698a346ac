"""Groups nodes in equal states, which a job ranks alike."""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable
from typing import Final, TypeAlias

from kubeshare.simulator.baselines.node_rooms import NodeRoom, NodeRooms

MAX_BIRTHS: Final = 1 << 15
"""After so many births of shapes those without nodes are forgotten."""

More: TypeAlias = Callable[[NodeRoom], Hashable]
"""What a policy looks at beyond the room of a node and the labels of its GPUs."""


class Shape:
    """A state, and the nodes in it.

    Attributes:
        room: what is left of one of the nodes.
        cpu_millis: what is left of its CPUs.
        most_first: the micros that are left of its GPUs, the most first.
        places: the id of a GPU of `room` → its place there.
        nodes: the places of the nodes in the natural order of their names, ascending.
    """

    __slots__ = ("cpu_millis", "most_first", "nodes", "places", "room")

    def __init__(self, room: NodeRoom) -> None:
        self.room = room
        self.cpu_millis = room.cpu_millis
        self.most_first = room.left[::-1]
        self.places = {gpu.id: place for place, gpu in enumerate(room.gpus)}
        self.nodes: list[int] = []


class NodeShapes:
    """The shapes of all nodes, kept as a ledger changes.

    Args:
        rooms: what is left of the nodes.
        more: of two nodes in one shape this is equal, too.

    Attributes:
        names: the nodes, in natural order.
        births: each shape that had no node and got one, in the order of these events.
    """

    def __init__(self, rooms: NodeRooms, more: More) -> None:
        self.names = rooms.names
        self.births: list[Shape] = []
        self._rooms, self._more = rooms, more
        self._places = {name: place for place, name in enumerate(rooms.names)}
        self._shapes: dict[Hashable, Shape] = {}
        self._of: dict[str, Shape] = {}
        self._gpus: dict[str, tuple[str, ...]] = {}
        self._stale = set(rooms.names)
        rooms.follow(self._stale)

    def refresh(self) -> None:
        """Move the nodes that have changed to their present shapes."""
        while self._stale:
            name = self._stale.pop()
            room, place = self._rooms.of(name), self._places[name]
            self._gpus[name] = tuple([gpu.id for gpu in room.gpus])
            before = self._of.get(name)
            if before is not None:
                del before.nodes[bisect_left(before.nodes, place)]
            key = (
                tuple([gpu.state for gpu in room.gpus]),
                room.cpu_millis,
                room.model,
                self._more(room),
            )
            shape = self._shapes.get(key)
            if shape is None:
                shape = self._shapes[key] = Shape(room)
            if not shape.nodes:
                self.births.append(shape)
            insort(shape.nodes, place)
            self._of[name] = shape

    def gpus_of(self, name: str) -> tuple[str, ...]:
        """The ids of the devices of a node, in the order of its room."""
        return self._gpus[name]

    def forget(self) -> None:
        """Begin again with the present shapes."""
        self.births.clear()
        self._shapes.clear()
        self._of.clear()
        self._stale.update(self.names)

    @property
    def outgrown(self) -> bool:
        """Whether there were so many births that one had better begin again."""
        return len(self.births) > MAX_BIRTHS + len(self.names)
