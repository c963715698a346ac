"""Keeps the keys of unschedulable requesters, oldest first.

Nothing is retried on a timer: whatever changes in the cluster queues all of them again. That
costs one decision each, and no request unless the outcome differs.
"""

from typing import Any, Generic, Protocol, TypeVar


class Comparable(Protocol):
    """A hashable key with an order."""

    def __lt__(self, other: Any, /) -> bool:
        """Whether it comes before another key of the same age."""
        ...


K = TypeVar("K", bound=Comparable)


class UnschedulableQueue(Generic[K]):
    """The keys of the requesters that did not fit."""

    def __init__(self) -> None:
        self._created: dict[K, str] = {}

    def __len__(self) -> int:
        return len(self._created)

    def add(self, key: K, created: str) -> None:
        """Add a key; ``created`` is the creation time of its object as RFC 3339 in UTC."""
        self._created[key] = created

    def discard(self, key: K) -> None:
        """Remove a key, if it is there."""
        self._created.pop(key, None)

    def oldest_first(self) -> tuple[K, ...]:
        """All keys, in the order in which they are retried."""
        return tuple(sorted(self._created, key=lambda key: (self._created[key], key)))
