"""Figure 6: three jobs come and go, and each has the share that requests and limits say.

Twice: by the decayed average of use that KubeShare compares, and by the paper's own
window of ten seconds, after which a newcomer has caught up with the others.
"""

from typing import TYPE_CHECKING

from bench.gpu.clients import Bench, Share, Stretch
from bench.gpu.experiment import Experiment, Result
from kubeshare.demo.figure import JOBS, STAGES, Stage, targets

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_KERNEL_US = 1000
_KERNELS = ("--kernel-us", str(_KERNEL_US), "--inflight", "8", "--seconds", "600")
_SETTLE_S = 5.0
_WINDOW_S = 10.0
_SHARES = {job.name: Share(job.request, job.limit, job.memory) for job in JOBS}


def run(bench: Bench, settle_s: float = _SETTLE_S) -> Result:
    """Stage by stage: what was charged, and what the finished kernels stand for."""
    stages = []
    with bench.clients() as clients:
        for stage in STAGES:
            if stage.comes:
                clients.start(stage.comes, _SHARES[stage.comes], *_KERNELS)
            if stage.goes:
                clients.stop(stage.goes)
            seen = clients.watch(bench.seconds(settle_s), bench.seconds(9))
            stages.append(_stage(stage, seen))
    return {"stages": stages, "worst_error": max(stage["error"] for stage in stages)}


def run_by_window(bench: Bench) -> Result:
    """The same, each stage once the window has nothing of the one before."""
    with bench.by_the_papers_window() as place:
        return run(place, _WINDOW_S)


def _stage(stage: Stage, seen: Stretch) -> Result:
    target = targets(stage)
    throughput = seen.throughput(dict.fromkeys(target, _KERNEL_US))
    return {
        "title": stage.title,
        "target": target,
        "charged": seen.charged,
        "throughput": throughput,
        "error": max(abs(throughput[job] - target[job]) for job in target),
        "in_use": sum(throughput.values()),
    }


def draw(axes: "Axes", result: Result) -> None:
    """Bars of throughput beside marks of the target, a group for each stage."""
    stages = result["stages"]
    for place, job in enumerate(_SHARES):
        at = [index + (place - 1) * 0.25 for index in range(len(stages))]
        axes.bar(at, [stage["throughput"].get(job, 0) for stage in stages], 0.22, label=job)
        targets_ = [stage["target"].get(job, 0) for stage in stages]
        axes.plot(at, targets_, "k_", markersize=12)
    axes.set(xticks=range(len(stages)), ylabel="fraction of the GPU")
    axes.set_xticklabels([stage["title"] for stage in stages])
    axes.legend(frameon=False)


FIGURE_6 = Experiment("figure-6", "shares as jobs come and go", 80, run, draw)
FIGURE_6_WINDOW = Experiment(
    "figure-6-window",
    "shares as jobs come and go, by the paper's window of 10 s",
    110,
    run_by_window,
    draw,
)
