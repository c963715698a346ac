"""What waits for room, oldest first.

Nothing waits on a timer: whatever changes in the cluster asks for all of it
again. That costs a decision each and no request, unless the answer is another.
"""

from typing import Any, Generic, Protocol, TypeVar


class Comparable(Protocol):
    """A name: hashable, and in an order with others."""

    def __lt__(self, other: Any, /) -> bool:
        """Its place among others of the same age."""
        ...


K = TypeVar("K", bound=Comparable)


class UnschedulableQueue(Generic[K]):
    """The keys of those for which nothing fitted."""

    def __init__(self) -> None:
        self._since: dict[K, str] = {}

    def __len__(self) -> int:
        return len(self._since)

    def add(self, key: K, created: str) -> None:
        """Nothing fitted for this one.

        Args:
            key: its name.
            created: when it was made, as RFC 3339 in UTC.
        """
        self._since[key] = created

    def discard(self, key: K) -> None:
        """It waits no more."""
        self._since.pop(key, None)

    def oldest_first(self) -> tuple[K, ...]:
        """All of them, in the order in which they are to be tried again."""
        return tuple(sorted(self._since, key=lambda key: (self._since[key], key)))
