"""What lasts, of what is seen again and again: pure, the time is an argument.

One look is not enough: what the driver, the kernel and the library say is read one after
the other, and a process may allocate, fork or end in between.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

from kubeshare.node.escapes import Finding, Overheads

LOOKS: Final = 2
"""How many looks in a row have to agree."""

AGAIN_SECONDS: Final = 300.0
"""What lasts is told again after so long."""


class Suspicions:
    """Findings that last.

    Attributes:
        lasting: those of the last look that had been there often enough.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[object, ...], int] = {}  # key → looks in a row
        self._told: dict[tuple[object, ...], float] = {}  # key → when
        self.lasting: tuple[Finding, ...] = ()

    def add(self, findings: Iterable[Finding], now: float) -> list[Finding]:
        """Note a look's findings.

        Args:
            findings: all of them.
            now: seconds.

        Returns:
            those to be told now.
        """
        found = {finding.key: finding for finding in findings}
        self._seen = {key: self._seen.get(key, 0) + 1 for key in found}
        self._told = {key: at for key, at in self._told.items() if key in found}
        self.lasting = tuple(found[key] for key, looks in self._seen.items() if looks >= LOOKS)
        news = [
            finding
            for finding in self.lasting
            if now - self._told.get(finding.key, -AGAIN_SECONDS) >= AGAIN_SECONDS
        ]
        self._told |= dict.fromkeys((finding.key for finding in news), now)
        return news


class Settled:
    """Overheads: less is believed at once, more when looks in a row agree on it."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], deque[int]] = {}

    def add(self, overheads: Mapping[tuple[str, str], int]) -> Overheads:
        """Note a look's overheads; returns those of which enough is known."""
        self._last = {key: self._last.get(key, deque(maxlen=LOOKS)) for key in overheads}
        for key, overhead in overheads.items():
            self._last[key].append(overhead)
        return {
            key: min(looks)
            for key, looks in self._last.items()
            if len(looks) == LOOKS or looks[-1] == 0
        }
