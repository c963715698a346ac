"""What the holders of a device add up to, one holder more or less at a time."""

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from kubeshare.core.ledger.holder import Holder

NO_LABELS: Final[frozenset[str]] = frozenset()


class Totals(msgspec.Struct, frozen=True, gc=False):
    """What the holders of a device add up to.

    Attributes:
        compute: micros reserved.
        memory_bytes: bytes reserved.
        affinities: the affinity labels that are there.
        anti_affinities: likewise.
        exclusions: likewise, "" where a holder has none.
    """

    compute: int = 0
    memory_bytes: int = 0
    affinities: frozenset[str] = NO_LABELS
    anti_affinities: frozenset[str] = NO_LABELS
    exclusions: frozenset[str] = NO_LABELS

    @classmethod
    def of(cls, holders: "tuple[Holder, ...]") -> "Totals":
        """Added up from nothing."""
        totals = _NOTHING
        for holder in holders:
            totals = totals.plus(holder)
        return totals

    def plus(self, holder: "Holder") -> "Totals":
        """With one holder more."""
        return Totals(
            self.compute + holder.request_micros,
            self.memory_bytes + holder.memory_bytes,
            _plus(self.affinities, holder.affinity) if holder.affinity else self.affinities,
            _plus(self.anti_affinities, holder.anti_affinity)
            if holder.anti_affinity
            else self.anti_affinities,
            _plus(self.exclusions, holder.exclusion),
        )

    def minus(self, holder: "Holder", rest: "tuple[Holder, ...]") -> "Totals":
        """Without a holder; `rest` are the others, by whom a label of its may stay."""
        if not rest:
            return _NOTHING
        affinities, anti_affinities = self.affinities, self.anti_affinities
        exclusions = self.exclusions
        label = holder.affinity
        if label and all(other.affinity != label for other in rest):
            affinities = _minus(affinities, label)
        label = holder.anti_affinity
        if label and all(other.anti_affinity != label for other in rest):
            anti_affinities = _minus(anti_affinities, label)
        label = holder.exclusion
        if len(exclusions) > 1 and all(other.exclusion != label for other in rest):
            exclusions = _minus(exclusions, label)
        return Totals(
            self.compute - holder.request_micros,
            self.memory_bytes - holder.memory_bytes,
            affinities,
            anti_affinities,
            exclusions,
        )


_NOTHING: Final = Totals()


def _plus(labels: frozenset[str], label: str) -> frozenset[str]:
    """One set for all devices that carry one label and the same, since most carry one or none."""
    if label in labels:
        return labels
    return labels | {label} if labels else _alone(label)


def _minus(labels: frozenset[str], label: str) -> frozenset[str]:
    return labels - {label} if len(labels) > 1 else NO_LABELS


@lru_cache(maxsize=1024)
def _alone(label: str) -> frozenset[str]:
    return frozenset((label,))
