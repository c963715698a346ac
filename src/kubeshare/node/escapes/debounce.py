"""Filters findings that last, and limits how often each is reported.

Pure: the time is an argument. One sample is not enough, because driver, kernel and library
are read one after the other, and a process may allocate, fork or end in between.
"""

from collections.abc import Iterable
from typing import Final

from kubeshare.node.escapes.detection import Finding
from kubeshare.tokens.overheads import SAMPLES_REQUIRED

REPEAT_SECONDS: Final = 300.0
"""A finding that lasts is reported again after so long."""


class PersistentFindings:
    """Findings that last.

    Attributes:
        lasting: those of the last sample that were in enough consecutive samples.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[object, ...], int] = {}  # key → consecutive samples
        self._reported: dict[tuple[object, ...], float] = {}  # key → when
        self.lasting: tuple[Finding, ...] = ()

    def add(self, findings: Iterable[Finding], now: float) -> list[Finding]:
        """Add all findings of a sample; ``now`` is in seconds.

        Returns:
            those to report now.
        """
        found = {finding.key: finding for finding in findings}
        self._seen = {key: self._seen.get(key, 0) + 1 for key in found}
        self._reported = {key: at for key, at in self._reported.items() if key in found}
        self.lasting = tuple(
            found[key] for key, samples in self._seen.items() if samples >= SAMPLES_REQUIRED
        )
        due = [
            finding
            for finding in self.lasting
            if now - self._reported.get(finding.key, -REPEAT_SECONDS) >= REPEAT_SECONDS
        ]
        self._reported |= dict.fromkeys((finding.key for finding in due), now)
        return due
