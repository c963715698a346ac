"""Computes shares from samples of busy time. Pure.

A sample says how long the GPU has worked for each job since the job's start.
The share over a window is the time that it worked in the window over the window's length, so
neither the sampling rate nor a late sample distorts it.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct


class Sample(Struct, frozen=True):
    """One sample of the GPU.

    Args:
        at_ns: when, on the clock of whoever counts the busy time.
        busy_ns: job -> nanoseconds that the GPU has worked for it so far.
    """

    at_ns: int
    busy_ns: Mapping[str, int]


class StageResult(Struct, frozen=True):
    """The result of a stage: each job's fraction of the GPU."""

    title: str
    start_ns: int
    end_ns: int
    target: Mapping[str, float]
    measured: Mapping[str, float]
    charged: Mapping[str, float]

    @property
    def worst(self) -> float:
        """The largest distance from a target, as a fraction of the GPU."""
        return max(abs(self.measured[job] - self.target[job]) for job in self.target)


def shares(first: Sample, last: Sample, jobs: Iterable[str]) -> dict[str, float]:
    """The share of each job between two samples.

    Raises:
        ValueError: no time lies between them.
    """
    elapsed = last.at_ns - first.at_ns
    if elapsed <= 0:
        raise ValueError("a share needs two samples with time between them")
    return {job: (last.busy_ns.get(job, 0) - first.busy_ns.get(job, 0)) / elapsed for job in jobs}


def sliding(
    samples: list[Sample], jobs: Iterable[str], window_ns: int
) -> dict[str, list[tuple[int, float]]]:
    """For each job the points (time, share over the window that ends there), for a plot.

    A job's line begins with the first work that the GPU did for it and ends with the last.
    """
    jobs = tuple(jobs)
    lines: dict[str, list[tuple[int, float]]] = {job: [] for job in jobs}
    start = 0
    for sample in samples:
        while samples[start].at_ns < sample.at_ns - window_ns:
            start += 1
        if samples[start].at_ns < sample.at_ns:
            for job, share in shares(samples[start], sample, jobs).items():
                if share > 0:
                    lines[job].append((sample.at_ns, share))
    return lines
