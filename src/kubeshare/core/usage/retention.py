"""Which accounts are removed."""

from collections.abc import Iterable
from typing import TypeVar

K = TypeVar("K")


def to_remove(
    accounts: Iterable[tuple[int, K]], *, before_ns: int, most: int, at_once: int
) -> list[K]:
    """The accounts that are too old, and the oldest of those that are too many.

    Args:
        accounts: until when each is accounted for, in ns since 1970, and what identifies it.
        before_ns: an earlier one is too old.
        most: how many may be kept.
        at_once: how many may be removed now.
    """
    oldest_first = sorted(accounts, key=lambda account: account[0])
    surplus = len(oldest_first) - most
    found = [
        identity
        for number, (end_ns, identity) in enumerate(oldest_first)
        if end_ns < before_ns or number < surplus
    ]
    return found[:at_once]
