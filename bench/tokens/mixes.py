"""How well shares are held, of twenty mixes of shares and kernels of 10 us to 2 s.

Each mix runs once, on a node of its own. It begins to count when twenty of its longest kernels
could have run, so that what was owed at the start is paid, and counts for as long as two hundred:
one or two of them that begin before or end after that are less than a point. What counts is the
fake GPU's own log. Of jobs whose kernels are shorter than this machine needs to launch them, that
shows the launches: there the time counts for which each is charged. The log still counts of the
jobs with longer kernels beside them.
``tests/core/token/test_mixes.py`` has the same table on a virtual clock.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from bench.node.jobs import Node
from bench.report import NO_GOAL_HIGHER, Met, at_least, at_most, report

from kubeshare.core.token.fair_share import fair_shares
from kubeshare.core.units import MICROS
from kubeshare.demo.timeline import shares

ERROR_GOAL: Final = 0.02
"""Of the GPU; of each share."""

JAIN_GOAL: Final = 0.99
"""Jain's index of what each got of what it should have."""

_SETTLE_S = 5.0
_KERNELS_TO_SETTLE = 20
_WINDOW_S = 10.0
_KERNELS_A_WINDOW = 200
_LAUNCH_US = 100


class Mix(NamedTuple):
    """Jobs that always have work: their requests, and how long each one's kernels are."""

    requests: tuple[float, ...]
    kernels_us: tuple[int, ...]
    limit: float = 1.0

    @property
    def title(self) -> str:
        """For people."""
        requests = "/".join(f"{request:g}" for request in self.requests)
        kernels = ", ".join(duration(us) for us in self.kernels_us)
        return f"{len(self.requests)} jobs {requests}, kernels of {kernels}"

    @property
    def targets(self) -> dict[str, float]:
        """The share of each job, by name."""
        asks = {
            f"job-{i}": (round(request * MICROS), round(self.limit * MICROS))
            for i, request in enumerate(self.requests)
        }
        return {name: share / MICROS for name, share in fair_shares(asks).items()}

    @property
    def kernels(self) -> list[int]:
        """The microseconds of each job's kernels."""
        return [self.kernels_us[i % len(self.kernels_us)] for i in range(len(self.requests))]

    @property
    def is_by_charge(self) -> bool:
        """Whether a launch takes longer than some of the kernels."""
        return min(self.kernels_us) < _LAUNCH_US

    @property
    def logged(self) -> list[str]:
        """The jobs of which the GPU's log shows more than their launches."""
        jobs = zip(self.targets, self.kernels, strict=True)
        return [job for job, kernel_us in jobs if kernel_us >= _LAUNCH_US]

    @property
    def settle_s(self) -> float:
        """After which the shares are held."""
        return max(_SETTLE_S, _KERNELS_TO_SETTLE * max(self.kernels_us) / 1e6)

    @property
    def window_s(self) -> float:
        """In which the shares are held."""
        return max(_WINDOW_S, _KERNELS_A_WINDOW * max(self.kernels_us) / 1e6)


MIXES: Final = (
    Mix((0.5, 0.5), (10,)),
    Mix((0.5, 0.5), (1000,)),
    Mix((0.3, 0.4, 0.3), (20_000,)),
    Mix((0.34, 0.33, 0.33), (50_000, 5000, 500)),
    Mix((0.8, 0.1, 0.1), (1000,)),
    Mix((0.8, 0.1, 0.1), (10, 5000, 20_000)),
    Mix((0.8, 0.1, 0.1), (20_000, 10, 10)),
    Mix((0.9, 0.05, 0.05), (1000,)),
    Mix((0.95, 0.05), (1000,)),
    Mix((0.4, 0.3, 0.2, 0.1), (100, 1000, 5000, 20_000)),
    Mix((0.2, 0.2, 0.2), (1000,), limit=0.3),
    Mix((0.125,) * 8, (200, 1000, 5000, 20_000)),
    Mix((0.6, 0.3, 0.1), (100_000,)),
    Mix((0.6, 0.3, 0.1), (10, 100_000, 1000)),
    Mix((0.7, 0.2, 0.1), (200_000,)),
    Mix((0.5, 0.3, 0.2), (500_000, 1000, 1000)),
    Mix((0.5, 0.3, 0.2), (1000, 1000, 500_000)),
    Mix((0.5, 0.5), (2_000_000, 10)),
    Mix((0.8, 0.2), (10, 2_000_000)),
    Mix((0.25,) * 4, (10, 1000, 100_000, 2_000_000)),
)


