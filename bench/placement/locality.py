"""What a placement costs: the index beside a linear scan and beside looking at everything.

Times are of the processor, not of the wall: a decision waits for nothing, and a
busy neighbour is no part of it. As the cluster's programs do, the bench leaves a
rebuilt ledger out of garbage collection.
"""

import gc
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import TypeVar

from bench.placement import version_1
from bench.placement.clusters import CASES, GPU, Cluster
from bench.report import line, median

from core.policies.slow_locality import slow_decide
from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.locality.index import LocalityIndex
from kubeshare.core.policies.locality.policy import decide

Answer = TypeVar("Answer")

SIZES = (100, 1_000, 10_000, 100_000)

_BOUND = 1_000
_ROUNDS = 7
_WARM = 200
_AT_ONCE = 100
_REBUILT_HOLDERS = 100_000
_EXPLAINED_GPUS = 10_000
_SCANNED = 100_000  # GPUs that the slow ones look at in all


def run() -> list[bool]:
    """Decisions and releases by case and size, then rebuilding, its memory, and explaining."""
    results = []
    for case in CASES:
        results += _case(case)
    return [*results, _rebuild(), _memory(), _explain()]


def _case(case: str) -> list[bool]:
    """All sizes of a case in turn, again and again, so that a noisy machine disturbs all alike."""
    courses = [_Course(case, gpus) for gpus in SIZES]
    with _left_alone():
        for _ in range(_ROUNDS):
            for course in courses:
                course.round()
    results = []
    for course in courses:
        results += course.report()
    growth = median(courses[-1].bound) / median(courses[1].bound)
    what = f"locality, {case}: cost at {SIZES[-1]} GPUs by that at {SIZES[1]}"
    return [*results, line(what, "<= 3", growth, met=growth <= 3)]


class _Course:
    """A cluster to which as many demands come as go, and what that costs in µs."""

    def __init__(self, case: str, gpus: int) -> None:
        self._name = f"locality, {case}, {gpus} GPUs"
        self._cluster = Cluster(case, gpus)
        self._ledger = _build(self._cluster)
        self._demands = self._cluster.demands()
        self._held: deque[str] = deque()
        self._rounds: list[tuple[list[float], list[float]]] = []
        self._beside = _beside(self._cluster) if case == "mixed" else {}
        self._run(_WARM)

    @property
    def bound(self) -> list[float]:
        """Bound decisions of the round in which the machine did the least besides."""
        return min((bound for bound, _ in self._rounds), key=median)

    @property
    def released(self) -> list[float]:
        """Releases of such a round."""
        return min((released for _, released in self._rounds), key=median)

    def round(self) -> None:
        """Measure one round."""
        self._rounds.append(self._run(_BOUND))

    def report(self) -> list[bool]:
        """Print what was measured."""
        cost, worst = median(self.bound), _percentile(self.bound, 99)
        release = median(self.released)
        return [
            line(
                f"{self._name}: bound decision and its record, µs",
                "<= 40 median, <= 400 p99",
                cost,
                met=cost <= 40 and worst <= 400,
                p99=round(worst, 1),
                holders=self._cluster.holders,
                **self._beside,
            ),
            line(
                f"{self._name}: release, µs",
                "<= 15 median",
                release,
                met=release <= 15,
                p99=round(_percentile(self.released, 99), 1),
            ),
        ]

    def _run(self, bindings: int) -> tuple[list[float], list[float]]:
        bound: list[float] = []
        released: list[float] = []
        while len(bound) < bindings:
            demand = next(self._demands)
            cost, decision = _timed(partial(_place, self._ledger, demand))
            if decision.outcome == "bound":
                bound.append(cost)
                self._held.append(demand.uid)
            if len(self._held) > _AT_ONCE or decision.outcome != "bound":
                cost, _ = _timed(partial(self._ledger.release, self._held.popleft()))
                released.append(cost)
        return bound, released


