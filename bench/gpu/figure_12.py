"""Figure 12: pairs of jobs on one GPU, and how much each slows the other."""

from itertools import combinations_with_replacement

from matplotlib.axes import Axes

from bench.gpu.clients import Bench, Share
from bench.gpu.experiment import Experiment, Result

_JOBS = {
    "light": (".45", "--kernel-us", "2000", "--busy-ms", "40", "--idle-ms", "60"),
    "heavy": (".45", "--kernel-us", "2000", "--inflight", "8"),
}
"""Request and `burn`'s options: one that leaves the GPU idle more than half the time, one never."""


def run(bench: Bench) -> Result:
    """Throughput of each job beside another, over its own when it has the GPU to itself."""
    alone = {name: _rates(bench, (name,))[0] for name in _JOBS}
    pairs = []
    for pair in combinations_with_replacement(_JOBS, 2):
        rates = _rates(bench, pair)
        slowdown = [
            alone[name] / rate if rate else 0.0 for name, rate in zip(pair, rates, strict=True)
        ]
        pairs.append({"pair": pair, "rates": rates, "slowdown": slowdown})
    return {"alone_per_s": alone, "pairs": pairs}


def _rates(bench: Bench, names: tuple[str, ...]) -> list[float]:
    with bench.clients() as clients:
        for place, name in enumerate(names):
            request, *options = _JOBS[name]
            clients.start(f"{name}-{place}", Share(request), *options, "--seconds", "600")
        seen = clients.watch(bench.seconds(2), bench.seconds(5))
        return [seen.rates[f"{name}-{place}"] for place, name in enumerate(names)]


def draw(axes: Axes, result: Result) -> None:
    """Two bars for each pair."""
    pairs = result["pairs"]
    for place in (0, 1):
        at = [index + (place - 0.5) * 0.3 for index in range(len(pairs))]
        axes.bar(at, [pair["slowdown"][place] for pair in pairs], 0.28, label=f"job {place + 1}")
    axes.axhline(1, color="k", linewidth=0.8)
    axes.set(xticks=range(len(pairs)), ylabel="times slower than alone")
    axes.set_xticklabels([" + ".join(pair["pair"]) for pair in pairs])
    axes.legend(frameon=False)


FIGURE_12 = Experiment("figure-12", "how much pairs of jobs slow each other", 45, run, draw)
