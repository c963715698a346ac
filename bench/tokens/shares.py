"""How well shares are held, by the fake GPU's own log: many kinds of jobs, 10 s windows."""

import time
from collections.abc import Mapping
from typing import NamedTuple

from bench.node.jobs import Node
from bench.report import line

from kubeshare.core.token.fair_share import fair_shares
from kubeshare.core.units import MICROS

_SETTLE_S = 5.0
_WINDOW_S = 10.0
_ERROR_GOAL = 0.02
_TOTAL_GOAL = 0.98
_JAIN_GOAL = 0.99
_FIRST_WAIT_GOAL_MS = 150.0
_LONGEST_WAIT_GOAL_MS = 1500.0


class Case(NamedTuple):
    """Jobs that always have work: their requests, and how long each one's kernels are."""

    requests: tuple[float, ...]
    kernels_us: tuple[int, ...]
    limit: float = 1.0

    @property
    def title(self) -> str:
        """For the line of the report."""
        requests = "/".join(f"{request:g}" for request in self.requests)
        kernels = ", ".join(_duration(us) for us in self.kernels_us)
        return f"{len(self.requests)} jobs {requests}, kernels of {kernels}"

    @property
    def targets(self) -> dict[str, float]:
        """The share of each job."""
        asks = {
            f"job-{i}": (round(request * MICROS), round(self.limit * MICROS))
            for i, request in enumerate(self.requests)
        }
        return {name: share / MICROS for name, share in fair_shares(asks).items()}


# Kernels much shorter than these are bounded by how fast this machine launches, not by the GPU.
CASES = (
    Case((0.5, 0.5), (1000,)),
    Case((0.3, 0.4, 0.3), (20_000,)),
    Case((0.8, 0.1, 0.1), (1000,)),
    Case((0.4, 0.3, 0.2, 0.1), (100, 1000, 5000, 20_000)),
    Case((0.2, 0.2, 0.2), (1000,), limit=0.3),
    Case((0.125,) * 8, (200, 1000, 5000, 20_000)),
)


def run() -> list[bool]:
    """Three lines a case, then what has no case of its own: waits, and jobs that never queue."""
    results = []
    for case in CASES:
        with Node() as node:
            results += _case(node, case)
    with Node() as node:
        results += _waits(node)
    with Node() as node:
        results.append(_synchronous(node))
    results.append(_latency())
    return results


def _inflight(kernel_us: int) -> str:
    """About 30 ms of them, and never fewer than four."""
    return str(min(1024, max(4, 30_000 // kernel_us)))


def _start(node: Node, case: Case) -> None:
    for i, request in enumerate(case.requests):
        kernel_us = case.kernels_us[i % len(case.kernels_us)]
        options = ("--kernel-us", str(kernel_us), "--inflight", _inflight(kernel_us))
        node.start(f"job-{i}", request, *options, limit=case.limit)
    node.wait_until_busy(*case.targets)


def _case(node: Node, case: Case) -> list[bool]:
    _start(node, case)
    time.sleep(_SETTLE_S)
    measured = node.shares(_WINDOW_S)
    target = case.targets
    worst = max(abs(measured[job] - target[job]) for job in target)
    total, wanted = sum(measured.values()), _TOTAL_GOAL * sum(target.values())
    fairness = jain(measured, target)
    rounded = {job: round(share, 4) for job, share in measured.items()}
    return [
        line(
            f"{case.title}: worst share error over 10 s, fraction of the GPU",
            f"<= {_ERROR_GOAL}",
            worst,
            met=worst <= _ERROR_GOAL,
            measured=rounded,
            target=target,
        ),
        line(
            f"{case.title}: Jain's index of share / target",
            f">= {_JAIN_GOAL}",
            fairness,
            met=fairness >= _JAIN_GOAL,
        ),
        line(
            f"{case.title}: GPU in use, fraction",
            f">= {wanted:.3f}",
            total,
            met=total >= wanted,
        ),
    ]


def jain(measured: Mapping[str, float], target: Mapping[str, float]) -> float:
    """Jain's fairness index of what each got of what it should have: 1 when all alike."""
    ratios = [measured[job] / target[job] for job in target]
    return sum(ratios) ** 2 / (len(ratios) * sum(ratio * ratio for ratio in ratios))


def _waits(node: Node) -> list[bool]:
    """A newcomer among seven jobs that always have work, and the longest wait of any of them."""
    kernel_us = 5000
    busy = Case((0.12,) * 7, (kernel_us,))
    _start(node, busy)
    time.sleep(_SETTLE_S)
    first_waits = []
    for attempt in range(5):
        name = f"newcomer-{attempt}"
        node.start(name, 0.1, "--steps", "1", "--kernel-us", str(kernel_us)).process.wait()
        first_waits.append(node.views()[name]["longestWaitNs"] / 1e6)
        node.end(name)
    time.sleep(_WINDOW_S)
    longest = max(view["longestWaitNs"] for view in node.views().values()) / 1e6
    worst = max(first_waits)
    goal = _FIRST_WAIT_GOAL_MS + kernel_us / 1000
    return [
        line(
            "a newcomer's wait for its first turn among 7 jobs, ms, worst of 5",
            f"<= {goal:g}",
            worst,
            met=worst <= goal,
            each=[round(wait, 1) for wait in first_waits],
        ),
        line(
            "the longest wait of any of 7 jobs, ms",
            f"<= {_LONGEST_WAIT_GOAL_MS:g}",
            longest,
            met=longest <= _LONGEST_WAIT_GOAL_MS,
        ),
    ]


def _synchronous(node: Node) -> bool:
    """Jobs that wait for each kernel leave gaps, the wider the busier the machine: no goal."""
    requests = {"a": 0.6, "b": 0.4}
    for name, request in requests.items():
        node.start(name, request, "--kernel-us", "1000", "--sync")
    node.wait_until_busy(*requests)
    time.sleep(_SETTLE_S)
    measured = node.shares(_WINDOW_S)
    return line(
        "2 jobs 0.6/0.4 that wait for each kernel of 1 ms: GPU in use, fraction",
        "reported, no goal",
        sum(measured.values()),
        met=True,
        measured={job: round(share, 4) for job, share in measured.items()},
    )


def _latency() -> bool:
    """An inference server that has the GPU to itself, and beside a job that always has work."""
    server = ("--rate", "50", "--kernel-us", "2000", "--seconds", str(_WINDOW_S))
    with Node() as node:
        alone = node.start("server", 0.3, *server).finished()["latency_ms"]
    with Node() as node:
        node.start("trainer", 0.7, "--kernel-us", "1000", "--inflight", "30")
        node.wait_until_busy("trainer")
        beside = node.start("server", 0.3, *server).finished()["latency_ms"]
    return line(
        "a server, .3, 50 requests/s of 2 ms, beside a job that always has work: p99 latency, ms",
        "reported, no goal",
        beside["p99"],
        met=True,
        beside=beside,
        alone=alone,
    )


def _duration(microseconds: int) -> str:
    return f"{microseconds} us" if microseconds < 1000 else f"{microseconds // 1000} ms"


if __name__ == "__main__":
    run()
