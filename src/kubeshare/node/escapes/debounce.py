"""What lasts, of what is seen again and again: pure, the time is an argument.

One look is not enough: what the driver, the kernel and the library say is read one after
the other, and a process may allocate, fork or end in between.
"""

from collections.abc import Iterable
from typing import Final

from kubeshare.node.escapes.detection import Finding
from kubeshare.tokens.overheads import SAMPLES_REQUIRED

REPEAT_SECONDS: Final = 300.0
"""What lasts is told again after so long."""


class PersistentFindings:
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
        self.lasting = tuple(
            found[key] for key, looks in self._seen.items() if looks >= SAMPLES_REQUIRED
        )
        news = [
            finding
            for finding in self.lasting
            if now - self._told.get(finding.key, -REPEAT_SECONDS) >= REPEAT_SECONDS
        ]
        self._told |= dict.fromkeys((finding.key for finding in news), now)
        return news
