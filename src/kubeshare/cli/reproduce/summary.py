"""What came of all figures: paper, ours, and why they differ."""

import json
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from kubeshare.cli.output import csv_text
from kubeshare.cli.reproduce.provenance import Provenance
from kubeshare.simulator.figures.figure import Figure

_WIDTHS: Final = (17, 5, 38, 38, 38)
_HEAD: Final = ("figure", "", "paper", "ours", "why they differ")


class Row(NamedTuple):
    """A claim of a figure, or a figure without one."""

    figure: str
    result: str
    paper: str
    ours: str
    why: str


class Summary(msgspec.Struct, kw_only=True):
    """All figures so far.

    Attributes:
        provenance: what they were made from.
        made: name → figure.
        missing: name → why it could not be made.
        partial: whether some were not tried.
        took_s: seconds so far.
    """

    provenance: Provenance
    made: dict[str, Figure] = msgspec.field(default_factory=dict)
    missing: dict[str, str] = msgspec.field(default_factory=dict)
    partial: bool = True
    took_s: float = 0.0

    @property
    def exit_code(self) -> int:
        """As :func:`kubeshare.cli.reproduce.everything.reproduce_all` returns it."""
        if self.partial:
            return 130
        if not all(figure.holds for figure in self.made.values()):
            return 1
        return 3 if self.missing else 0

    def rows(self) -> Iterator[Row]:
        """A row for each claim."""
        for figure in self.made.values():
            for claim in figure.claims:
                result = "holds" if claim.holds else "FAILS"
                ours = f"{claim.here}{figure.measured}"
                yield Row(figure.heading, result, claim.paper, ours, claim.why)
            if not figure.claims:
                yield Row(figure.heading, "-", "no claim", figure.title, "")
        for name, why in self.missing.items():
            yield Row(name, "-", "not made", why, "")

    def as_json(self) -> str:
        """One object, with a row for each claim."""
        rows = [row._asdict() for row in self.rows()]
        about = {"partial": self.partial, "took_s": self.took_s, "missing": self.missing}
        return json.dumps(about | msgspec.to_builtins(self.provenance) | {"claims": rows}, indent=1)


def as_table(summary: Summary) -> str:
    """A table for a terminal, its cells wrapped."""
    lines = [_line(_HEAD)]
    for row in summary.rows():
        cells = [textwrap.wrap(cell, width) for cell, width in zip(row, _WIDTHS, strict=True)]
        height = max(map(len, cells))
        padded = [[*cell, *[""] * (height - len(cell))] for cell in cells]
        lines += [_line(parts) for parts in zip(*padded, strict=True)]
    return "\n".join([*lines, _end(summary)])


def as_rows(summary: Summary) -> str:
    """A CSV row for each claim."""
    return csv_text([Row._fields, *summary.rows()])


def as_page(summary: Summary, folder: Path) -> str:
    """A Markdown page with the table, and each figure with its picture."""
    lines = ["# The papers, reproduced", "", _end(summary), ""]
    lines += ["| figure | | paper | ours | why they differ |", "|---|---|---|---|---|"]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in summary.rows()]
    for name, figure in summary.made.items():
        lines += ["", f"## {figure.heading}: {figure.title}", ""]
        if (folder / f"{name}.png").exists() and figure.lines:
            lines += [f"![{figure.heading}]({name}.png)", ""]
        lines.append(
            f"[Text]({name}.txt), [JSON]({name}.json), [CSV]({name}.csv). Ran: {figure.where}."
        )
    return "\n".join([*lines, ""])


def _line(cells: Sequence[str]) -> str:
    return "  ".join(map(str.ljust, cells, _WIDTHS)).rstrip()


def _end(summary: Summary) -> str:
    claims = [claim for figure in summary.made.values() for claim in figure.claims]
    holds = sum(claim.holds for claim in claims)
    about = summary.provenance
    words = [
        f"{holds} of {len(claims)} claims hold, {len(summary.made)} figures and tables",
        f"{about.seeds} seeds, {about.date}",
        f"commit {about.commit or about.version}, {about.machine}",
        f"{summary.took_s:.0f} s",
    ]
    if summary.missing:
        words.append(f"{len(summary.missing)} could not be made")
    if summary.partial:
        words.append("partial: it was interrupted")
    return "; ".join(words) + "."
