"""Figure 7: what quotas of 30 to 160 ms cost, and how steady they keep shares."""

import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import pstdev
from typing import TYPE_CHECKING

from bench.gpu.clients import Bench, Share
from bench.gpu.experiment import Experiment, Result
from bench.node import machine
from bench.tokens.forced_drain import drained_rate
from kubeshare import fakegpu

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_QUOTAS_MS = (30, 60, 100, 160)
_KERNELS = ("--kernel-us", "1000", "--inflight", "8", "--seconds", "600")
_PAIRS = 2
_SPANS = 16
_SPAN_S = 0.5
_LABELS = {
    "drained_lost": "one job, drained each quota",
    "turns_lost": "two jobs in turns",
    "alone_lost": "one job alone",
}
_DRAINED = ("--kernel-us", "1000", "--inflight", "32", "--seconds", "5")


def run(bench: Bench, pairs: int = _PAIRS) -> Result:
    """Kernels a second by quota, over those of a job with nothing of ours between.

    Of one job that is drained at each quota, as the paper's is (on a fake GPU); of one alone,
    whose lease is extended; and of two with a half each, which hand the GPU over. Bare and shared
    runs alternate, and the best of each count: what else the machine does only takes time.
    """
    rates = {quota: _rates(bench, quota, pairs) for quota in _QUOTAS_MS}
    whole = max(max(each["bare"]) for each in rates.values())
    points: list[Result] = []
    for quota, measured in rates.items():
        lost = {f"{name}_lost": 1 - max(each) / whole for name, each in measured.items() if each}
        del lost["bare_lost"]
        points.append({"quota_ms": quota, "bare_per_s": measured["bare"]} | lost)
        if bench.profile is not None:
            halves = [Share(".5", quota=f"{quota}ms")] * 2
            points[-1]["share_deviation"] = _share_deviation(bench, halves)
    return {"points": points}


def _rates(bench: Bench, quota: int, pairs: int) -> dict[str, list[float]]:
    """Kernels a second with a quota, by setting."""
    rates: dict[str, list[float]] = {"bare": [], "alone": [], "turns": [], "drained": []}
    for _ in range(pairs):
        rates["bare"].append(_rate(bench, [None]))
        rates["alone"].append(_rate(bench, [Share("1", quota=f"{quota}ms")]))
        rates["turns"].append(_rate(bench, [Share(".5", quota=f"{quota}ms")] * 2))
        if bench.profile is not None:
            rates["drained"].append(drained_rate(machine.burn(*_DRAINED), quota / 1000))
    return rates


def run_by_window(bench: Bench) -> Result:
    """The same by the paper's window of 10 s: how use is compared costs no time, once will do."""
    with bench.by_the_papers_window() as place:
        return run(place, 1)


def _rate(bench: Bench, shares: Sequence[Share | None]) -> float:
    with bench.clients() as clients:
        for number, share in enumerate(shares):
            clients.start(f"job-{number}", share, *_KERNELS)
        return sum(clients.watch(bench.seconds(1.5), bench.seconds(3.2)).rates.values())


def _share_deviation(bench: Bench, given: Sequence[Share]) -> float:
    """How much the share of one of two jobs varies, by the fake GPU's own log."""
    state = Path(bench.environment["KUBESHARE_RUN"]) / f"fakegpu-{bench.profile}"
    with bench.clients() as clients:
        jobs = [
            clients.start(f"job-{number}", share, *_KERNELS) for number, share in enumerate(given)
        ]
        clients.watch(bench.seconds(1.5), 0.1)
        seen = []
        for _ in range(_SPANS + 1):
            busy = {one.pid: one.busy_ns for one in fakegpu.stat(state).gpus[0].processes}
            seen.append([busy[job.pid] for job in jobs])
            time.sleep(_SPAN_S)
    shares: list[float] = []
    for (one, other), (later_one, later_other) in pairwise(seen):
        first, second = later_one - one, later_other - other
        shares.append(first / (first + second))
    return pstdev(shares)


def draw(axes: "Axes", result: Result) -> None:
    """Time lost against the quota."""
    quotas = [point["quota_ms"] for point in result["points"]]
    for key, label in _LABELS.items():
        if all(key in point for point in result["points"]):
            axes.plot(quotas, [100 * point[key] for point in result["points"]], "o-", label=label)
    axes.axhline(5, color="k", linestyle=":", label="the paper at 30 ms")
    axes.set(xlabel="quota in ms", ylabel="% of throughput lost")
    axes.legend(frameon=False)


FIGURE_7 = Experiment("figure-7", "what a quota costs", 240, run, draw)
FIGURE_7_WINDOW = Experiment(
    "figure-7-window", "what a quota costs, by the paper's window of 10 s", 130, run_by_window, draw
)
