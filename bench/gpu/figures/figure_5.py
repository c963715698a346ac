"""Figure 5: how much of a GPU an inference server uses, by the rate of its requests."""

from itertools import pairwise
from typing import TYPE_CHECKING

from bench.gpu.clients import Bench, Share
from bench.gpu.experiment import Experiment, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_KERNEL_US = 10_000
_RATES = (10, 20, 40, 60, 80)


def run(bench: Bench) -> Result:
    """A request is a kernel of 10 ms, so that `rate` requests a second need rate/100 of the GPU.

    The server has a limit, though a high one: alone and without any it is
    charged for its pauses too, within the first quota of a turn, which costs no one else.
    """
    points = []
    for rate in _RATES:
        with bench.clients() as clients:
            seconds = bench.seconds(6)
            server = clients.start(
                "server",
                Share(".9", ".95"),
                *("--kernel-us", str(_KERNEL_US), "--rate", str(rate)),
                *("--seconds", "600"),
            )
            seen = clients.watch(1, seconds)
            latency = server.finish()["latency_ms"]
        needed = rate * _KERNEL_US / 1e6
        points.append(
            {"rate": rate, "needed": needed, "used": seen.charged["server"], "latency_ms": latency}
        )
    rises = all(one["used"] < next_["used"] for one, next_ in pairwise(points))
    return {"kernel_us": _KERNEL_US, "points": points, "rises_with_rate": rises}


def draw(axes: "Axes", result: Result) -> None:
    """Used against needed."""
    rates = [point["rate"] for point in result["points"]]
    axes.plot(rates, [point["used"] for point in result["points"]], "o-", label="used")
    axes.plot(rates, [point["needed"] for point in result["points"]], "k--", label="needed")
    axes.set(xlabel="requests a second", ylabel="fraction of the GPU", ylim=(0, 1))
    axes.legend(frameon=False)


FIGURE_5 = Experiment("figure-5", "usage against request rate", 55, run, draw)
