"""Formats lists of objects."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from kubeshare.cli.get.kinds import KINDS, Fields, Kind, cell
from kubeshare.cli.output import aligned, csv_text, line, yaml_text

PENDING: Final = ("", "Pending")
"""Phases of SharePods about which `kubeshare explain` has something to say."""


class Listed(Struct, frozen=True):
    """The objects of a kind, in the order of their names."""

    kind: Kind
    items: Sequence[Fields]


class Table:
    """Rows under titles; later rows have the same columns.

    Args:
        kind: of the objects.
        wide: whether to show all columns.
        all_namespaces: whether to show the namespaces.
    """

    def __init__(self, kind: Kind, *, wide: bool, all_namespaces: bool) -> None:
        named = {"name": "NAME"}
        if all_namespaces and kind.namespaced:
            named = {"namespace": "NAMESPACE", "name": "NAME"}
        self._columns = {**named, **kind.columns, **(kind.wide if wide else {})}
        self._widths: list[int] = []

    def lines(self, items: Sequence[Fields], now: datetime) -> list[str]:
        """The titles, and a line for each object."""
        rows = [list(self._columns.values()), *(self._row(item, now) for item in items)]
        self._widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return aligned(rows)

    def later(self, item: Fields, now: datetime) -> str:
        """One more line, for an object that has changed."""
        return line(self._row(item, now), self._widths)

    def _row(self, item: Fields, now: datetime) -> list[str]:
        return [cell(key, item[key], now) for key in self._columns]


def as_tables(
    found: Sequence[Listed], *, wide: bool, all_namespaces: bool, now: datetime
) -> Iterator[str]:
    """A table for each kind that has objects, and the next step."""
    shown = [each for each in found if each.items]
    for number, each in enumerate(shown):
        if number:
            yield ""
        table = Table(each.kind, wide=wide, all_namespaces=all_namespaces)
        yield from table.lines(each.items, now)
    if step := next_step(found, all_namespaces=all_namespaces):
        yield from ([""] if shown else [])
        yield step


def next_step(found: Sequence[Listed], *, all_namespaces: bool) -> str:
    """What to do about what is seen; ``""`` if nothing is wrong."""
    if not any(each.items for each in found):
        kinds = ", ".join(f"{each.kind.title}s" for each in found)
        everywhere = all_namespaces or not any(each.kind.namespaced for each in found)
        doctor = "`kubeshare doctor` says what is missing"
        return f"No {kinds}. Next: {doctor if everywhere else '-A shows all namespaces'}."
    waiting = [
        item
        for each in found
        if each.kind is KINDS["sharepods"]
        for item in each.items
        if item["phase"] in PENDING and item["reason"]
    ]
    if not waiting:
        return ""
    first = waiting[0]
    return f"Next: `kubeshare explain {first['name']} -n {first['namespace']}` says why it waits."


def as_json(found: Sequence[Listed]) -> str:
    """One JSON object with all objects."""
    return json.dumps(_as_object(found))


def as_yaml(found: Sequence[Listed]) -> str:
    """The same as YAML."""
    return yaml_text(_as_object(found))


def as_csv(found: Listed) -> str:
    """A line with the names of the fields, and one for each object; lists have spaces between."""
    names = (*found.kind.columns, *found.kind.wide)
    first = ("namespace", "name") if found.kind.namespaced else ("name",)
    rows = [[_plain(item[key]) for key in (*first, *names)] for item in found.items]
    return csv_text([(*first, *names), *rows])


def _plain(value: object) -> object:
    return " ".join(value) if isinstance(value, list) else value


def _as_object(found: Sequence[Listed]) -> Mapping[str, object]:
    return {"items": [dict(item) for each in found for item in each.items]}
