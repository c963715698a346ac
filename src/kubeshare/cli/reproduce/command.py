"""``kubeshare reproduce``: runs figures and tables of the papers again."""

from pathlib import Path
from typing import Final

import click

from kubeshare.cli.output import output_option
from kubeshare.cli.reproduce.everything import reproduce_all
from kubeshare.cli.reproduce.output import as_csv, as_json, as_text, draw, need_matplotlib
from kubeshare.cli.reproduce.provenance import Provenance
from kubeshare.cli.simulate.bar import progress_bar
from kubeshare.simulator.figures.catalogue import FIGURES, jobs_of, make
from kubeshare.simulator.figures.figure import Figure

ALL: Final = "all"
_FOLDER: Final = Path("reproduced")


@click.command(
    help=f"""Run NAME, a figure or a table of a paper, and say whether the paper's claims hold.

    Each point is the mean of the seeds, with its 95 % confidence interval. The exit code is 1
    if a claim does not hold. With "all", every result goes to a folder, with its picture.

    NAME is one of {", ".join(FIGURES)}, or all.
    """,
    epilog="\b\nExamples:\n  kubeshare reproduce 9\n"
    "  kubeshare reproduce 8a --plot 8a.png -o json\n"
    "  kubeshare reproduce all --out results",
)
@click.argument("name", type=click.Choice([*FIGURES, ALL]), metavar="NAME")
@click.option("--seeds", type=click.IntRange(1, 1000), default=10, show_default=True, help="Runs.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="PNG file to write, of one figure.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help=f"Folder for the results of all.  [default: {_FOLDER}]",
)
@output_option("text", "json", "csv")
def reproduce(name: str, seeds: int, plot: Path | None, out: Path | None, output: str) -> int:
    """Make and print one figure, or all into a folder; returns the exit code."""
    if name == ALL:
        if plot is not None:
            raise click.UsageError("--plot is of one figure: all draws each into --out")
        return reproduce_all(out or _FOLDER, seeds, output)
    if out is not None:
        raise click.UsageError("--out is of all: --plot and -o write one figure")
    if plot is not None:
        need_matplotlib()
    figure = _make(name, seeds)
    if output == "json":
        click.echo(as_json(figure, Provenance.here(seeds)))
    else:
        click.echo(as_csv(figure) if output == "csv" else as_text(figure))
    if plot is not None:
        draw(figure, plot)
    return 0 if figure.holds else 1


def _make(name: str, seeds: int) -> Figure:
    """Make a figure, and before it those that it summarises, with a bar for each."""
    made: dict[str, Figure] = {}
    for step in (*FIGURES[name].needs, name):
        with progress_bar(jobs_of(step, seeds, made), step, FIGURES[step].seconds) as progress:
            make(step, seeds, progress, made)
    return made[name]
