"""Policies that place each job on the best node by a rank."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural_name
from kubeshare.simulator.baselines.node_rooms import Ask, NodeRoom, NodeRooms
from kubeshare.simulator.engine.host_room import HostRoom
from kubeshare.simulator.jobs import HostRequest

MAX_RANKINGS: Final = 256
"""The most kinds of jobs whose ranks are kept; at one more all are computed anew."""

Rank: TypeAlias = Callable[[NodeRoom, Ask], "tuple[float, tuple[str, ...]] | None"]
"""How good a node with enough CPU and memory is for a job, the least the best, and the devices
there; None if its GPUs do not fit."""


class Entry(NamedTuple):
    """A node that fits: how good it is, its place in the order, its name, and the devices."""

    score: float
    order: str
    node: str
    devices: tuple[str, ...]


class _Ranking(NamedTuple):
    """The entries of nodes for one kind of job, and the nodes that have changed since."""

    entries: dict[str, Entry]
    stale: set[str]


class RankedNodes:
    """Places each job on the node of the least rank, then by name.

    Args:
        rank: ranks a node; called again for a node that has changed.
    """

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._rooms: NodeRooms | None = None
        self._rankings: dict[Ask, _Ranking] = {}

    def attach(self, ledger: Ledger, host: HostRoom | None) -> None:
        """Begin with an empty cluster."""
        self._rooms = ledger.index(NodeRooms)
        self._rooms.attach(host)

    def __call__(self, ledger: Ledger, demand: Demand) -> Decision:
        """Place a demand on the ledger that was attached."""
        del ledger
        assert self._rooms is not None
        best = self._best(self._rooms.ask(demand), demand.nodes)
        if best is None:
            return Decision(outcome="pending", reasons={"gpus": "no node has enough left"})
        return Decision(outcome="bound", node=best.node, devices=best.devices, reasons={})

    def node_for(self, host: HostRequest) -> str | None:
        """The node for a job that asks for no GPU; None if none has room."""
        assert self._rooms is not None
        best = self._best(Ask.of_host(host), self._rooms.candidates(host))
        return best.node if best else None

    def choose(
        self, entries: Mapping[str, Entry], nodes: frozenset[str] | None, ask: Ask
    ) -> Entry | None:
        """The node of the least rank.

        Args:
            entries: the nodes whose GPUs fit.
            nodes: those with CPU and memory; None for all.
            ask: what is asked for.
        """
        del ask  # the entries are those for it
        if nodes is None:
            return min(entries.values(), default=None)
        return min((entries[name] for name in nodes if name in entries), default=None)

    def _best(self, ask: Ask, nodes: frozenset[str] | None) -> Entry | None:
        return self.choose(self._refreshed(ask), nodes, ask)

    def _refreshed(self, ask: Ask) -> dict[str, Entry]:
        rooms = self._rooms
        assert rooms is not None
        ranking = self._rankings.get(ask)
        if ranking is None:
            if len(self._rankings) >= MAX_RANKINGS:
                self._rankings.clear()
                rooms.forget()
            ranking = self._rankings[ask] = _Ranking({}, set(rooms.names))
            rooms.follow(ranking.stale)
        for name in ranking.stale:
            placed = self._rank(rooms.of(name), ask)
            if placed is None:
                ranking.entries.pop(name, None)
            else:
                ranking.entries[name] = Entry(placed[0], natural_name(name), name, placed[1])
        ranking.stale.clear()
        return ranking.entries
