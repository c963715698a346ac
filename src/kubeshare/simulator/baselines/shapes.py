"""Groups nodes in equal states, which a job ranks alike."""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable
from typing import Final, TypeAlias

from kubeshare.simulator.baselines.node_rooms import NodeRoom, NodeRooms

MAX_SHAPES: Final = 1 << 15
"""At more shapes than this and one for each node those without nodes are forgotten."""

More: TypeAlias = Callable[[NodeRoom], Hashable]
"""What a policy looks at beyond the room of a node and the labels of its GPUs."""


class Shape:
    """A state, and the nodes in it.

    Attributes:
        room: what is left of one of the nodes.
        cpu_millis: what is left of its CPUs.
        most_first: the micros that are left of its GPUs, the most first.
        nodes: the places of the nodes in the natural order of their names, ascending.
        born: how often any shape without nodes had got one when this one did last.
    """

    __slots__ = ("born", "cpu_millis", "most_first", "nodes", "room")

    def __init__(self, room: NodeRoom) -> None:
        self.room = room
        self.cpu_millis = room.cpu_millis
        self.most_first = room.left[::-1]
        self.nodes: list[int] = []
        self.born = 0


class NodeShapes:
    """The shapes of all nodes, kept as a ledger changes.

    Args:
        rooms: what is left of the nodes.
        more: of two nodes in one shape this is equal, too.

    Attributes:
        names: the nodes, in natural order.
        living: the shapes with nodes, in the order in which they were born.
        births: how often a shape without nodes has got one.
    """

    def __init__(self, rooms: NodeRooms, more: More) -> None:
        self.names = rooms.names
        self.living: dict[Shape, None] = {}
        self.births = 0
        self._rooms, self._more = rooms, more
        self._places = {name: place for place, name in enumerate(rooms.names)}
        self._shapes: dict[Hashable, Shape] = {}
        self._of: dict[str, Shape] = {}
        self._room_of: dict[str, NodeRoom] = {}
        self._stale = set(rooms.names)
        rooms.follow(self._stale)

    def refresh(self) -> None:
        """Move the nodes that have changed to their present shapes."""
        while self._stale:
            name = self._stale.pop()
            room, place = self._rooms.of(name), self._places[name]
            self._room_of[name] = room
            before = self._of.get(name)
            if before is not None:
                del before.nodes[bisect_left(before.nodes, place)]
                if not before.nodes:
                    del self.living[before]
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
                self.births += 1
                shape.born = self.births
                self.living[shape] = None
            insort(shape.nodes, place)
            self._of[name] = shape

    def room_of(self, name: str) -> NodeRoom:
        """What is left of a node."""
        return self._room_of[name]

    def forget(self) -> None:
        """Begin again with the present shapes."""
        self.living.clear()
        self._shapes.clear()
        self._of.clear()
        self._stale.update(self.names)

    @property
    def outgrown(self) -> bool:
        """Whether there are so many shapes that one had better begin again."""
        return len(self._shapes) > MAX_SHAPES + len(self.names)
