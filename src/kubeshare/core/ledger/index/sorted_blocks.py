"""A sorted collection with fast insertion and removal.

It is a list of sorted lists, none longer than twice :data:`BLOCK`: a position is found by two
bisections, and a change moves the entries of one block only.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

BLOCK: Final = 256
"""How many entries a block has after it was split."""

Entry = TypeVar("Entry", bound=tuple[Any, ...])


class SortedBlocks(Generic[Entry]):
    """Distinct entries, sorted.

    Args:
        entries: the initial entries, in any order.
    """

    __slots__ = ("_blocks", "_last")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        ordered = sorted(entries)
        self._blocks = [ordered[at : at + BLOCK] for at in range(0, len(ordered), BLOCK)]
        self._last = [block[-1] for block in self._blocks]

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def add(self, entry: Entry) -> None:
        """Add an entry that is not present."""
        if not self._blocks:
            self._blocks.append([entry])
            self._last.append(entry)
            return
        at = min(bisect_left(self._last, entry), len(self._last) - 1)
        block = self._blocks[at]
        insort(block, entry)
        if len(block) > 2 * BLOCK:
            self._blocks[at : at + 1] = [block[:BLOCK], block[BLOCK:]]
            self._last.insert(at, block[BLOCK - 1])
            at += 1
        self._last[at] = self._blocks[at][-1]

    def remove(self, entry: Entry) -> None:
        """Remove an entry that is present."""
        at = bisect_left(self._last, entry)
        block = self._blocks[at]
        del block[bisect_left(block, entry)]
        if block:
            self._last[at] = block[-1]
        else:
            del self._blocks[at], self._last[at]

    def since(self, start: tuple[Any, ...]) -> Iterator[Entry]:
        """The entries that are not less than `start`, in order."""
        at = bisect_left(self._last, start)
        if at == len(self._blocks):
            return
        block = self._blocks[at]
        yield from block[bisect_left(block, start) :]
        for block in self._blocks[at + 1 :]:
            yield from block
