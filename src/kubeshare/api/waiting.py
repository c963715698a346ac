"""SharePods that wait for room, oldest first.

Nothing waits on a timer: whatever changes in the cluster asks for all of them
again. That costs a decision each and no request, unless the answer is another.
"""

from typing import Any

from kubeshare.kube.meta import Key, metadata_of


class Waiting:
    """The keys of the SharePods for which nothing fitted."""

    def __init__(self) -> None:
        self._since: dict[Key, str] = {}  # key -> creationTimestamp

    def __len__(self) -> int:
        return len(self._since)

    def add(self, sharepod: Any) -> None:
        """Nothing fitted for this one."""
        metadata = metadata_of(sharepod)
        self._since[metadata.key] = metadata.creation_timestamp or ""

    def discard(self, key: Key) -> None:
        """It waits no more."""
        self._since.pop(key, None)

    def oldest_first(self) -> tuple[Key, ...]:
        """All of them, in the order in which they are to be tried again."""
        return tuple(sorted(self._since, key=lambda key: (self._since[key], key)))
