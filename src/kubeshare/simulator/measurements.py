"""Measures a run: means over time, and times of the jobs.

Memory is bounded: a series has at most ``MAX_POINTS`` points, however long the run, and of each
job that ended two numbers are kept.
"""

import math
import statistics
from array import array
from collections import Counter
from typing import Final

import msgspec

MAX_POINTS: Final = 512
"""The most points of a series; twice as many are merged by two."""

GAUGES: Final = ("used_gpus", "reserved_gpus", "active_gpus", "waiting_jobs")
"""What is followed over time: the GPU time in use, what holders reserve, how many GPUs have
holders, and how many jobs wait."""

_STEP: Final = math.log(1.02)
"""Of the logarithm of a time in a histogram."""

REASONS: Final = 20
"""The most different reasons for refusals that are told apart."""


class Series:
    """Means of gauges over equal steps of time.

    Attributes:
        step_s: the length of a step, a power of two of seconds, so that no step is rounded.
        now: until when it was advanced.
        integrals: of each gauge, over all the time.
        peaks: the most of each gauge.
    """

    def __init__(self) -> None:
        self.step_s = 1.0
        self.now = 0.0
        self._sums: list[list[float]] = []  # of each step the integral of each gauge
        self.peaks = [0.0] * len(GAUGES)
        self.integrals = [0.0] * len(GAUGES)

    def advance(self, now: float, values: tuple[float, float, float, float]) -> None:
        """Account for gauges that had these values until now."""
        if now <= self.now:
            return
        for at, value in enumerate(values):
            self.integrals[at] += value * (now - self.now)
            self.peaks[at] = max(self.peaks[at], value)
        while now / self.step_s > MAX_POINTS:
            self._merge()
        while self.now < now:
            step = int(self.now / self.step_s)
            end = min(now, (step + 1) * self.step_s)
            while len(self._sums) <= step:
                self._sums.append([0.0] * len(GAUGES))
            for at, value in enumerate(values):
                self._sums[step][at] += value * (end - self.now)
            self.now = end

    def rows(self) -> list[dict[str, float]]:
        """Of each step its begin and the mean of each gauge."""
        rows = []
        for step, sums in enumerate(self._sums):
            begin = step * self.step_s
            length = min(self.step_s, self.now - begin)
            means = (each / length if length > 0 else 0.0 for each in sums)
            rows.append({"time_s": begin} | dict(zip(GAUGES, means, strict=True)))
        return rows

    def _merge(self) -> None:
        pairs = zip(self._sums[::2], [*self._sums[1::2], [0.0] * len(GAUGES)], strict=False)
        self._sums = [[a + b for a, b in zip(*pair, strict=True)] for pair in pairs]
        self.step_s *= 2


