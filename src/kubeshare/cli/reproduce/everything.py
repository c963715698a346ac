"""``reproduce all``: every figure and table, with a summary."""

import time
from collections.abc import Callable
from pathlib import Path

import click

from kubeshare.cli.reproduce.output import NoMatplotlibError, as_csv, as_json, as_text, draw
from kubeshare.cli.reproduce.provenance import Provenance
from kubeshare.cli.reproduce.summary import Summary, as_page, as_rows, as_table
from kubeshare.cli.simulate.bar import progress_bar
from kubeshare.simulator.figures.catalogue import FIGURES, jobs_of, make
from kubeshare.simulator.figures.figure import Figure, NotReproducedError


def reproduce_all(out: Path, seeds: int, output: str) -> int:
    """Make all, write each when it is made, and print the summary.

    Args:
        out: the folder; what is there of an earlier run is overwritten.
        seeds: how many.
        output: how the summary is printed: text, json or csv.

    Returns:
        1 if a claim fails, 3 if something could not be made, 130 after an interruption.
    """
    out.mkdir(parents=True, exist_ok=True)
    summary = Summary(provenance=Provenance.here(seeds))
    begun = time.monotonic()
    try:
        for number, name in enumerate(FIGURES, 1):
            click.echo(f"[{number}/{len(FIGURES)}] {name}", err=True)
            _make(name, seeds, summary, out)
            summary.took_s = round(time.monotonic() - begun, 1)
            _write(summary, out)  # now, so that an end by force leaves it, too
        summary.partial = False
    except KeyboardInterrupt:
        click.echo("interrupted: what was made is kept, and marked partial", err=True)
    _write(summary, out)
    shown: dict[str, Callable[[Summary], str]] = {
        "text": as_table,
        "json": Summary.as_json,
        "csv": as_rows,
    }
    click.echo(shown[output](summary).rstrip())
    if output == "text":
        click.echo(f"Next: {out / 'README.md'} has each figure with its picture.")
    return summary.exit_code


def _make(name: str, seeds: int, summary: Summary, out: Path) -> None:
    try:
        with progress_bar(jobs_of(name, seeds, summary.made)) as progress:
            figure = make(name, seeds, progress, summary.made)
    except NotReproducedError as error:
        summary.missing[name] = str(error)
        click.echo(f"not made: {error}", err=True)
        return
    summary.made[name] = figure
    _keep(figure, summary.provenance, out)


def _keep(figure: Figure, provenance: Provenance, out: Path) -> None:
    (out / f"{figure.name}.json").write_text(as_json(figure, provenance) + "\n")
    (out / f"{figure.name}.csv").write_text(as_csv(figure))
    (out / f"{figure.name}.txt").write_text(as_text(figure) + "\n")
    if not figure.lines:
        return  # a table is its own picture
    try:
        draw(figure, out / f"{figure.name}.png")
    except NoMatplotlibError as error:
        click.echo(error.format_message(), err=True)


def _write(summary: Summary, out: Path) -> None:
    (out / "summary.json").write_text(summary.as_json() + "\n")
    (out / "summary.csv").write_text(as_rows(summary))
    (out / "README.md").write_text(as_page(summary, out))
