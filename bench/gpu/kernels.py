"""Shares, turns and what a turn costs, by how long kernels are; and without KubeShare at all."""

from typing import TYPE_CHECKING

from bench.gpu.clients import Bench, Share
from bench.gpu.experiment import Experiment, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LENGTHS_US = (20, 1_000, 5_000, 20_000, 100_000)
_REQUESTS = {"a": ".5", "b": ".3", "c": ".2"}
_FOR_EVER = ("--seconds", "600")


def run(bench: Bench) -> Result:
    """Three jobs of .5, .3 and .2 with kernels of one length; four and more are in flight."""
    points = []
    for length in _LENGTHS_US:
        inflight = str(min(1024, max(4, 20_000 // length)))
        with bench.clients() as clients:
            for name, request in _REQUESTS.items():
                kernels = ("--kernel-us", str(length), "--inflight", inflight)
                clients.start(name, Share(request), *kernels, *_FOR_EVER)
            seen = clients.watch(bench.seconds(4), bench.seconds(8))
        throughput = seen.throughput(dict.fromkeys(_REQUESTS, length))
        turns = sum(seen.turns.values())
        points.append(
            {
                "kernel_us": length,
                "charged": seen.charged,
                "throughput": throughput,
                "error": max(
                    abs(seen.charged[name] - float(_REQUESTS[name])) for name in _REQUESTS
                ),
                "turns_per_s": turns / seen.seconds,
                "idle_ms_per_turn": _idle_ms(seen.seconds, sum(seen.charged.values()), turns),
            }
        )
    return {"points": points}


def _idle_ms(seconds: float, in_use: float, turns: int) -> float:
    return 1e3 * seconds * max(0.0, 1 - in_use) / max(1, turns)


def draw(axes: "Axes", result: Result) -> None:
    """The error against the length of kernels."""
    lengths = [point["kernel_us"] / 1e3 for point in result["points"]]
    axes.plot(lengths, [100 * point["error"] for point in result["points"]], "o-")
    axes.axhline(2, color="k", linestyle=":")
    axes.set(xscale="log", xlabel="ms a kernel", ylabel="worst share error in points")


KERNELS = Experiment("kernel-length", "share error against kernel length", 75, run, draw)


def slice_time(bench: Bench) -> Result:
    """The same three jobs with the driver's own time slicing: what there is without KubeShare."""
    with bench.clients() as clients:
        for name in _REQUESTS:
            clients.start(name, None, "--kernel-us", "1000", "--inflight", "8", *_FOR_EVER)
        seen = clients.watch(bench.seconds(2), bench.seconds(8))
    return {"asked": _REQUESTS, "kernels_per_s": seen.rates}


TIME_SLICING = Experiment("time-slicing", "three jobs with nothing of ours", 15, slice_time)
