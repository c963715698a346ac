"""Remembers for a moment that a gang has no room."""

import asyncio
from typing import Final

from kubeshare.kube.meta import Key

SECONDS: Final = 1.0
"""How long an answer stands: the members of a new gang come within about a second."""
MAX_GANGS: Final = 1024
"""Gangs that are remembered; the oldest answer is dropped first."""


class RecentRefusals:
    """The gangs that were refused within the last second."""

    def __init__(self) -> None:
        self._refused: dict[Key, tuple[float, int]] = {}  # the end, the growths of the ledger
        self._postponed: set[Key] = set()

    def note(self, gang: Key, growths: int) -> None:
        """Remember that a gang has no room.

        Args:
            gang: its namespace and name.
            growths: how often the ledger had grown when it was tried.
        """
        self.forget(gang)
        self._refused[gang] = asyncio.get_running_loop().time() + SECONDS, growths
        if len(self._refused) > MAX_GANGS:
            self.forget(next(iter(self._refused)))

    def seconds_left(self, gang: Key, growths: int) -> float:
        """Seconds for which the answer stands; 0 if there is none, or more room since."""
        end, then = self._refused.get(gang, (0.0, growths))
        left = end - asyncio.get_running_loop().time()
        return max(0.0, left) if then == growths else 0.0

    def postpone(self, gang: Key) -> bool:
        """Note that a member had news while the answer stood; whether it is the first one."""
        first = gang not in self._postponed
        self._postponed.add(gang)
        return first

    def end_postponement(self, gang: Key) -> None:
        """Forget that a member had news."""
        self._postponed.discard(gang)

    def forget(self, gang: Key) -> None:
        """Drop the answer; a gang that had news is still tried again."""
        self._refused.pop(gang, None)
