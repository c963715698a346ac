"""KubeShare paper, figures 5, 6, 7, 12: one fake GPU.

``bench/gpu`` of a clone runs them, on the real device library and token daemon.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import kubeshare
from kubeshare.simulator.experiment import Progress
from kubeshare.simulator.figures.figure import (
    Claim,
    Figure,
    NotReproducedError,
    Point,
    bars,
    stated,
)
from kubeshare.simulator.measurements import Estimate

CLONE: Final = Path(kubeshare.__file__).parents[2]
PROFILE: Final = "V100x1"

Result = Mapping[str, Any]
"""What an experiment of ``bench/gpu`` writes."""

_RAN: Final = f"a fake GPU ({PROFILE}), with the device library and the token daemon"
_END_SECONDS: Final = 30


def figure_5(seeds: int, progress: Progress) -> Figure:
    """Use of a GPU by the rate of requests."""
    del seeds, progress
    return usage_by_rate(measure("figure-5"))


def figure_6(seeds: int, progress: Progress) -> Figure:
    """Shares of three jobs that come and go."""
    del seeds, progress
    return shares_by_stage(measure("figure-6"))


def figure_7(seeds: int, progress: Progress) -> Figure:
    """What a quota costs."""
    del seeds, progress
    return cost_by_quota(measure("figure-7"))


def figure_12(seeds: int, progress: Progress) -> Figure:
    """How much pairs of jobs slow each other."""
    del seeds, progress
    return slowdown_by_pair(measure("figure-12"))


def usage_by_rate(result: Result) -> Figure:
    """Figure 5 of what was measured."""
    points: Sequence[Result] = result["points"]
    off = max(abs(each["used"] - each["needed"]) for each in points)
    return Figure(
        name="5",
        title="Use of a GPU by an inference server",
        x="requests a second",
        y="% of the GPU",
        lines={
            name: [Point(each["rate"], Estimate(100 * each[key], None)) for each in points]
            for name, key in (("used", "used"), ("requests x 10 ms", "needed"))
        },
        claims=[
            Claim(
                paper="the use of the GPU is roughly proportional to the number of requests",
                here=f"within {100 * off:.1f} % of the GPU of what the requests need",
                holds=result["rises_with_rate"] and off <= 0.05,
            )
        ],
        chosen=["a request is a kernel of 10 ms; requests come by a Poisson process"],
        ran=_RAN,
    )


def shares_by_stage(result: Result) -> Figure:
    """Figure 6 of what was measured."""
    stages: Sequence[Result] = result["stages"]
    alone, two, three, after = (each["charged"] for each in stages[:4])
    names = sorted({job for stage in stages for job in stage["target"]})
    return Figure(
        name="6",
        title="Shares of three jobs that come and go",
        x="stage",
        y="% of the GPU",
        lines={
            f"{job.upper()}{what}": bars([100 * stage[key].get(job, 0) for stage in stages])
            for job in names
            for what, key in (("", "charged"), (" expected", "target"))
        },
        paper={
            "A": stated((0, 60), (1, 50), (2, 40)),
            "B": stated((1, 50), (2, 30)),
            "C": stated((2, 30)),
        },
        ticks=[stage["title"] for stage in stages],
        claims=[
            Claim(
                paper="A alone is held at its limit, 60 %",
                here=f"{100 * alone['a']:.1f} %",
                holds=abs(alone["a"] - 0.6) <= 0.02,
            ),
            Claim(
                paper="A and B get 50 % each",
                here=f"{100 * two['a']:.1f} and {100 * two['b']:.1f} %",
                holds=max(abs(two[job] - 0.5) for job in "ab") <= 0.02,
            ),
            Claim(
                paper="with C, each gets its request: 40, 30 and 30 %",
                here=", ".join(f"{job.upper()} {100 * three[job]:.1f} %" for job in "abc"),
                holds=max(abs(three[job] - stages[2]["target"][job]) for job in "abc") <= 0.02,
                why="the text of the paper exchanges A and B: it says that A requests 30 % and B "
                "40 %, and that each gets its request",
            ),
            Claim(
                paper="what C leaves is divided at once, so that all of the GPU is in use",
                here=f"{100 * after['a']:.1f} and {100 * after['b']:.1f} %",
                holds=min(sum(stage.values()) for stage in (two, three, after)) >= 0.98,
            ),
        ],
        chosen=[
            "requests and limits are the paper's: A .3 and .6, B .4 and .6, C .3 and .5",
            "shares are what the token daemon charged in 9 s of each stage, 5 s after a change",
        ],
        ran=_RAN,
    )


def cost_by_quota(result: Result) -> Figure:
    """Figure 7 of what was measured."""
    points: Sequence[Result] = result["points"]
    lines = {"one job, drained each quota": "drained_lost", "two jobs in turns": "turns_lost"}
    worst = max(each["drained_lost"] for each in points)
    deviations = [each["share_deviation"] for each in points]
    shortest, longest = points[0], points[-1]
    return Figure(
        name="7",
        title="Throughput by the quota of the token",
        x="quota, ms",
        y="throughput, 1 without the library",
        lines={
            name: [Point(each["quota_ms"], Estimate(1 - each[key], None)) for each in points]
            for name, key in lines.items()
        },
        paper={"at least": stated((30, 0.95))},
        claims=[
            Claim(
                paper="the slowdown stays within 5 %, even with a quota of 30 ms",
                here=f"{100 * worst:.1f} % at most for the one job",
                holds=worst <= 0.05,
            ),
            Claim(
                paper="a smaller quota costs more",
                here=f"{100 * shortest['drained_lost']:.2f} % at {shortest['quota_ms']} ms, "
                f"{100 * longest['drained_lost']:.2f} % at {longest['quota_ms']} ms",
                holds=shortest["drained_lost"] >= longest["drained_lost"],
            ),
            Claim(
                paper="shares fluctuate more with a larger quota",
                here=", ".join(
                    f"{100 * deviation:.1f} % at {each['quota_ms']} ms"
                    for deviation, each in zip(deviations, points, strict=True)
                ),
                holds=deviations[-1] > deviations[0],
            ),
        ],
        chosen=[
            "one job that is drained each quota although no other waits: ours extends its lease",
            "the fluctuation is the deviation of a share of 50 % over half seconds",
            "the best of two runs each: what else the machine does only takes time",
        ],
        ran=_RAN,
    )


def slowdown_by_pair(result: Result) -> Figure:
    """Figure 12 of what was measured."""
    pairs = {"+".join(each["pair"]): each["slowdown"] for each in result["pairs"]}
    others = max(max(of) for pair, of in pairs.items() if pair != "B+B")
    both = sum(pairs["B+B"]) / 2
    return Figure(
        name="12",
        title="How much pairs of jobs slow each other",
        x="pair",
        y="times as long as alone",
        lines={f"job {place + 1}": bars([of[place] for of in pairs.values()]) for place in (0, 1)},
        paper={
            "B+B": stated((list(pairs).index("B+B"), 1.5)),
            "others less than": stated(
                *((at, 1.1) for at, pair in enumerate(pairs) if pair != "B+B")
            ),
        },
        ticks=list(pairs),
        claims=[
            Claim(
                paper="two jobs B take 1.5 times as long",
                here=f"{both:.2f} times",
                holds=abs(both - 1.5) <= 0.1,
            ),
            Claim(
                paper="all pairs with a job A: less than 10 % longer",
                here=f"{100 * (others - 1):.1f} % at most",
                holds=others <= 1.1,
            ),
        ],
        chosen=[
            "both ask for 45 %; the requests of A need 30 % of the GPU, those of B 75 %",
            "a job is a number of requests, so its time is that by its requests a second",
        ],
        ran=_RAN,
    )


def measure(experiment: str) -> Result:
    """Run an experiment of ``bench/gpu`` on a fake GPU, in minutes.

    Raises:
        NotReproducedError: this is no clone, or the experiment failed.
    """
    if not (CLONE / "bench" / "gpu").is_dir():
        raise NotReproducedError(
            f"{experiment} needs bench/gpu and a fake GPU: run it in a clone, after `make native`"
        )
    with tempfile.TemporaryDirectory(prefix="kubeshare-") as folder:
        command = [
            *(sys.executable, "-m", "bench.gpu", "--fake", PROFILE),
            *("--only", experiment, "--out", folder),
        ]
        status = _run(command)
        results = Path(folder) / "results.json"
        found = json.loads(results.read_text())["results"][experiment] if results.exists() else {}
    why = found.get("error") or found.get("left_out")
    if status or why or not found:
        words = why or f"exit code {status}"
        raise NotReproducedError(f"{experiment}: {words}: `make native` builds what it needs")
    return dict(found)


def _run(command: Sequence[str]) -> int:
    """Run a command in the clone; an interruption ends it as its own user would."""
    environment = os.environ | {"PYTHONPATH": str(CLONE / "src")}
    # A session of its own: a Ctrl-C reaches it once, from here, and it ends its jobs.
    with subprocess.Popen(  # noqa: S603 - our own program
        command, cwd=CLONE, env=environment, stdout=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            process.wait(_END_SECONDS)
            raise