class Histogram:
    """Counts of times, in steps of 2 %, so that memory does not grow with their number.

    Attributes:
        count: how many there are.
    """

    def __init__(self) -> None:
        self.count = 0
        self._counts: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        """Count a time of more than 0."""
        self.count += 1
        self._counts[round(math.log(seconds) / _STEP)] += 1

    def percentile(self, percent: int) -> float:
        """The nearest-rank percentile, within 1 %; 0 of nothing."""
        rank = -(-self.count * percent // 100)
        for step, count in sorted(self._counts.items()):
            rank -= count
            if rank <= 0:
                return math.exp(step * _STEP)
        return 0.0


class Measurements:
    """The counts and times of a run.

    Attributes:
        arrived: the jobs that were submitted.
        finished: those that did their work.
        evicted: how often a job was evicted for one of higher priority.
        refused: why jobs were refused → how many.
        interrupted: whether the run was stopped before its end.
        series: the gauges over time.
        waits_s: of each placed job, the time from submission to placement.
        completions_s: of each finished job, the time from submission to its end.
        latencies: of the requests of inference jobs, in seconds.
        first_arrival_s: when the first job was submitted.
        last_finish_s: when the last job that finished did.
    """

    def __init__(self) -> None:
        self.arrived = 0
        self.finished = 0
        self.evicted = 0
        self.refused: Counter[str] = Counter()
        self.interrupted = False
        self.series = Series()
        self.waits_s = array("d")
        self.completions_s = array("d")
        self.latencies = Histogram()
        self.first_arrival_s = 0.0
        self.last_finish_s = 0.0

    def arrive(self, now: float) -> None:
        """Count a job that is submitted."""
        if not self.arrived:
            self.first_arrival_s = now
        self.arrived += 1

    def finish(self, arrival_s: float, now: float) -> None:
        """Count a job that has done its work."""
        self.finished += 1
        self.last_finish_s = now
        self.completions_s.append(now - arrival_s)

    def refuse(self, why: str) -> None:
        """Count a refusal, by its reason as long as few differ."""
        known = why in self.refused or len(self.refused) < REASONS
        self.refused[why if known else "other reasons"] += 1

    def summary(self, gpus: int, running: int, waiting: int) -> "Summary":
        """The numbers of the run.

        Args:
            gpus: the GPUs of the cluster.
            running: the jobs that have not finished.
            waiting: those that have not been placed.
        """
        makespan = max(0.0, self.last_finish_s - self.first_arrival_s)
        used, reserved, active, _ = self.series.integrals
        elapsed = self.series.now - self.first_arrival_s
        gpu_s = gpus * elapsed
        return Summary(
            arrived=self.arrived,
            finished=self.finished,
            refused=self.refused.total(),
            running=running,
            waiting=waiting,
            evicted=self.evicted,
            partial=self.interrupted,
            makespan_s=makespan,
            jobs_per_minute=60 * self.finished / makespan if makespan else 0.0,
            wait_mean_s=mean(self.waits_s),
            wait_p99_s=percentile(self.waits_s, 99),
            completion_mean_s=mean(self.completions_s),
            completion_p99_s=percentile(self.completions_s, 99),
            requests=self.latencies.count,
            latency_p50_s=self.latencies.percentile(50),
            latency_p99_s=self.latencies.percentile(99),
            active_gpus_mean=active / elapsed if elapsed else 0.0,
            reserved_peak_fraction=self.series.peaks[1] / gpus if gpus else 0.0,
            reserved_fraction=reserved / gpu_s if gpu_s else 0.0,
            used_fraction=used / gpu_s if gpu_s else 0.0,
            used_fraction_of_active=used / active if active else 0.0,
        )


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a run; times in seconds, fractions of the time of all GPUs.

    Attributes:
        arrived, finished, refused, running, waiting, evicted: numbers of jobs.
        partial: whether the run was interrupted, so that it says less than it could.
        makespan_s: from the first arrival to the last end of a job.
        jobs_per_minute: finished jobs by the makespan.
        wait_mean_s, wait_p99_s: from submission to placement.
        completion_mean_s, completion_p99_s: from submission to the end.
        requests: that inference jobs served.
        latency_p50_s, latency_p99_s: from the arrival of a request to its end, within 1 %.
        active_gpus_mean: how many GPUs had holders, on average.
        reserved_fraction: of GPU time, reserved by holders.
        reserved_peak_fraction: of GPUs, the most that was reserved at once.
        used_fraction: of GPU time, in use by jobs.
        used_fraction_of_active: the same of the GPUs that had holders.
    """

    arrived: int
    finished: int
    refused: int
    running: int
    waiting: int
    evicted: int
    partial: bool
    makespan_s: float
    jobs_per_minute: float
    wait_mean_s: float
    wait_p99_s: float
    completion_mean_s: float
    completion_p99_s: float
    requests: int
    latency_p50_s: float
    latency_p99_s: float
    active_gpus_mean: float
    reserved_fraction: float
    reserved_peak_fraction: float
    used_fraction: float
    used_fraction_of_active: float


class Estimate(msgspec.Struct, frozen=True):
    """A mean over repetitions, and half the width of its 95 % confidence interval."""

    mean: float
    half_width: float | None


# Student's t at 97.5 %, by degrees of freedom from 1; beyond the table the normal quantile.
_T: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179)
_T_MANY: Final = 2.179
"""For more: a little too wide rather than too narrow."""


def estimate(values: list[float]) -> Estimate:
    """The mean of independent runs; without an interval if there is only one."""
    mean = statistics.fmean(values)
    freedom = len(values) - 1
    if not freedom:
        return Estimate(mean, None)
    quantile = _T[freedom - 1] if freedom <= len(_T) else _T_MANY
    return Estimate(mean, quantile * statistics.stdev(values) / len(values) ** 0.5)


def mean(values: "array[float]") -> float:
    """The mean; 0 of nothing."""
    return statistics.fmean(values) if values else 0.0


def percentile(values: "array[float]", percent: int) -> float:
    """The nearest-rank percentile; 0 of nothing."""
    if not values:
        return 0.0
    return sorted(values)[-(-len(values) * percent // 100) - 1]
