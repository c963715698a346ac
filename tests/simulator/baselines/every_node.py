"""Ranks every node for every job, and every class of jobs for every node: slow, and obvious."""

from bisect import bisect_right
from itertools import accumulate

from kubeshare.core.demand import Demand
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural_name
from kubeshare.simulator.baselines.fgd import ClassWeights, Fragmentation
from kubeshare.simulator.baselines.node_rooms import NodeRooms
from kubeshare.simulator.baselines.ranked import Rank
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
        left = sorted(micros)
        sums = [0, *accumulate(left)]
        usable = 0.0
        for weights in self._classes:
            each = weights.of
            too_small = bisect_right(left, each.micros - 1)
            if len(left) - too_small < each.count or (each.models and model not in each.models):
                continue
            usable += self.usable(weights, sums[-1] - sums[too_small], cpu_millis)
        return -usable

    def usable(self, weights: ClassWeights, micros: int, cpu_millis: int) -> float:
        return weights.with_cpus(cpu_millis) * micros


class EveryClassByCpus(EveryClass, Gradient):
    """``gradient`` that keeps nothing."""

    def usable(self, weights: ClassWeights, micros: int, cpu_millis: int) -> float:
        size = weights.of.micros * weights.of.count
        jobs = -(-micros // size)
        cpus, at_most = weights.cpu_millis, weights.at_most
        whole = bisect_right(cpus, cpu_millis // jobs)
        partly = sum(
            (at_most[at + 1] - at_most[at]) * (cpu_millis // cpus[at])
            for at in range(whole, bisect_right(cpus, cpu_millis))
        )
        return at_most[whole] * micros + partly * size
