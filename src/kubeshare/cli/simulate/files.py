"""Tables in files: CSV, or Parquet where the name ends so."""

import csv
import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

_PARQUET: Final = ".parquet"
_TEXT: Final = frozenset({"policy", "job", "node", "gpus"})
_WHOLE: Final = frozenset({"seed"})
"""Columns of text, and of whole numbers; all others are numbers."""


class NoPolarsError(click.ClickException):
    """Polars is not installed."""

    exit_code = 3

    def __init__(self) -> None:
        super().__init__("no polars here, for Parquet: pip install 'kubeshare[simulator]'")


def need_polars(*paths: Path | None) -> None:
    """Check that files can be written, before the work for them.

    Raises:
        NoPolarsError: one is a Parquet file, and polars is not installed.
    """
    if any(path is not None and path.suffix == _PARQUET for path in paths):
        _polars()


def check_parquet_output() -> None:
    """Check that results can be printed as Parquet, before the work for them.

    Raises:
        NoPolarsError: polars is not installed.
        click.UsageError: the standard output is a terminal.
    """
    _polars()
    if sys.stdout.isatty():
        raise click.UsageError("-o parquet is not text: redirect it to a file")


@contextmanager
def table_file(path: Path, *head: str) -> Iterator[Any]:
    """A writer of rows, each of which is in a file at once.

    Rows of a Parquet file are in ``PATH.csv`` until all are there, so memory does not grow with
    them, and an end by force leaves them.

    Raises:
        OSError: the file cannot be written.
    """
    is_parquet = path.suffix == _PARQUET
    written = path.with_name(f"{path.name}.csv") if is_parquet else path
    try:
        with written.open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(head)
            yield writer
    finally:
        if is_parquet:
            _convert(written, path, head)


def as_parquet(head: Sequence[str], rows: Sequence[Sequence[object]]) -> bytes:
    """Rows as the content of a Parquet file.

    Raises:
        NoPolarsError: polars is not installed.
    """
    content = io.BytesIO()
    frame = _polars().DataFrame(rows, schema=list(head), orient="row", infer_schema_length=None)
    frame.write_parquet(content)
    return content.getvalue()


def _convert(source: Path, path: Path, head: Sequence[str]) -> None:
    polars = _polars()
    kinds = {
        name: polars.String if name in _TEXT else polars.Int64 if name in _WHOLE else polars.Float64
        for name in head
    }
    polars.scan_csv(source, schema=kinds).sink_parquet(path)
    source.unlink()


def _polars() -> Any:
    try:
        import polars  # noqa: ICN001, PLC0415 - heavy, and an extra
    except ModuleNotFoundError:
        raise NoPolarsError from None
    return polars
