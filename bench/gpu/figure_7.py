"""Figure 7: what turns of 30 to 160 ms cost a job, by both measures of use."""

from collections.abc import Sequence
from statistics import median

from matplotlib.axes import Axes

from bench.gpu.clients import Bench, Share
from bench.gpu.experiment import Experiment, Result

_QUOTAS_MS = (30, 60, 100, 160)
_KERNELS = ("--kernel-us", "1000", "--inflight", "8", "--seconds", "600")
_PAIRS = 2


def run(bench: Bench, pairs: int = _PAIRS) -> Result:
    """Kernels a second of one job alone, and of two that take turns, over those of none of ours.

    Alone, the lease is extended and nothing is drained; two jobs with a half
    each hand the GPU over at every quota, which is the paper's setting. Bare and
    shared runs alternate.
    """
    points = []
    for quota in _QUOTAS_MS:
        bare, alone, turns = [], [], []
        for _ in range(pairs):
            bare.append(_rate(bench, [None]))
            alone.append(_rate(bench, [Share("1", quota=f"{quota}ms")]))
            turns.append(_rate(bench, [Share(".5", quota=f"{quota}ms")] * 2))
        whole = median(bare)
        points.append(
            {
                "quota_ms": quota,
                "bare_per_s": bare,
                "alone_lost": 1 - median(alone) / whole,
                "turns_lost": 1 - median(turns) / whole,
            }
        )
    return {"points": points}


def run_by_window(bench: Bench) -> Result:
    """The same by the paper's window of 10 s: how use is compared costs no time, once will do."""
    with bench.by_the_papers_window() as place:
        return run(place, 1)


def _rate(bench: Bench, shares: Sequence[Share | None]) -> float:
    with bench.clients() as clients:
        for number, share in enumerate(shares):
            clients.start(f"job-{number}", share, *_KERNELS)
        return sum(clients.watch(bench.seconds(1.5), bench.seconds(3.2)).rates.values())


def draw(axes: Axes, result: Result) -> None:
    """Time lost against the quota."""
    quotas = [point["quota_ms"] for point in result["points"]]
    for key, label in (("turns_lost", "two jobs in turns"), ("alone_lost", "one job alone")):
        axes.plot(quotas, [100 * point[key] for point in result["points"]], "o-", label=label)
    axes.axhline(5, color="k", linestyle=":", label="the paper at 30 ms")
    axes.set(xlabel="quota in ms", ylabel="% of throughput lost")
    axes.legend(frameon=False)


FIGURE_7 = Experiment("figure-7", "what a quota costs", 150, run, draw)
FIGURE_7_WINDOW = Experiment(
    "figure-7-window", "what a quota costs, by the paper's window of 10 s", 80, run_by_window, draw
)
