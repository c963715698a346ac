"""What it costs to score 5 000 nodes for a demand, as a scheduler extender does for each pod.

Before each measurement a demand is placed and one is released, so some nodes have changed. Times
are processor time: scores wait for nothing, and a busy neighbour does not count.
"""

import gc
import random
import time
from collections import deque
from collections.abc import Callable, Iterator

from bench.placement import binpack as binpack_clusters
from bench.placement import topology as topology_clusters
from bench.placement.clusters import Cluster
from bench.report import NO_GOAL, Met, median, percentile, report, time_at_most

from kubeshare.core.decision import commit
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy
from kubeshare.core.policies.scoring import scorer

NODES = 5_000

_ROUNDS = 5
_SCORES = 20  # in each round
_MOST_MS = 5.0
_LIVE = 10


def run() -> list[Met]:
    """The scores of all nodes under each policy."""
    clusters = {name: make() for name, make in _CLUSTERS.items()}
    gc.collect()
    gc.freeze()
    courses = [_Course(name, *cluster) for name, cluster in clusters.items()]
    for _ in range(_ROUNDS):
        for course in courses:
            course.round()
    gc.unfreeze()
    return [met for course in courses for met in course.report()]


def _locality() -> tuple[Ledger, Iterator[Demand]]:
    cluster = Cluster("mixed", NODES * 8)
    return Ledger(cluster.nodes, cluster.devices), cluster.demands()


def _binpack() -> tuple[Ledger, Iterator[Demand]]:
    source = random.Random(5)
    ledger = binpack_clusters.half_full(NODES, source)
    return ledger, _endless(
        lambda number: binpack_clusters.a_pod(number, source, NODES, given=False)
    )


def _topology() -> tuple[Ledger, Iterator[Demand]]:
    source = random.Random(6)
    ledger = topology_clusters.half_full(NODES)
    return ledger, _endless(lambda number: topology_clusters.a_demand(source, -1 - number))


def _endless(make: Callable[[int], Demand]) -> Iterator[Demand]:
    number = 0
    while True:
        yield make(number)
        number += 1


_CLUSTERS = {"locality": _locality, "binpack": _binpack, "topology": _topology}


class _Course:
    """A cluster under one policy, and what each scoring of all its nodes costs in ms."""

    def __init__(self, name: str, ledger: Ledger, demands: Iterator[Demand]) -> None:
        self._name, self._ledger, self._demands = name, ledger, demands
        self._decide, self._score = policy(name), scorer(name)
        self._nodes = list(ledger.nodes)
        self._held: deque[str] = deque()
        self._fitting: list[float] = []
        self._first = self._measured(next(demands))
        self._taken: list[list[float]] = []

    def round(self) -> None:
        """Measure one round."""
        self._taken.append([self._after_a_change() for _ in range(_SCORES)])

    def report(self) -> list[Met]:
        """Print what was measured."""
        what = f"{self._name}: scores of {NODES} nodes of 8 GPUs"
        medians = [median(taken) for taken in self._taken]
        tails = [percentile(taken, 99) for taken in self._taken]
        fitting = round(median(self._fitting))
        return [
            report(f"{what}, ms", time_at_most(_MOST_MS), medians, fitting=fitting),
            report(f"{what}, p99, ms", NO_GOAL, tails),
            report(f"{what}, the first ones of a ledger, ms", NO_GOAL, self._first),
        ]

    def _after_a_change(self) -> float:
        demand = next(self._demands)
        decision = self._decide(self._ledger, demand)
        if decision.outcome == "bound":
            commit(self._ledger, demand, decision)
            self._held.append(demand.uid)
        if len(self._held) > _LIVE:
            self._ledger.release(self._held.popleft())
        return self._measured(next(self._demands))

    def _measured(self, demand: Demand) -> float:
        begun = time.thread_time_ns()
        scores = self._score(self._ledger, demand, self._nodes)
        taken = (time.thread_time_ns() - begun) / 1e6
        self._fitting.append(len(scores))
        return taken
