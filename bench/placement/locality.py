"""What a placement costs: the index beside a linear scan and a brute-force search.

Times are processor time, not wall time: a decision waits for nothing, and a busy neighbour does
not count. Like the cluster's programs, the bench keeps a rebuilt ledger out of garbage
collection. All sizes of a case take turns, round after round; each number is the median of the
rounds.
"""

import gc
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeVar

import msgspec
from bench.placement import version_1
from bench.placement.clusters import CASES, GPU, Cluster
from bench.report import Met, at_most, median, percentile, ratios, report, time_at_most

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
_REBUILDS = 3
_SCANNED_EACH_ROUND = 20_000  # GPUs that the slow sides go through


def run() -> list[Met]:
    """Decisions and releases by case and size, then rebuilding, its memory, and explaining."""
    results: list[Met] = []
    for case in CASES:
        results += _case(case)
    return [*results, _rebuild(), _memory(), _explain()]


def _case(case: str) -> list[Met]:
    """All sizes of a case in turn, again and again, so that a noisy machine disturbs all alike."""
    courses = [_Course(case, gpus) for gpus in SIZES]
    with _without_gc():
        for _ in range(_ROUNDS):
            for course in courses:
                course.round()
    results: list[Met] = []
    for course in courses:
        results += course.report()
    growth = ratios(courses[-1].bound_medians, courses[1].bound_medians)
    what = f"locality, {case}: cost at {SIZES[-1]} GPUs by that at {SIZES[1]}"
    return [*results, report(what, at_most(3), growth)]


class _Round(NamedTuple):
    """µs of each bound decision with its record, and of each release."""

    bound: list[float]
    released: list[float]


class _Course:
    """A cluster to which as many demands come as go, and what that costs in µs."""

    def __init__(self, case: str, gpus: int) -> None:
        self._name = f"locality, {case}, {gpus} GPUs"
        self._cluster = Cluster(case, gpus)
        self._ledger = _build(self._cluster)
        self._demands = self._cluster.demands()
        self._held: deque[str] = deque()
        self._rounds: list[_Round] = []
        self._slow = _SlowSides(self._cluster) if case == "mixed" else None
        self._run(_WARM)

    @property
    def bound_medians(self) -> list[float]:
        """The median bound decision of each round."""
        return [median(each.bound) for each in self._rounds]

    def round(self) -> None:
        """Measure one round, of the slow sides too."""
        self._rounds.append(self._run(_BOUND))
        if self._slow is not None:
            self._slow.round()

    def report(self) -> list[Met]:
        """Print what was measured."""
        tails = [percentile(each.bound, 99) for each in self._rounds]
        return [
            report(
                f"{self._name}: bound decision and its record, µs",
                time_at_most(40),
                self.bound_medians,
                gpus=len(self._cluster.devices),
                holders=self._cluster.holders,
                p99=round(median(tails), 1),
                **(self._slow.medians() if self._slow else {}),
            ),
            report(
                f"{self._name}: bound decision and its record, p99, µs", time_at_most(400), tails
            ),
            report(
                f"{self._name}: release, µs",
                time_at_most(15),
                [median(each.released) for each in self._rounds],
                p99=round(median([percentile(each.released, 99) for each in self._rounds]), 1),
            ),
        ]

    def _run(self, bindings: int) -> _Round:
        measured = _Round([], [])
        while len(measured.bound) < bindings:
            demand = next(self._demands)
            cost, decision = _timed(partial(_place, self._ledger, demand))
            if decision.outcome == "bound":
                measured.bound.append(cost)
                self._held.append(demand.uid)
            if len(self._held) > _AT_ONCE or decision.outcome != "bound":
                cost, _ = _timed(partial(self._ledger.release, self._held.popleft()))
                measured.released.append(cost)
        return measured


