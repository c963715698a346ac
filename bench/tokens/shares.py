"""How well shares are held, by the fake GPU's own log: many kinds of jobs, 10 s windows.

All cases run in turn, again and again, each on a node of its own. ``mixes`` has more of them, once.
"""

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench.node.jobs import Node
from bench.report import NO_GOAL, NO_GOAL_HIGHER, Met, at_least, at_most, median, report
from bench.tokens.mixes import ERROR_GOAL, JAIN_GOAL, Mix, jain, start, worst_error

_SETTLE_S = 5.0
_WINDOW_S = 10.0
_ROUNDS = 3
_TOTAL_GOAL = 0.98
_FIRST_WAIT_GOAL_MS = 150.0
_LONGEST_WAIT_GOAL_MS = 1500.0
_WAITING_KERNEL_US = 5000


class Waits(NamedTuple):
    """How long newcomers waited for their first turn, and the longest wait of any job, in ms."""

    first_ms: list[float]
    longest_ms: float


# Kernels much shorter than these are bounded by how fast this machine launches, not by the GPU.
CASES = (
    Mix((0.5, 0.5), (1000,)),
    Mix((0.3, 0.4, 0.3), (20_000,)),
    Mix((0.8, 0.1, 0.1), (1000,)),
    Mix((0.4, 0.3, 0.2, 0.1), (100, 1000, 5000, 20_000)),
    Mix((0.2, 0.2, 0.2), (1000,), limit=0.3),
    Mix((0.125,) * 8, (200, 1000, 5000, 20_000)),
)


def run() -> list[Met]:
    """Three lines a case, then what has no case of its own: waits, and jobs that never queue."""
    windows: dict[Mix, list[dict[str, float]]] = {case: [] for case in CASES}
    waits, synchronous, alone, beside = [], [], [], []
    for _ in range(_ROUNDS):
        for case in CASES:
            windows[case].append(_window(case))
        waits.append(_waits())
        synchronous.append(_synchronous())
        alone.append(_latency(with_trainer=False))
        beside.append(_latency(with_trainer=True))
    return [
        *(met for case in CASES for met in _report_case(case, windows[case])),
        *_report_waits(waits),
        report(
            "2 jobs 0.6/0.4 that wait for each kernel of 1 ms: GPU in use, fraction",
            NO_GOAL_HIGHER,
            [sum(measured.values()) for measured in synchronous],
            measured=[_rounded(measured) for measured in synchronous],
        ),
        report(
            "a server, .3, 50 requests/s of 2 ms, beside a job that always has work: "
            "p99 latency, ms",
            NO_GOAL,
            [latency["p99"] for latency in beside],
            beside=beside,
            alone=alone,
        ),
    ]


def _window(case: Mix) -> dict[str, float]:
    """The share of each job within a window, on a node of its own."""
    with Node() as node:
        start(node, case)
        time.sleep(_SETTLE_S)
        return node.shares(_WINDOW_S)


def _report_case(case: Mix, windows: Sequence[Mapping[str, float]]) -> list[Met]:
    target = case.targets
    return [
        report(
            f"{case.title}: worst share error over 10 s, fraction of the GPU",
            at_most(ERROR_GOAL),
            [worst_error(measured, target) for measured in windows],
            measured=[_rounded(measured) for measured in windows],
            target=target,
        ),
        report(
            f"{case.title}: Jain's index of share / target",
            at_least(JAIN_GOAL),
            [jain(measured, target) for measured in windows],
        ),
        report(
            f"{case.title}: GPU in use, fraction",
            at_least(round(_TOTAL_GOAL * sum(target.values()), 4)),
            [sum(measured.values()) for measured in windows],
        ),
    ]


def _rounded(measured: Mapping[str, float]) -> dict[str, float]:
    return {job: round(share, 4) for job, share in measured.items()}


def _waits() -> Waits:
    """Newcomers among seven jobs that always have work, and the longest wait of any of them."""
    with Node() as node:
        start(node, Mix((0.12,) * 7, (_WAITING_KERNEL_US,)))
        time.sleep(_SETTLE_S)
        first_waits = []
        for attempt in range(5):
            name = f"newcomer-{attempt}"
            options = ("--steps", "1", "--kernel-us", str(_WAITING_KERNEL_US))
            node.start(name, 0.1, *options).process.wait()
            first_waits.append(node.views()[name]["longestWaitNs"] / 1e6)
            node.end(name)
        time.sleep(_WINDOW_S)
        longest = max(view["longestWaitNs"] for view in node.views().values()) / 1e6
    return Waits(first_waits, longest)


def _report_waits(waits: Sequence[Waits]) -> list[Met]:
    return [
        report(
            "a newcomer's wait for its first turn among 7 jobs, ms, worst of 5",
            at_most(_FIRST_WAIT_GOAL_MS + _WAITING_KERNEL_US / 1000),
            [max(each.first_ms) for each in waits],
            each=[[round(wait, 1) for wait in each.first_ms] for each in waits],
            median_ms=round(median([wait for each in waits for wait in each.first_ms]), 1),
        ),
        report(
            "the longest wait of any of 7 jobs, ms",
            at_most(_LONGEST_WAIT_GOAL_MS),
            [each.longest_ms for each in waits],
        ),
    ]


def _synchronous() -> dict[str, float]:
    """Jobs that wait for each kernel leave gaps, the wider the busier the machine: no goal."""
    requests = {"a": 0.6, "b": 0.4}
    with Node() as node:
        for name, request in requests.items():
            node.start(name, request, "--kernel-us", "1000", "--sync")
        node.wait_until_busy(*requests)
        time.sleep(_SETTLE_S)
        return node.shares(_WINDOW_S)


def _latency(*, with_trainer: bool) -> dict[str, float]:
    """An inference server that has the GPU to itself, or beside a job that always has work."""
    server = ("--rate", "50", "--kernel-us", "2000", "--seconds", str(_WINDOW_S))
    with Node() as node:
        if with_trainer:
            node.start("trainer", 0.7, "--kernel-us", "1000", "--inflight", "30")
            node.wait_until_busy("trainer")
        latency: dict[str, float] = node.start("server", 0.3, *server).finished()["latency_ms"]
        return latency


if __name__ == "__main__":
    run()
