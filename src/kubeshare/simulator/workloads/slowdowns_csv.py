"""Reads measured slowdowns between kinds of jobs that share a GPU.

What the division of the GPU's time explains of a slowdown is simulated anyway, so only what is
left of it counts.
"""

from pathlib import Path
from typing import Final, NamedTuple

from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import MICROS, parse_share
from kubeshare.simulator.engine.progress import Slowdowns, shares_of, wants_of
from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.workloads.table import Columns, Fields, Table, number

COLUMNS: Final = Columns(
    required=("kind", "need", "request", "beside", "beside_need", "beside_request", "slowdown"),
    optional=("limit", "beside_limit"),
)


class _Measured(NamedTuple):
    """The pair of kinds, and what of the slowdown the shares do not explain."""

    pair: tuple[str, str]
    residue: float


def read_slowdowns(path: Path) -> Slowdowns:
    """The table of a file; ``docs/simulate.md`` has the columns.

    Raises:
        SimulationError: the file is invalid.
        OSError: it cannot be read.
    """
    seen: set[tuple[str, str]] = set()

    def parse(line: int, row: Fields) -> _Measured:
        del line
        measured = _parse(row)
        if measured.pair in seen:
            raise SimulationError(f"{' beside '.join(measured.pair)} occurs twice")
        seen.add(measured.pair)
        return measured

    return dict(Table(path, COLUMNS).read(parse))


def _parse(row: Fields) -> _Measured:
    if not row["kind"] or not row["beside"]:
        raise InvalidValueError("kind, beside", "one is missing")
    slowdown = number(row, "slowdown")
    if not slowdown:
        raise InvalidValueError("slowdown", "it is more than 0")
    own = wants_of(_share(row, "need"), *_asked(row, ""))
    other = wants_of(_share(row, "beside_need"), *_asked(row, "beside_"))
    if own[0] + other[0] > MICROS:
        raise SimulationError("the two ask for more than a GPU, so they do not share one")
    alone = shares_of((own,))[0]
    explained = alone / shares_of((own, other))[0]
    return _Measured((row["kind"], row["beside"]), max(1.0, slowdown / explained))


def _asked(row: Fields, prefix: str) -> tuple[int, int]:
    request = _share(row, f"{prefix}request")
    limit = parse_share(row.get(f"{prefix}limit") or "1", f"{prefix}limit")
    if request > limit:
        raise InvalidValueError(f"{prefix}request", f"is more than the {prefix}limit")
    return request, limit


def _share(row: Fields, column: str) -> int:
    share = parse_share(row[column], column)
    if not share:
        raise InvalidValueError(column, "it is more than 0")
    return share
