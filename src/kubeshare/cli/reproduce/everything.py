"""``reproduce all``: every figure and table, with a summary."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from kubeshare.cli.reproduce.output import NoMatplotlibError, as_csv, as_json, as_text, draw
from kubeshare.cli.reproduce.provenance import Provenance
from kubeshare.cli.reproduce.summary import Summary, as_page, as_rows, as_table
from kubeshare.cli.simulate.bar import progress_bar
from kubeshare.simulator.figures.catalogue import FIGURES, jobs_of, make
from kubeshare.simulator.figures.figure import Figure, NotReproducedError

_ENDINGS: Final = ("json", "csv", "txt", "png")
"""The files of a figure."""

_SUMMARY: Final = ("summary.json", "summary.csv", "README.md")
"""The files of all."""


def reproduce_all(out: Path, seeds: int, output: str) -> int:
    """Make all, write each when it is made, and print the summary.

    Args:
        out: the folder; the results of an earlier run in it are removed, other files stay.
        seeds: how many.
        output: how the summary is printed: text, json or csv.

    Returns:
        1 if a claim fails, 3 if something could not be made, 130 after an interruption.
    """
    out.mkdir(parents=True, exist_ok=True)
    _clear(out)
    summary = Summary(provenance=Provenance.here(seeds))
    _write(summary, out)  # instead of an earlier one, which says that all is there
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


def _clear(out: Path) -> None:
    """Remove the results of an earlier run: beside newer ones, nothing would tell them apart."""
    for name in FIGURES:
        for ending in _ENDINGS:
            (out / f"{name}.{ending}").unlink(missing_ok=True)


def _make(name: str, seeds: int, summary: Summary, out: Path) -> None:
    try:
        jobs = jobs_of(name, seeds, summary.made)
        with progress_bar(jobs, name, FIGURES[name].seconds) as progress:
            figure = make(name, seeds, progress, summary.made)
    except NotReproducedError as error:
        summary.missing[name] = str(error)
        click.echo(f"not made: {error}", err=True)
        return
    summary.made[name] = figure
    _keep(figure, summary.provenance, out)


def _keep(figure: Figure, provenance: Provenance, out: Path) -> None:
    json_, csv_, text, picture = (out / f"{figure.name}.{ending}" for ending in _ENDINGS)
    json_.write_text(as_json(figure, provenance) + "\n")
    csv_.write_text(as_csv(figure) + "\n")
    text.write_text(as_text(figure) + "\n")
    if not figure.lines:
        return  # a table is its own picture
    try:
        draw(figure, picture)
    except NoMatplotlibError as error:
        click.echo(error.format_message(), err=True)


def _write(summary: Summary, out: Path) -> None:
    contents = summary.as_json() + "\n", as_rows(summary) + "\n", as_page(summary, out)
    for name, content in zip(_SUMMARY, contents, strict=True):
        (out / name).write_text(content)
