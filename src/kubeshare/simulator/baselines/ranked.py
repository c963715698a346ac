"""Policies that place each job on the best node by a rank."""

from bisect import insort
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.fragmentation.measure import DemandClass
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.simulator.baselines.node_rooms import Ask, NodeRoom, NodeRooms
from kubeshare.simulator.baselines.shapes import More, NodeShapes, Shape
from kubeshare.simulator.engine.host_room import HostRoom
from kubeshare.simulator.jobs import HostRequest

MAX_RANKINGS: Final = 512
"""The most kinds of jobs whose ranks are kept; at one more all are computed anew."""

MAX_RANKS: Final = 1 << 20
"""The most ranks of all kinds together; at one more all are computed anew."""

Rank: TypeAlias = Callable[[NodeRoom, Ask], "tuple[float, tuple[str, ...]] | None"]
"""How good a node with enough CPU and memory is for a job, the least the best, and the devices
there; None if its GPUs do not fit. It depends on the room and the labels of its GPUs only, and is
the same for nodes in equal states."""


class Entry(NamedTuple):
    """A node that fits: its place in the order of names, its name, and the devices."""

    place: int
    node: str
    devices: tuple[str, ...]


class Ranking:
    """The ranks of the shapes for one kind of job.

    Args:
        rank: of a node.
        ask: what the jobs of the kind ask for.
        shapes: of all nodes.

    Attributes:
        ranked: how many ranks it keeps.
    """

    def __init__(self, rank: Rank, ask: Ask, shapes: NodeShapes) -> None:
        self._rank, self._ask, self._shapes = rank, ask, shapes
        self._read = 0  # so many births
        # Of each shape that fits the score, and the places of the GPUs in the room.
        self._ranks: dict[Shape, tuple[float, tuple[int, ...]]] = {}
        self._scores: list[float] = []
        self._by_score: dict[float, list[Shape]] = {}
        self._listed: set[Shape] = set()

    @property
    def ranked(self) -> int:
        """How many ranks are kept."""
        return len(self._ranks)

    def refresh(self) -> None:
        """Rank the shapes that have nodes again."""
        cpu_millis, count, micros = self._ask.host.cpu_millis, self._ask.count, self._ask.micros
        for shape in reversed(self._shapes.living):
            if shape.born <= self._read:
                break
            # Most shapes fail here, for less than the rank costs.
            if shape.cpu_millis < cpu_millis or (
                count and (len(shape.most_first) < count or shape.most_first[count - 1] < micros)
            ):
                continue
            if shape not in self._listed:
                placed = self._ranks.get(shape) or self._ranked(shape)
                if placed is not None:
                    self._list(shape, placed[0])
        self._read = self._shapes.births

    def first(self, nodes: frozenset[str] | None) -> Entry | None:
        """The node of the least score, then by name.

        Args:
            nodes: those to choose from; None for all.
        """
        names = self._shapes.names
        found, first = None, len(names)
        at = 0
        while at < len(self._scores):
            score = self._scores[at]
            empty = False
            for shape in self._by_score[score]:
                if not shape.nodes:
                    empty = True
                    continue
                for place in shape.nodes:
                    if place >= first:
                        break
                    if nodes is None or names[place] in nodes:
                        found, first = shape, place
                        break
            if not empty or self._drop_empty(score):
                at += 1
            if found is not None:
                return self._entry(found, first)
        return None

    def entries(self, nodes: frozenset[str] | None) -> Iterator[Entry]:
        """All nodes that fit, in no order."""
        names = self._shapes.names
        for shape in self._listed:
            for place in shape.nodes:
                if nodes is None or names[place] in nodes:
                    yield self._entry(shape, place)

    def _ranked(self, shape: Shape) -> tuple[float, tuple[int, ...]] | None:
        ask = self._ask
        if ask.host.models and shape.room.model not in ask.host.models:
            return None
        placed = self._rank(shape.room, ask)
        if placed is None:
            return None
        ids = [gpu.id for gpu in shape.room.gpus]
        ranked = self._ranks[shape] = placed[0], tuple([ids.index(each) for each in placed[1]])
        return ranked

    def _list(self, shape: Shape, score: float) -> None:
        self._listed.add(shape)
        if score in self._by_score:
            self._by_score[score].append(shape)
        else:
            self._by_score[score] = [shape]
            insort(self._scores, score)

    def _drop_empty(self, score: float) -> bool:
        """Forget the shapes of a score that have no node; they are born again with one.

        Returns:
            whether a shape of this score is left.
        """
        kept = [shape for shape in self._by_score[score] if shape.nodes]
        self._listed.difference_update(
            [shape for shape in self._by_score[score] if not shape.nodes]
        )
        if kept:
            self._by_score[score] = kept
        else:
            del self._by_score[score]
            self._scores.remove(score)
        return bool(kept)

    def _entry(self, shape: Shape, place: int) -> Entry:
        name = self._shapes.names[place]
        gpus = self._shapes.room_of(name).gpus
        return Entry(place, name, tuple([gpus[each].id for each in self._ranks[shape][1]]))


