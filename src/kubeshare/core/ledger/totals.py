"""Sums and labels of a device's holders, updated incrementally."""

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from kubeshare.core.ledger.holder import Holder

NO_LABELS: Final[frozenset[str]] = frozenset()


class Totals(msgspec.Struct, frozen=True, gc=False):
    """Sums and labels of the holders of a device.

    Attributes:
        request_micros: micros reserved.
        memory_bytes: bytes reserved.
        affinities: the affinity labels of the holders.
        anti_affinities: the anti-affinity labels of the holders.
        exclusions: the exclusion labels of the holders, "" for a holder without one.
    """

    request_micros: int = 0
    memory_bytes: int = 0
    affinities: frozenset[str] = NO_LABELS
    anti_affinities: frozenset[str] = NO_LABELS
    exclusions: frozenset[str] = NO_LABELS

    @classmethod
    def of(cls, holders: "tuple[Holder, ...]") -> "Totals":
        """The totals of these holders."""
        totals = _EMPTY
        for holder in holders:
            totals = totals.plus(holder)
        return totals

    def plus(self, holder: "Holder") -> "Totals":
        """The totals with one more holder."""
        return Totals(
            self.request_micros + holder.request_micros,
            self.memory_bytes + holder.memory_bytes,
            _plus(self.affinities, holder.affinity) if holder.affinity else self.affinities,
            _plus(self.anti_affinities, holder.anti_affinity)
            if holder.anti_affinity
            else self.anti_affinities,
            _plus(self.exclusions, holder.exclusion),
        )

    def minus(self, holder: "Holder", rest: "tuple[Holder, ...]") -> "Totals":
        """The totals without a holder; ``rest`` are the others, which may carry its labels too."""
        if not rest:
            return _EMPTY
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
            self.request_micros - holder.request_micros,
            self.memory_bytes - holder.memory_bytes,
            affinities,
            anti_affinities,
            exclusions,
        )


_EMPTY: Final = Totals()


def _plus(labels: frozenset[str], label: str) -> frozenset[str]:
    """Add a label; devices with the same single label share one set, as most have at most one."""
    if label in labels:
        return labels
    return labels | {label} if labels else _single(label)


def _minus(labels: frozenset[str], label: str) -> frozenset[str]:
    return labels - {label} if len(labels) > 1 else NO_LABELS


@lru_cache(maxsize=1024)
def _single(label: str) -> frozenset[str]:
    return frozenset((label,))
