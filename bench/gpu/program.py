"""The program: measure, write ``results.json`` and a picture for each figure.

Nine minutes may not be enough for all: what is left out for that is named at the end, with the
command that measures it.
"""

import datetime as dt
import json
import sys
import time
from pathlib import Path
from typing import Final

import click

from bench.gpu.chosen_code import chosen_code
from bench.gpu.clients import Bench, NoGpuError, bench, calibrate
from bench.gpu.exits import EXITS
from bench.gpu.experiment import Experiment, LeftOutError, Result
from bench.gpu.figures.figure_5 import FIGURE_5
from bench.gpu.figures.figure_6 import FIGURE_6, FIGURE_6_WINDOW
from bench.gpu.figures.figure_7 import FIGURE_7, FIGURE_7_WINDOW
from bench.gpu.figures.figure_12 import FIGURE_12
from bench.gpu.gpus import describe
from bench.gpu.kernels import KERNELS, TIME_SLICING
from bench.gpu.micro import ENTRY_POINTS, LAUNCH, MARKERS, MEMORY
from bench.gpu.overlap import OVERLAP
from bench.gpu.training import PRODUCTS, TRAINING
from bench.report import machine

EXPERIMENTS = (
    *(ENTRY_POINTS, MARKERS, LAUNCH, MEMORY, OVERLAP),
    *(FIGURE_6, FIGURE_5, KERNELS, TIME_SLICING),
    *(FIGURE_12, FIGURE_7, TRAINING, PRODUCTS),
    *(FIGURE_6_WINDOW, FIGURE_7_WINDOW, EXITS),
)
_NO_TIME: Final = "no time for it"
_NAMES = [experiment.name for experiment in EXPERIMENTS]


@click.command(
    context_settings={"max_content_width": 100},
    epilog="\b\nExample:\n  python -m bench.gpu --out bench/results/h200\n"
    "  python -m bench.gpu --fake V100x1 --only figure-6",
)
@click.option("--fake", metavar="PROFILE", help="Use a fake GPU, for example V100x1.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("gpu-results"),
    show_default=True,
    help="Folder for results.json and the pictures.",
)
@click.option("--only", multiple=True, type=click.Choice(_NAMES), help="Some of the experiments.")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0.1),
    default=9.0,
    show_default=True,
    help="What does not fit in is left out, and said so.",
)
@click.option(
    "--pace",
    type=click.FloatRange(0.05, 1),
    default=1.0,
    show_default=True,
    help="Shortens every measurement: to try the script, not for numbers.",
)
def main(fake: str | None, out: Path, only: tuple[str, ...], minutes: float, pace: float) -> None:
    """Measure what KubeShare does on this machine's first GPU."""
    wanted = [experiment for experiment in EXPERIMENTS if not only or experiment.name in only]
    out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60 * minutes
    try:
        with bench(fake, pace) as place:
            gpu, code = describe(place), chosen_code(place)
            measured = {each.name: _measure(each, place, deadline) for each in wanted}
            work = {"work_before": place.work, "work_after": calibrate(place)}
    except NoGpuError as error:
        click.echo(f"bench.gpu: no GPU answers ({error}); name a fake one: --fake V100x1", err=True)
        sys.exit(3)
    results = {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python -m bench.gpu", *sys.argv[1:]]),
        "machine": {"gpu": gpu, "code": code, "pace": pace} | work | machine(),
        "results": measured,
    }
    (out / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    for experiment in wanted:
        _draw(experiment, measured[experiment.name], out)
    failed = [name for name, result in measured.items() if {"error", "missed"} & result.keys()]
    click.echo(
        f"results and pictures: {out}" + (f"; failed: {', '.join(failed)}" if failed else "")
    )
    if late := [name for name, result in measured.items() if result.get("left_out") == _NO_TIME]:
        rest = [*(("--fake", fake) if fake else ()), *(f"--only {name}" for name in late)]
        click.echo(
            f"no time for {len(late)}: python3 -m bench.gpu {' '.join(rest)} --out OTHER-FOLDER"
        )
    sys.exit(1 if failed else 0)


def _measure(experiment: Experiment, place: Bench, deadline: float) -> Result:
    """A result, or why there is none."""
    if time.monotonic() + experiment.seconds * place.pace > deadline:
        click.echo(f"{experiment.name}: left out, {_NO_TIME}", err=True)
        return {"left_out": _NO_TIME}
    click.echo(f"{experiment.name}: {experiment.title} …", err=True)
    begun = time.monotonic()
    try:
        result = judged(experiment, experiment.run(place))
    except LeftOutError as error:
        result = {"left_out": str(error)}
    except (RuntimeError, OSError, KeyError) as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    result["title"] = experiment.title
    result["took_s"] = round(time.monotonic() - begun, 1)
    click.echo(json.dumps({experiment.name: result}))
    return result


def judged(experiment: Experiment, result: Result) -> Result:
    """A result, with what of it misses the experiment's goal."""
    missed = experiment.missed(result) if experiment.missed is not None else ""
    return result | ({"missed": missed} if missed else {})


def _draw(experiment: Experiment, result: Result, out: Path) -> None:
    if experiment.draw is None or "error" in result or "left_out" in result:
        return
    try:
        import matplotlib as mpl  # noqa: PLC0415  numbers need no pictures
    except ModuleNotFoundError:
        click.echo(f"{experiment.name}: no picture, matplotlib is not installed", err=True)
        return
    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(figsize=(7, 4))
    axes.set_title(experiment.title)
    experiment.draw(axes, result)
    figure.tight_layout()
    figure.savefig(out / f"{experiment.name}.png", dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()
