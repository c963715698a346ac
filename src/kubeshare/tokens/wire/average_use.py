"""The share of a GPU's time that a session used recently.

Not the measure by which tokens are handed out: that one begins with the request, and may be
the paper's.
"""

from collections.abc import Sequence

from kubeshare.core.token.usage import DecayedAverage
from kubeshare.core.units import MICROS
from kubeshare.tokens.wire.protocol import USE_TAU_NS


class AverageUse:
    """The average use of each cell.

    Args:
        charged_ns: what each cell was charged before.
        now: ns.
    """

    def __init__(self, charged_ns: Sequence[int], now: int) -> None:
        self._charged_ns = list(charged_ns)
        self._averages = [DecayedAverage(0.0, now, USE_TAU_NS) for _ in charged_ns]

    def charge(self, cell: int, charged_ns: int, now: int) -> None:
        """Account for `charged_ns`, what the cell was charged in all up to now."""
        self._averages[cell].use(now - (charged_ns - self._charged_ns[cell]), now)
        self._charged_ns[cell] = charged_ns

    def at(self, cell: int, now: int) -> int:
        """The share in micros."""
        return round(min(1.0, self._averages[cell].at(now)) * MICROS)
