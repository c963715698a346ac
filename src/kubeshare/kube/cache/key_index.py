"""Lists keys of objects under values, most of which have few keys."""

from collections.abc import Iterable
from typing import Final, TypeAlias

from kubeshare.kube.meta import Key

FEW: Final = 8
"""So many keys are held in a tuple, which is built anew at each change."""

_Keys: TypeAlias = Key | tuple[Key, ...] | dict[Key, None]


class KeyIndex:
    """Value → keys, in the order in which they were added.

    Most values are uids, which one object has, and vGPUs with a few. A dict as an ordered set takes
    230 bytes, so there is one only where there are more than :data:`FEW` keys; a single key is held
    as it is.
    """

    def __init__(self) -> None:
        self._found: dict[str, _Keys] = {}

    def keys(self, value: str) -> tuple[Key, ...]:
        """The keys under a value."""
        found = self._found.get(value, ())
        return (found,) if isinstance(found, Key) else tuple(found)

    def values(self) -> tuple[str, ...]:
        """The values under which there is any key."""
        return tuple(self._found)

    def add(self, key: Key, values: Iterable[str]) -> None:
        """Add a key under some values; one that is there keeps its place."""
        for value in values:
            found = self._found.get(value)
            if isinstance(found, dict):
                found[key] = None
            elif found is None:
                self._found[value] = key
            elif key not in (known := self.keys(value)):
                several = (*known, key)
                self._found[value] = several if len(several) <= FEW else dict.fromkeys(several)

    def remove(self, key: Key, values: Iterable[str]) -> None:
        """Remove a key from some values, where it is there."""
        for value in values:
            found = self._found.get(value)
            if isinstance(found, dict) and len(found) > 1:
                found.pop(key, None)
                continue
            left = tuple(each for each in self.keys(value) if each != key)
            if left:
                self._found[value] = left[0] if len(left) == 1 else left
            else:
                self._found.pop(value, None)
