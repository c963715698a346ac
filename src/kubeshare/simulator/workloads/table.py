"""CSV files of jobs: header, rows and errors that name their line.

A row is a line: a quoted field ends in its line, so that an unmatched quote spoils no other one.
"""

import csv
import math
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from kubeshare.core.errors import InvalidValueError
from kubeshare.simulator.errors import SimulationError

Row = TypeVar("Row")
Fields = Mapping[str, str]
"""Column → its text, stripped; "" where the row has none."""


MAX_LINE: Final = 1 << 20
"""The most bytes of a line."""


class Place(NamedTuple):
    """Where a row is: the number of its line, and where it begins in the file."""

    line: int
    offset: int


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """The columns of a kind of file: those that it must have, and others that it may have."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()


class Table:
    """A CSV file.

    Args:
        path: the file.
        columns: its columns.
        lenient: whether invalid rows are skipped and counted, instead of ending the reading.
        header: whether the first line has their names; else the rows have the required ones.

    Attributes:
        skipped: how many rows were skipped in the last reading.
        count: how many rows were valid in the last reading.
        at: the place of the row that was read last.
    """

    def __init__(
        self, path: Path, columns: Columns, *, lenient: bool = False, header: bool = True
    ) -> None:
        self._path, self._columns, self._lenient = path, columns, lenient
        self._has_header = header
        self.skipped = 0
        self.count = 0
        self.at = Place(0, 0)

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
        header: Sequence[str] = () if self._has_header else self._columns.required
        for line, offset, content in read_lines(self._path):
            if not header:
                header = self._header(content)
                continue
            self.at = Place(line, offset)
            yield from self._parsed(line, header, content, parse)
        if not header:
            self._check_header([])

    def read_at(
        self, places: Iterable["Place"], parse: Callable[[int, Fields], Row]
    ) -> Iterator[Row]:
        """Read rows of a file without a header in another order.

        Args:
            places: of valid rows.
            parse: as in :meth:`read`.

        Raises:
            SimulationError: a row is invalid: the file was changed.
            OSError: the file cannot be read.
        """
        with self._path.open("rb") as file:
            for line, offset in places:
                file.seek(offset)
                content = file.readline(MAX_LINE)
                yield from self._parsed(line, self._columns.required, content, parse)

    def _parsed(
        self,
        line: int,
        header: Sequence[str],
        content: bytes,
        parse: Callable[[int, Fields], Row],
    ) -> Iterator[Row]:
        try:
            row = _cells(content)
            if not row:
                return
            parsed = parse(line, _fields(header, row))
        except (InvalidValueError, SimulationError, csv.Error, UnicodeDecodeError) as error:
            if not self._lenient:
                raise SimulationError(f"{self._path}:{line}: {error}") from error
            self.skipped += 1
            return
        self.count += 1
        yield parsed

    def _header(self, content: bytes) -> list[str]:
        try:
            header = [name.strip() for name in _cells(content.removeprefix(BOM_UTF8))]
        except (SimulationError, csv.Error, UnicodeDecodeError) as error:
            raise SimulationError(f"{self._path}:1: {error}") from error
        self._check_header(header)
        return header

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


def read_lines(path: Path, most: int = MAX_LINE) -> Iterator[tuple[int, int, bytes]]:
    """Number, offset and content of each line; of one that is too long, its beginning.

    Args:
        path: the file.
        most: the most bytes of a line; one more is returned of a line that is too long.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        offset = 0
        for line in count(1):
            content = file.readline(most + 1)
            if not content:
                return
            yield line, offset, content
            offset += len(content)
            while len(content) > most and not content.endswith(b"\n"):
                content = file.readline(most + 1)
                offset += len(content)


def _cells(content: bytes) -> list[str]:
    if len(content) > MAX_LINE:
        raise SimulationError(f"the line is longer than {MAX_LINE} bytes")
    return next(csv.reader([content.decode()], strict=True), [])


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


def number(row: Fields, column: str, most: float = 1e9) -> float:
    """A number from 0 on; 0 if the field is empty.

    Raises:
        InvalidValueError: it is not one, or more than the most.
    """
    text = row.get(column, "") or "0"
    try:
        value = float(text)
    except ValueError:
        raise InvalidValueError(column, f"{text!r} is not a number") from None
    if not 0 <= value <= most:
        raise InvalidValueError(column, f"{text} is not from 0 to {most:g}")
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