def _place(ledger: Ledger, demand: Demand) -> Decision:
    decision = decide(ledger, demand)
    if decision.outcome == "bound":
        commit(ledger, demand, decision)
    return decision


def _beside(cluster: Cluster) -> dict[str, float]:
    """Medians of the slow ones, in µs, on the same cluster."""
    ledger = Ledger(cluster.nodes, cluster.devices)
    pods = version_1.sharepods(cluster.devices)
    often = max(3, min(50, _SCANNED // len(cluster.devices)))
    scans, searches = [], []
    for demand in islice(cluster.demands(), often):
        cost, _ = _timed(partial(version_1.decide, cluster.nodes, pods, GPU.memory_bytes, demand))
        scans.append(cost)
        cost, _ = _timed(partial(slow_decide, ledger, demand))
        searches.append(cost)
    return {
        "linear_scan_of_sharepods_us": round(median(scans), 1),
        "brute_force_us": round(median(searches), 1),
    }


def _rebuild() -> bool:
    cluster = _with_holders()
    seconds = []
    for _ in range(3):
        cost, _ = _timed(partial(_build, cluster))
        seconds.append(cost / 1e6)
    value = min(seconds)
    what = f"rebuild of a ledger and its index, {cluster.holders} holders, s"
    return line(what, "<= 1.2", value, met=value <= 1.2, gpus=len(cluster.devices))


def _memory() -> bool:
    gc.collect()
    tracemalloc.start()
    cluster = _with_holders()
    ledger = _build(cluster)
    holders, cluster.devices, cluster.nodes = cluster.holders, [], []
    gc.collect()
    each = tracemalloc.get_traced_memory()[0] / holders
    tracemalloc.stop()
    assert ledger.devices
    what = f"memory a holder, all in, {holders} holders, bytes"
    return line(what, "<= 1024", each, met=each <= 1024)


def _explain() -> bool:
    cluster = Cluster("mixed", _EXPLAINED_GPUS)
    ledger = _build(cluster)
    with _left_alone():
        costs = [_telling(ledger, demand) for demand in islice(cluster.demands(), 9)]
    value = median(costs) / 1000
    dearest = round(max(costs) / 1000, 1)
    what = f"explain, {_EXPLAINED_GPUS} GPUs, median of {len(costs)} demands, ms"
    return line(what, "<= 50", value, met=value <= 50, dearest=dearest)


def _telling(ledger: Ledger, demand: Demand) -> float:
    """What it costs to tell of every GPU, in µs, the quickest of a few times."""
    told = [_timed(partial(len, decide(ledger, demand).reasons)) for _ in range(4)]
    assert all(count >= _EXPLAINED_GPUS - 1 for _, count in told)
    return min(cost for cost, _ in told)


def _with_holders() -> Cluster:
    """A cluster with about as many holders as are to be rebuilt."""
    sample = Cluster("mixed", 1_000)
    return Cluster("mixed", 1_000 * _REBUILT_HOLDERS // sample.holders + 100)


def _build(cluster: Cluster) -> Ledger:
    ledger = Ledger(cluster.nodes, cluster.devices)
    ledger.index(LocalityIndex)
    return ledger


@contextmanager
def _left_alone() -> Iterator[None]:
    """What was built is left out of garbage collection, as it is in the cluster's programs."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _timed(what: Callable[[], Answer]) -> tuple[float, Answer]:
    """What something costs in µs, less what it costs to measure nothing; and its answer."""
    begun = time.thread_time_ns()
    answer = what()
    return (time.thread_time_ns() - begun - _NOTHING_NS) / 1000, answer


def _nothing_ns() -> int:
    costs = []
    for _ in range(1001):
        begun = time.thread_time_ns()
        costs.append(time.thread_time_ns() - begun)
    return sorted(costs)[500]


_NOTHING_NS = _nothing_ns()


def _percentile(values: list[float], percent: int) -> float:
    return sorted(values)[len(values) * percent // 100]
