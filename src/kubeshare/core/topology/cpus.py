"""Reads and writes lists of CPUs in the kernel's format, ``0-13,28-41``."""

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Final, TypeAlias

from kubeshare.core.errors import InvalidValueError

Cpus: TypeAlias = frozenset[int]
"""A set of CPUs by their numbers; an SMT sibling is a CPU of its own."""

_RANGE: Final = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
_MAX_LENGTH: Final = 1 << 16
_MAX_CPUS: Final = 1 << 16


def read_cpu_list(text: str, field: str) -> Cpus:
    """Parse a CPU list; empty text is no CPU.

    Raises:
        InvalidValueError: it is no such list; under the name `field`.
    """
    cpus: set[int] = set()
    if len(text) > _MAX_LENGTH:
        raise InvalidValueError(field, f"is longer than {_MAX_LENGTH} characters")
    for item in text.strip().split(",") if text.strip() else ():
        match = _RANGE.fullmatch(item.strip())
        if match is None:
            raise InvalidValueError(field, f'"{item}" is not a CPU such as 3, or several as 0-13')
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last >= _MAX_CPUS:
            raise InvalidValueError(field, f'"{item}" is not within 0-{_MAX_CPUS - 1}')
        cpus.update(range(first, last + 1))
    return frozenset(cpus)


def format_cpu_list(cpus: Iterable[int]) -> str:
    """A set of CPUs as a list, in the shortest form; no CPU is empty text."""
    ranges = []
    # The CPUs of a range all differ from their positions by the same number.
    for _, group in groupby(enumerate(sorted(cpus)), lambda pair: pair[1] - pair[0]):
        run = [cpu for _, cpu in group]
        ranges.append(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]))
    return ",".join(ranges)
