"""Keeps the keys of unschedulable requesters, oldest first.

They are queued again by what may let them in, and now and then without a cause. That costs one
decision each, and no request unless the outcome differs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, Protocol, TypeVar


class Comparable(Protocol):
    """A hashable key with an order."""

    def __lt__(self, other: Any, /) -> bool:
        """Whether it comes before another key of the same age."""
        ...


K = TypeVar("K", bound=Comparable)


class _Entry(NamedTuple):
    """When the object was created, and whether it waits for vGPUs on which it has shares."""

    created: str
    blocked: bool


class UnschedulableQueue(Generic[K]):
    """The keys of the requesters that did not fit, or whose vGPUs are not ready."""

    def __init__(self) -> None:
        self._entries: dict[K, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, key: K, created: str, *, blocked: bool = False) -> None:
        """Add a key.

        Args:
            key: of the requester.
            created: the creation time of its object as RFC 3339 in UTC.
            blocked: whether it has its shares, and their vGPUs are not ready.
        """
        self._entries[key] = _Entry(created, blocked)

    def discard(self, key: K) -> None:
        """Remove a key, if it is there."""
        self._entries.pop(key, None)

    @contextmanager
    def retrying(self, key: K) -> Iterator[None]:
        """Remove a key at the end, unless it was added again.

        It stays until then, so what lets it in meanwhile queues it.
        """
        before = self._entries.get(key)
        try:
            yield
        finally:
            if before is not None and self._entries.get(key) is before:
                del self._entries[key]

    def is_blocked(self, key: K) -> bool:
        """Whether a key is there, and waits for vGPUs on which it has shares."""
        entry = self._entries.get(key)
        return entry is not None and entry.blocked

    def oldest(self) -> str:
        """The earliest creation time, as given to :meth:`add`; "" if there is no key."""
        return min((entry.created for entry in self._entries.values()), default="")

    def oldest_first(self) -> tuple[K, ...]:
        """All keys, in the order in which they are retried."""
        return tuple(sorted(self._entries, key=lambda key: (self._entries[key].created, key)))
