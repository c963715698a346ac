"""Formats what commands print: tables, CSV, YAML and colours."""

import csv
import io
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., object])

_CALCULATED: Final = "=+-@"
"""A spreadsheet calculates text that begins so."""


def output_option(*formats: str, name: str = "output") -> Callable[[F], F]:
    """The option ``-o`` of a command; its first format is the default."""
    return click.option(
        *("-o", "--output", name),
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="Format of what is printed.",
    )


def aligned(rows: Sequence[Sequence[str]], words: int | None = None) -> list[str]:
    """Rows with columns of one width, two spaces apart.

    Args:
        rows: of one length, the header first.
        words: so many columns are words, the others numbers; None for all.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [line(row, widths, words) for row in rows]


def line(row: Sequence[str], widths: Sequence[int], words: int | None = None) -> str:
    """One row of a table with columns of these widths; the arguments are those of `aligned`."""
    count = len(row) if words is None else words
    cells = [
        cell.ljust(width) if number < count else cell.rjust(width)
        for number, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def yaml_text(value: object) -> str:
    """Numbers, text, lists and dicts as YAML, without an end of the last line."""
    import yaml  # noqa: PLC0415 - not on the way of the other formats

    return str(yaml.safe_dump(value, sort_keys=False)).removesuffix("\n")


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Rows as CSV, without an end of the last line; None is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([csv_cell(value) for value in row] for row in rows)
    return text.getvalue().removesuffix("\n")


def csv_cell(value: object) -> object:
    """A value of CSV: text that a spreadsheet would calculate is marked as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and len(value) > 1 and value[0] in _CALCULATED and not _number(value):
        return f"'{value}"
    return value


def coloured(text: str, colour: str) -> str:
    """Text in a colour, where people see it and want it (https://no-color.org)."""
    wanted = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return click.style(text, fg=colour) if wanted and os.environ.get("TERM") != "dumb" else text


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
