"""Shortens lists of names for messages."""

from collections.abc import Iterable
from typing import Final

NAMED: Final = 10
"""Names in one message; more are counted."""


def shortened(names: Iterable[str]) -> str:
    """The names, sorted; at most ten of them, and how many more there are."""
    ordered = sorted(names)
    more = len(ordered) - NAMED
    return ", ".join(ordered[:NAMED]) + (f" and {more} more" if more > 0 else "")
