"""How long a node's reboot may take until its pods run again."""

from typing import Final

REBOOT_SECONDS: Final = 60.0
"""Seconds from the reboot of a node until its shares are asked for again; about 26 on an idle
machine."""
STARTS_OF_A_REBOOT: Final = 20
"""The same on a machine that is busy, as a multiple of what a start took on it before."""


def reboot_bound(start_seconds: float) -> float:
    """The most seconds that a reboot may take where a start has just taken so many."""
    return max(REBOOT_SECONDS, STARTS_OF_A_REBOOT * start_seconds)
