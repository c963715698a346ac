"""Ranks every node for every job, and every class of jobs for every node: slow, and obvious."""

from bisect import bisect_right

from kubeshare.core.demand import Demand
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural_name
from kubeshare.core.units import MICROS
from kubeshare.simulator.baselines.fgd import Fragmentation
from kubeshare.simulator.baselines.node_rooms import Ask, NodeRoom, NodeRooms
from kubeshare.simulator.baselines.ranked import Rank
from kubeshare.simulator.baselines.usable import ClassWeights
from kubeshare.simulator.gradient.policy import Gradient


def best_of_every_node(
    rank: Rank, ledger: Ledger, rooms: NodeRooms, demand: Demand
) -> tuple[str, tuple[str, ...]] | None:
    """The node of the least rank and the devices there, as :class:`RankedNodes` must have it."""
    ask = rooms.ask(demand)
    ranked = []
    for name in ledger.nodes:
        placed = rank(rooms.of(name), ask)
        if placed is not None and (demand.nodes is None or name in demand.nodes):
            ranked.append((placed[0], natural_name(name), name, placed[1]))
    if not ranked:
        return None
    _, _, name, devices = min(ranked)
    return name, devices


class EveryClass(Fragmentation):
    """``fgd`` that keeps nothing."""

    def of(self, micros: list[int], cpu_millis: int, model: str) -> float:
        left, usable = sorted(micros), 0.0
        counted = self.counted_cpus(cpu_millis)
        for weights in self._classes:
            each = weights.of
            fits = [gpu for gpu in left if gpu >= each.micros]
            if len(fits) >= each.count and (not each.models or model in each.models):
                usable += self.usable(weights, sum(fits), counted)
        return -usable

    def usable(self, weights: ClassWeights, micros: int, cpu_millis: int) -> float:
        return weights.with_cpus(cpu_millis) * micros

    def __call__(self, room: NodeRoom, ask: Ask) -> tuple[float, tuple[str, ...]] | None:
        gpus = ask.fitting(room)
        if gpus is None:
            return None
        before = self.of([gpu.micros for gpu in room.gpus], room.cpu_millis, room.model)
        choices = [[gpu] for gpu in gpus] if ask.shares else [gpus[: ask.count]]
        ranked = []
        for taken in choices:
            left = [gpu.micros - ask.micros * (gpu in taken) for gpu in room.gpus]
            after = self.of(left, room.cpu_millis - ask.host.cpu_millis, room.model)
            rise = after - before - ask.micros * ask.count
            score = self.score(rise, ask, [gpu.micros for gpu in taken])
            ranked.append((score, rise, tuple(gpu.id for gpu in taken)))
        best = min(ranked)
        return best[0], best[2]


class EveryClassByCpus(EveryClass, Gradient):
    """``gradient`` that keeps nothing."""

    def usable(self, weights: ClassWeights, micros: int, cpu_millis: int) -> float:
        if (weights.of.micros, weights.of.count) == (MICROS, 1):
            return super().usable(weights, micros, cpu_millis)
        size = weights.of.micros * weights.of.count
        jobs = -(-micros // size)
        cpus, at_most = weights.cpu_millis, weights.at_most
        whole = bisect_right(cpus, cpu_millis // jobs)
        partly = sum(
            (at_most[at + 1] - at_most[at]) * (cpu_millis // cpus[at])
            for at in range(whole, bisect_right(cpus, cpu_millis))
        )
        return at_most[whole] * micros + partly * size
