"""Rows of model quotas, what they cover, and when one is exceeded."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from kubeshare.core.units import format_share

FIELD: Final = "quota"
"""The ``field`` of a decision that a quota prevents."""
GROUP_FIELD: Final = "group"
"""The ``field`` of a decision that the model of the group prevents."""
FIELDS: Final = (FIELD, GROUP_FIELD)
"""The fields of decisions that quotas make."""


class Place(NamedTuple):
    """Where shares are, as quotas tell them apart.

    ``pool`` and ``label`` are those of the node: ``label`` is the name that the node's label
    gives to the model of all its GPUs, "" for none. ``model`` is the GPU's own. ``group`` is that
    of the demand.
    """

    pool: str = ""
    label: str = ""
    model: str = ""
    group: str = ""


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """One row: how much of some GPUs a namespace, or a group in it, may hold.

    Attributes:
        namespace: the namespace that it limits.
        pools: the pools of the nodes; empty is any.
        model: the model of the GPUs, by their own name or by that of the node; "" is any.
        group: the group of the demands; "" is the namespace as a whole.
        micros: millionths of a GPU, in all.
        name: what sets the row, for messages; "" for the namespace alone.
    """

    namespace: str
    pools: frozenset[str] = frozenset()
    model: str = ""
    group: str = ""
    micros: int = 0
    name: str = ""

    def covers(self, place: Place) -> bool:
        """Whether the row limits what is held there."""
        return (
            (not self.pools or place.pool in self.pools)
            and self.model in ("", place.model, place.label)
            and self.group in ("", place.group)
        )

    def counts(self, charged: Place) -> bool:
        """Whether a charge counts: of the group that the row is for, or of the namespace."""
        return charged.group == self.group and self.covers(charged)

    def __str__(self) -> str:
        gpus = f"{self.model} GPUs" if self.model else "GPUs"
        pools = ", ".join(sorted(self.pools))
        where = f" in pool{'s' if len(self.pools) > 1 else ''} {pools}" if pools else ""
        return f"{gpus}{where}{f' for group {self.group}' if self.group else ''}"


def concerning(rows: Iterable[Quota], group: str) -> list[Quota]:
    """The rows that limit demands of a group: its own, and those of the whole namespace."""
    return [row for row in rows if row.group in ("", group)]


def exceeded(rows: Sequence[Quota], held: Mapping[Place, int], place: Place, micros: int) -> str:
    """The row that more shares at a place would exceed, with numbers; "" if there is none.

    Args:
        rows: those that concern the demand.
        held: the micros that are charged at each place: to the namespace as a whole where the
            place has no group, and to each of its groups.
        place: where the shares would be.
        micros: what they are charged in all.
    """
    for row in rows:
        if not row.covers(place):
            continue
        of = row.name or f"quota of {row.namespace}"
        has = sum(amount for at, amount in held.items() if row.counts(at))
        if has + micros > row.micros:
            amounts = (row.micros, has, micros)
            most, has_text, asked = (format_share(amount) for amount in amounts)
            return f"{of} is {most} {row}: {has_text} held, {asked} asked"
    return ""


def uncovered(rows: Sequence[Quota], place: Place) -> str:
    """Why rows let nothing be held at a place, since none of them covers it; "" if they do.

    The rows of the namespace and those of the group each have to cover it, where there are any.
    """
    for level in ([row for row in rows if not row.group], [row for row in rows if row.group]):
        if level and not any(row.covers(place) for row in level):
            gpus = place.label or place.model or "its"
            where = f" in pool {place.pool}" if place.pool else ""
            whose = f" for group {place.group}" if level[0].group else ""
            return f"no quota of {level[0].namespace}{whose} covers {gpus} GPUs{where}"
    return ""