class RankedNodes:
    """Places each job on the node of the least rank, then by name.

    Args:
        rank: ranks a node; called once for each shape of nodes and kind of job.
        more: what it looks at beyond the room of a node and the labels of its GPUs.
    """

    def __init__(self, rank: Rank, more: More = lambda _: None) -> None:
        self._rank, self._more = rank, more
        self._rooms: NodeRooms | None = None
        self._shapes: NodeShapes | None = None
        self._rankings: dict[Ask, Ranking] = {}
        self._ranked = 0

    def attach(self, ledger: Ledger, host: HostRoom | None) -> None:
        """Begin with an empty cluster."""
        self._rooms = ledger.index(NodeRooms)
        self._rooms.attach(host)
        self._shapes = NodeShapes(self._rooms, self._more)
        self._rankings.clear()
        self._ranked = 0

    def __call__(self, ledger: Ledger, demand: Demand) -> Decision:
        """Place a demand on the ledger that was attached."""
        del ledger
        assert self._rooms is not None
        best = self._best(self._rooms.ask(demand), demand.nodes)
        if best is None:
            return Decision(outcome="pending", reasons={"gpus": "no node has enough left"})
        return Decision(outcome="bound", node=best.node, devices=best.devices, reasons={})

    def rank_by(self, rank: Rank) -> None:
        """Rank all nodes anew."""
        self._rank = rank
        self._rankings.clear()
        self._ranked = 0

    def kind(self, demand: Demand) -> DemandClass:
        """The kind of a demand, with the CPUs that its job requests."""
        assert self._rooms is not None
        host = self._rooms.host_of(demand)
        return DemandClass.of(demand, host.models, host.cpu_millis)

    def node_for(self, host: HostRequest) -> str | None:
        """The node for a job that asks for no GPU; None if none has room."""
        assert self._rooms is not None
        best = self._best(self._rooms.ask_of_host(host), self._rooms.candidates(host))
        return best.node if best else None

    def choose(self, ranking: Ranking, nodes: frozenset[str] | None, ask: Ask) -> Entry | None:
        """The node of the least rank.

        Args:
            ranking: of the nodes whose GPUs fit.
            nodes: those with CPU and memory; None for all.
            ask: what is asked for.
        """
        del ask  # the ranking is that for it
        return ranking.first(nodes)

    def _best(self, ask: Ask, nodes: frozenset[str] | None) -> Entry | None:
        return self.choose(self._refreshed(ask), nodes, ask)

    def _refreshed(self, ask: Ask) -> Ranking:
        assert self._shapes is not None
        if self._shapes.outgrown or self._ranked > MAX_RANKS:
            self._shapes.forget()
            self._rankings.clear()
            self._ranked = 0
        self._shapes.refresh()
        ranking = self._rankings.get(ask)
        if ranking is None:
            if len(self._rankings) >= MAX_RANKINGS:
                self._rankings.clear()
                self._ranked = 0
            ranking = self._rankings[ask] = Ranking(self._rank, ask, self._shapes)
        before = ranking.ranked
        ranking.refresh()
        self._ranked += ranking.ranked - before
        return ranking