def run(mixes: Sequence[Mix] = MIXES) -> list[Met]:
    """Three lines a mix, and a fourth where the log counts beside the charge."""
    return [met for mix in mixes for met in _run(mix)]


def start(node: Node, mix: Mix) -> None:
    """Start the jobs of a mix, and wait until all of them work."""
    for i, (request, kernel_us) in enumerate(zip(mix.requests, mix.kernels, strict=True)):
        options = ("--kernel-us", str(kernel_us), "--inflight", _inflight(kernel_us))
        node.start(f"job-{i}", request, *options, limit=mix.limit)
    node.wait_until_busy(*mix.targets)


def jain(measured: Mapping[str, float], target: Mapping[str, float]) -> float:
    """Jain's fairness index of what each got of what it should have: 1 when all alike."""
    ratios = [measured[job] / target[job] for job in target]
    return sum(ratios) ** 2 / (len(ratios) * sum(ratio * ratio for ratio in ratios))


def worst_error(measured: Mapping[str, float], target: Mapping[str, float]) -> float:
    """How far the share is off that is furthest off."""
    return max(abs(measured[job] - target[job]) for job in target)


def duration(microseconds: int) -> str:
    """The length of a kernel, for people."""
    if microseconds < 1000:
        return f"{microseconds} us"
    return f"{microseconds // 1000} ms" if microseconds < MICROS else f"{microseconds // MICROS} s"


def _inflight(kernel_us: int) -> str:
    """About 30 ms of them, and never fewer than four."""
    return str(min(1024, max(4, 30_000 // kernel_us)))


def _run(mix: Mix) -> list[Met]:
    with Node() as node:
        start(node, mix)
        time.sleep(mix.settle_s)
        if not mix.is_by_charge:
            return _report(mix, node.shares(mix.window_s))
        before = node.sample()
        by_charge = charged(node, mix.window_s)
        by_log = shares(before, node.sample(), mix.logged)
    return [*_report(mix, by_charge), *([_report_log(mix, by_log)] if by_log else [])]


def charged(node: Node, seconds: float) -> dict[str, float]:
    """The part of the next seconds for which each job is charged."""
    began, before = time.monotonic_ns(), node.views()
    time.sleep(seconds)
    ended, after = time.monotonic_ns(), node.views()
    return {
        name: (view["chargedNs"] - before[name]["chargedNs"]) / (ended - began)
        for name, view in after.items()
    }


def _report(mix: Mix, measured: Mapping[str, float]) -> list[Met]:
    target = mix.targets
    return [
        _report_error(mix, "worst share error", measured, target),
        report(
            f"mix of {mix.title}: Jain's index of share / target",
            at_least(JAIN_GOAL),
            [jain(measured, target)],
        ),
        report(
            f"mix of {mix.title}: GPU {'charged' if mix.is_by_charge else 'in use'}, fraction",
            NO_GOAL_HIGHER,
            [sum(measured.values())],
        ),
    ]


def _report_log(mix: Mix, measured: Mapping[str, float]) -> Met:
    target = {job: mix.targets[job] for job in measured}
    kernels = f"kernels of {duration(_LAUNCH_US)} and more"
    return _report_error(mix, f"worst share error by the log of {kernels}", measured, target)


def _report_error(
    mix: Mix, what: str, measured: Mapping[str, float], target: Mapping[str, float]
) -> Met:
    return report(
        f"mix of {mix.title}: {what} over {mix.window_s:g} s, fraction of the GPU",
        at_most(ERROR_GOAL),
        [worst_error(measured, target)],
        measured={job: round(share, 4) for job, share in measured.items()},
        target=dict(target),
    )


if __name__ == "__main__":
    run()
