"""A figure as text, JSON, CSV and picture."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import click
import msgspec

from kubeshare.cli.output import aligned, csv_text
from kubeshare.cli.reproduce.provenance import Provenance
from kubeshare.simulator.figures.figure import Figure
from kubeshare.simulator.measurements import Estimate

_FAR: Final = 50
_NO_NUMBER: Final = "the text states no number of it"


class NoMatplotlibError(click.ClickException):
    """Matplotlib is not installed."""

    exit_code = 3

    def __init__(self) -> None:
        super().__init__("no matplotlib here, so no plot: pip install 'kubeshare[sim]'")


def as_text(figure: Figure) -> str:
    """Its points or rows as a table, the claims, and what the paper leaves open."""
    unit = f" ({figure.y})" if figure.y else ""
    lines = [f"{figure.heading}: {figure.title}{unit}"]
    points = list(_rows(figure))
    lines += aligned([[figure.x, *figure.lines], *points], words=0) if points else []
    lines += aligned(figure.table) if len(figure.table) > 1 else []
    lines += [f"In the paper: {_stated(figure)}"] if figure.lines else []
    for claim in figure.claims:
        lines.append(f"{'holds' if claim.holds else 'FAILS'}: {claim.paper}")
        lines.append(f"       here: {claim.here}")
        lines += [f"       why: {claim.why}"] * bool(claim.why)
    lines.append(f"Ran: {figure.where}")
    if figure.chosen:
        lines += ["Chosen here, where the paper is silent:", *(f"  {at}" for at in figure.chosen)]
    return "\n".join(lines)


def as_json(figure: Figure, provenance: Provenance) -> str:
    """One object, with the points of each line, and what it was made from."""
    fields: Mapping[str, object] = msgspec.to_builtins(figure)
    made_from = provenance.quoting(figure.quoted) if figure.quoted else provenance
    return json.dumps({**fields, "holds": figure.holds, **msgspec.to_builtins(made_from)})


def as_csv(figure: Figure) -> str:
    """A row for each point (line, x, mean, half width of the interval), or the table's rows."""
    if figure.table and not figure.lines:
        return csv_text(figure.table)
    rows = [
        [name, _x(figure, point.x), point.y.mean, point.y.half_width]
        for name, points in figure.lines.items()
        for point in points
    ]
    rows += [
        [f"paper: {name}", _x(figure, point.x), point.y.mean, None]
        for name, points in figure.paper.items()
        for point in points
    ]
    return csv_text([["line", "x", "mean", "half_width"], *rows])


def draw(figure: Figure, path: Path) -> None:
    """Draw the lines with their intervals, as bars where x is no number, or the table.

    Beside them are the numbers that the paper states.

    Raises:
        NoMatplotlibError: matplotlib is not installed.
    """
    need_matplotlib()
    from matplotlib.figure import Figure as Drawing  # noqa: PLC0415 - heavy, and an extra

    drawing = Drawing(figsize=(7, 4), layout="constrained")
    axes = drawing.add_subplot()
    axes.set_title(f"{figure.heading}: {figure.title}")
    if not figure.lines:
        axes.axis("off")
        cells = [list(row) for row in figure.table[1:]]
        axes.table(cellText=cells, colLabels=list(figure.table[0]), loc="center")
        drawing.savefig(path, dpi=100)
        return
    for place, (name, points) in enumerate(figure.lines.items()):
        heights = [point.y.mean for point in points]
        widths = [point.y.half_width or 0 for point in points]
        if figure.ticks:
            wide = 0.8 / len(figure.lines)
            at = [point.x + (place + 0.5) * wide - 0.4 for point in points]
            axes.bar(at, heights, wide * 0.95, yerr=widths, label=name)
        else:
            at = [point.x for point in points]
            axes.errorbar(at, heights, yerr=widths, marker="o", capsize=3, label=name)
    for place, (name, points) in enumerate(figure.paper.items()):
        at, heights = [point.x for point in points], [point.y.mean for point in points]
        axes.plot(
            at,
            heights,
            marker="xs^"[place % 3],
            linestyle="none" if figure.ticks else "dotted",
            color="black",
            label=f"paper: {name}",
        )
    if figure.ticks:
        axes.set_xticks(range(len(figure.ticks)), figure.ticks)
    axes.set(xlabel=figure.x if figure.paper else f"{figure.x} ({_NO_NUMBER})", ylabel=figure.y)
    if _apart(figure):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.legend()
    drawing.savefig(path, dpi=100)


def _apart(figure: Figure) -> bool:
    """Whether the paper's numbers are so far from ours that one linear axis hides the lower."""
    ours, theirs = (
        max((point.y.mean for points in of.values() for point in points), default=0)
        for of in (figure.lines, figure.paper)
    )
    return theirs > _FAR * ours > 0


def need_matplotlib() -> None:
    """Check that it can be imported.

    Raises:
        NoMatplotlibError: it is not installed.
    """
    try:
        import matplotlib  # noqa: F401, ICN001, PLC0415 - only whether it is there
    except ModuleNotFoundError:
        raise NoMatplotlibError from None


def _rows(figure: Figure) -> Iterable[list[str]]:
    most = max((point.y.mean for of in figure.lines.values() for point in of), default=0)
    digits = 1 if most >= 10 else 2
    for points in zip(*figure.lines.values(), strict=True):
        yield [_x(figure, points[0].x), *(_cell(point.y, digits) for point in points)]


def _stated(figure: Figure) -> str:
    """The numbers that the paper states, by line."""
    each = (
        f"{name} " + ", ".join(f"{point.y.mean:g} at {_x(figure, point.x)}" for point in points)
        for name, points in figure.paper.items()
    )
    return "; ".join(each) or _NO_NUMBER


def _x(figure: Figure, x: float) -> str:
    return figure.ticks[int(x)] if figure.ticks else f"{x:g}"


def _cell(value: Estimate, digits: int) -> str:
    mean = f"{value.mean:.{digits}f}"
    return mean if value.half_width is None else f"{mean} ±{value.half_width:.{digits}f}"
