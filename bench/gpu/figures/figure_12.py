"""Figure 12: pairs of jobs on one GPU, and how much each slows the other."""

from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

from bench.gpu.clients import Bench, Share
from bench.gpu.experiment import Experiment, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_KERNEL_US = 2000
_RATES = {"A": 150, "B": 375}
"""Requests a second of a kernel each: A needs .3 of the GPU, B .75."""

_REQUEST = ".45"
"""What both ask for: A more than it needs, B less."""


def run(bench: Bench) -> Result:
    """Throughput of each job beside another, over its own when it has the GPU to itself."""
    alone = {name: _rates(bench, (name,))[0] for name in _RATES}
    pairs = []
    for pair in combinations_with_replacement(_RATES, 2):
        rates = _rates(bench, pair)
        slowdown = [
            alone[name] / rate if rate else 0.0 for name, rate in zip(pair, rates, strict=True)
        ]
        pairs.append({"pair": pair, "rates": rates, "slowdown": slowdown})
    return {"kernel_us": _KERNEL_US, "alone_per_s": alone, "pairs": pairs}


def _rates(bench: Bench, names: tuple[str, ...]) -> list[float]:
    with bench.clients() as clients:
        for place, name in enumerate(names):
            rate = ("--kernel-us", str(_KERNEL_US), "--rate", str(_RATES[name]))
            clients.start(f"{name}-{place}", Share(_REQUEST), *rate, "--seconds", "600")
        seen = clients.watch(bench.seconds(2), bench.seconds(8))
        return [seen.rates[f"{name}-{place}"] for place, name in enumerate(names)]


def draw(axes: "Axes", result: Result) -> None:
    """Two bars for each pair."""
    pairs = result["pairs"]
    for place in (0, 1):
        at = [index + (place - 0.5) * 0.3 for index in range(len(pairs))]
        axes.bar(at, [pair["slowdown"][place] for pair in pairs], 0.28, label=f"job {place + 1}")
    axes.axhline(1, color="k", linewidth=0.8)
    axes.set(xticks=range(len(pairs)), ylabel="times slower than alone")
    axes.set_xticklabels([" + ".join(pair["pair"]) for pair in pairs])
    axes.legend(frameon=False)


FIGURE_12 = Experiment("figure-12", "how much pairs of jobs slow each other", 60, run, draw)
