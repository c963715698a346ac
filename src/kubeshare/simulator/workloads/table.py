"""CSV files of jobs: header, rows and errors that name their line."""

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from kubeshare.core.errors import InvalidValueError
from kubeshare.simulator.errors import SimulationError

Row = TypeVar("Row")
Fields = Mapping[str, str]
"""Column → its text, stripped; "" where the row has none."""


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a kind of file: those that it must have, and others that it may have."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()


class Table:
    """A CSV file with a header.

    Args:
        path: the file.
        columns: its columns.
        lenient: whether invalid rows are skipped and counted, instead of ending the reading.

    Attributes:
        skipped: the errors of the rows that were skipped in the last reading.
        count: how many rows were valid in the last reading.
    """

    def __init__(self, path: Path, columns: Columns, *, lenient: bool = False) -> None:
        self._path, self._columns, self._lenient = path, columns, lenient
        self.skipped = 0
        self.count = 0

    def read(self, parse: Callable[[int, Fields], Row]) -> Iterator[Row]:
        """Read the rows one by one, so that memory does not grow with the file.

        Args:
            parse: makes something of a row, given its line; raises an
                :class:`InvalidValueError` or :class:`SimulationError` about it.

        Raises:
            SimulationError: the file, or a row where it is not lenient, is invalid.
            OSError: the file cannot be read.
        """
        self.skipped = self.count = 0
        with self._path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            try:
                header = [name.strip() for name in next(reader, [])]
                self._check_header(header)
                for row in reader:
                    if row:
                        yield from self._parsed(reader.line_num, header, row, parse)
            except (csv.Error, UnicodeDecodeError) as error:
                raise SimulationError(f"{self._path}:{reader.line_num + 1}: {error}") from error

    def _parsed(
        self,
        line: int,
        header: Sequence[str],
        row: Sequence[str],
        parse: Callable[[int, Fields], Row],
    ) -> Iterator[Row]:
        try:
            parsed = parse(line, _fields(header, row))
        except (InvalidValueError, SimulationError) as error:
            if not self._lenient:
                raise SimulationError(f"{self._path}:{line}: {error}") from error
            self.skipped += 1
            return
        self.count += 1
        yield parsed

    def _check_header(self, header: Sequence[str]) -> None:
        known = (*self._columns.required, *self._columns.optional)
        for name in header:
            if name not in known:
                raise SimulationError(
                    f"{self._path}:1: column {name!r} is not known; these are: {', '.join(known)}"
                )
        if missing := [name for name in self._columns.required if name not in header]:
            raise SimulationError(f"{self._path}:1: column {missing[0]} is missing")
        if len(set(header)) < len(header):
            raise SimulationError(f"{self._path}:1: a column occurs twice")


def _fields(header: Sequence[str], row: Sequence[str]) -> Fields:
    if len(row) != len(header):
        raise SimulationError(f"{len(row)} fields, and the header has {len(header)}")
    return dict(zip(header, map(str.strip, row), strict=True))


def seconds(row: Fields, column: str, default: float | None = None) -> float:
    """A time that is not negative.

    Args:
        row: the row.
        column: its column.
        default: of an empty field; None if it may not be empty.

    Raises:
        InvalidValueError: it is not such a number.
    """
    text = row.get(column, "")
    if not text and default is not None:
        return default
    try:
        value = float(text)
    except ValueError:
        raise InvalidValueError(column, f"{text!r} is not a number of seconds") from None
    if not 0 <= value < math.inf:
        raise InvalidValueError(column, f"{text} is not a time from 0")
    return value


def whole_number(row: Fields, column: str, default: int = 0, lowest: int = 0) -> int:
    """A whole number.

    Raises:
        InvalidValueError: it is not one, or less than the lowest.
    """
    text = row.get(column, "")
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        raise InvalidValueError(column, f"{text!r} is not a whole number") from None
    if value < lowest:
        raise InvalidValueError(column, f"{value} is less than {lowest}")
    return value