class _SlowSides:
    """What a scan of all SharePods and a brute-force search cost on the same cluster, in µs."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._ledger = Ledger(cluster.nodes, cluster.devices)
        self._pods = version_1.sharepods(cluster.devices)
        self._demands = cluster.demands()
        self._each_round = max(1, min(8, _SCANNED_EACH_ROUND // len(cluster.devices)))
        self._scans: list[float] = []
        self._searches: list[float] = []

    def round(self) -> None:
        """Measure some demands."""
        for demand in islice(self._demands, self._each_round):
            scan = partial(
                version_1.decide, self._cluster.nodes, self._pods, GPU.memory_bytes, demand
            )
            self._scans.append(_timed(scan)[0])
            self._searches.append(_timed(partial(slow_decide, self._ledger, demand))[0])

    def medians(self) -> dict[str, float]:
        """For the line of the fast side."""
        return {
            "linear_scan_of_sharepods_us": round(median(self._scans), 1),
            "brute_force_us": round(median(self._searches), 1),
        }


def _place(ledger: Ledger, demand: Demand) -> Decision:
    decision = decide(ledger, demand)
    if decision.outcome == "bound":
        commit(ledger, demand, decision)
    return decision


def _rebuild() -> Met:
    cluster = _with_holders()
    seconds = []
    for _ in range(_REBUILDS):
        # A device caches its sums and its sort key, so each ledger gets devices of its own.
        cluster.devices = list(map(msgspec.structs.replace, cluster.devices))
        seconds.append(_timed(partial(_build, cluster))[0] / 1e6)
    what = f"rebuild of a ledger and its index, {cluster.holders} holders, s"
    return report(what, time_at_most(1.2), seconds, gpus=len(cluster.devices))


def _memory() -> Met:
    sizes = [_bytes_per_holder() for _ in range(_REBUILDS)]
    holders = sizes[0][1]
    what = f"memory a holder, all in, {holders} holders, bytes"
    return report(what, at_most(1024), [size for size, _ in sizes])


def _bytes_per_holder() -> tuple[float, int]:
    """Bytes that a holder takes with all that belongs to it, and how many holders there are."""
    gc.collect()
    tracemalloc.start()
    cluster = _with_holders()
    ledger = _build(cluster)
    holders, cluster.devices, cluster.nodes = cluster.holders, [], []
    gc.collect()
    each = tracemalloc.get_traced_memory()[0] / holders
    tracemalloc.stop()
    assert ledger.devices
    return each, holders


def _explain() -> Met:
    cluster = Cluster("mixed", _EXPLAINED_GPUS)
    ledger = _build(cluster)
    demands = list(islice(cluster.demands(), 9))
    with _without_gc():
        rounds = [
            [_explained_us(ledger, demand) / 1000 for demand in demands] for _ in range(_ROUNDS)
        ]
    return report(
        f"explain, {_EXPLAINED_GPUS} GPUs, median of {len(demands)} demands, ms",
        time_at_most(50),
        [median(costs) for costs in rounds],
        slowest=round(max(max(costs) for costs in rounds), 1),
    )


def _explained_us(ledger: Ledger, demand: Demand) -> float:
    """µs that it takes to give the reason for every GPU."""
    cost, count = _timed(partial(len, decide(ledger, demand).reasons))
    assert count >= _EXPLAINED_GPUS - 1
    return cost


def _with_holders() -> Cluster:
    """A cluster with about as many holders as are to be rebuilt."""
    sample = Cluster("mixed", 1_000)
    return Cluster("mixed", 1_000 * _REBUILT_HOLDERS // sample.holders + 100)


def _build(cluster: Cluster) -> Ledger:
    ledger = Ledger(cluster.nodes, cluster.devices)
    ledger.index(LocalityIndex)
    return ledger


@contextmanager
def _without_gc() -> Iterator[None]:
    """Keep what was built out of garbage collection, as the cluster's programs do."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _timed(what: Callable[[], Answer]) -> tuple[float, Answer]:
    """Processor time of a call in µs, less the cost of measuring nothing; and its answer."""
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
