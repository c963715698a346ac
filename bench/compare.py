"""Compare two outputs of a bench: a ratio for each number; exit code 1 when one got worse.

    python -m bench.compare OLD NEW

OLD and NEW hold the JSON lines of ``make bench`` (or ``bench-cluster``, ``bench-lab``); other
lines are skipped. A number got worse beyond its spread when its best run in NEW is worse than
its worst run in OLD. Numbers of fewer than three runs have no spread to speak of: their ratio
is printed, and they never fail the comparison.
"""

import argparse
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

MIN_RUNS: Final = 3
"""The fewest runs that make a spread."""

_COLUMNS: Final = ("ratio", "old", "new", "verdict", "number")


class Number(NamedTuple):
    """One number of an output: the median and the spread of its runs."""

    value: float
    low: float
    high: float
    runs: int
    better: str


class Output(NamedTuple):
    """What a file holds: the machine of the run, and its numbers by name."""

    machine: Mapping[str, Any]
    numbers: Mapping[str, Number]


def read(path: Path) -> Output:
    """Read an output; a number that occurs more than once has the runs of all.

    Raises:
        ValueError: the file holds no number.
    """
    machine: dict[str, Any] = {}
    entries: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for text in path.read_text().splitlines():
        entry = _parse(text)
        if "machine" in entry:
            machine = entry["machine"]
        elif "what" in entry and "value" in entry:
            entries[entry["what"]].append(entry)
    if not entries:
        raise ValueError(f"{path} holds no line of a bench")
    return Output(machine, {what: _merge(found) for what, found in entries.items()})


def verdict(old: Number, new: Number) -> str:
    """How a number has changed: ``worse``, ``better``, ``same`` or ``no spread``."""
    if min(old.runs, new.runs) < MIN_RUNS:
        return "no spread"
    rose, fell = new.low > old.high, new.high < old.low
    if not rose and not fell:
        return "same"
    return "worse" if rose == (new.better == "lower") else "better"


def table(old: Mapping[str, Number], new: Mapping[str, Number]) -> list[tuple[str, ...]]:
    """A row for each number of either output, in the order of the new one."""
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for what, now in new.items():
        if what not in old:
            rows.append(("", "", _spread(now), "new", what))
            continue
        before = old[what]
        ratio = f"{now.value / before.value:.3f}" if before.value else ""
        rows.append((ratio, _spread(before), _spread(now), verdict(before, now), what))
    gone = [what for what in old if what not in new]
    return [*rows, *(("", _spread(old[what]), "", "gone", what) for what in gone)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 when a number got worse beyond its spread, 2 for an unusable file."""
    parser = argparse.ArgumentParser(prog="bench.compare", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    options = parser.parse_args(arguments)
    try:
        old, new = read(options.old), read(options.new)
    except (OSError, ValueError) as error:
        print(f"bench.compare: {error}", file=sys.stderr)
        return 2
    for name, output in (("old", old), ("new", new)):
        machine = output.machine
        print(f"{name}: commit {machine.get('commit', '?')}, {machine.get('cpu', '?')}")
    if old.machine.get("cpu") != new.machine.get("cpu"):
        print("The processors differ or are unknown: ratios of times say little.")
    rows = table(old.numbers, new.numbers)
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS) - 1)]
    for *cells, what in rows:
        print("  ".join([*map(str.ljust, cells, widths), what]))
    worse = sum(row[3] == "worse" for row in rows)
    print(f"{worse} of {len(rows) - 1} numbers got worse beyond their spread")
    return 1 if worse else 0


def _parse(text: str) -> dict[str, Any]:
    """The object of a line; an empty one where the line is something else."""
    try:
        entry = json.loads(text)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}


def _merge(entries: Sequence[Mapping[str, Any]]) -> Number:
    return Number(
        value=statistics.median([entry["value"] for entry in entries]),
        low=min(entry.get("low", entry["value"]) for entry in entries),
        high=max(entry.get("high", entry["value"]) for entry in entries),
        runs=sum(entry.get("runs", 1) for entry in entries),
        better=entries[-1].get("better", "lower"),
    )


def _spread(number: Number) -> str:
    if number.low == number.high:
        return f"{number.value:g}"
    return f"{number.value:g} [{number.low:g}, {number.high:g}]"


if __name__ == "__main__":
    sys.exit(main())
