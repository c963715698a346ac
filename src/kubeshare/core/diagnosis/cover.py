"""The fewest holders that together hold a missing amount."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final, TypeAlias

from kubeshare.core.ledger.holder import Holder

Holders: TypeAlias = tuple[Holder, ...]

EXACT: Final = 20
"""Up to this many holders the search is exact."""

_request = attrgetter("request_micros")
_memory = attrgetter("memory_bytes")


def fewest_that_cover(
    holders: Sequence[Holder], compute: int, memory: int, entries: int, most: int
) -> Holders | None:
    """The fewest holders that together hold this much compute and memory.

    Args:
        holders: the holders of one GPU.
        compute: micros; no condition unless positive.
        memory: bytes; no condition unless positive.
        entries: the least number of holders; no condition unless positive.
        most: the most holders.

    Returns:
        None if no such set exists. Of several such sets it is one that holds little. If both
        amounts are missing and there are more than :data:`EXACT` holders, it may have a few
        holders more than necessary: the exact search would take too long.
    """
    if most < 0 or most < entries:
        return None
    if entries <= 0:
        if compute <= 0 and memory <= 0:
            return ()
        if memory <= 0:
            return _largest(holders, _request, compute, most)
        if compute <= 0:
            return _largest(holders, _memory, memory, most)
        if not (
            _largest(holders, _request, compute, most) and _largest(holders, _memory, memory, most)
        ):
            return None
    search = _greedy if len(holders) > EXACT else _exact
    return search(holders, max(0, compute), max(0, memory), entries, most)


def _largest(
    holders: Sequence[Holder], amount: Callable[[Holder], int], needed: int, most: int
) -> Holders | None:
    """The largest holders until the amount is covered; the last is the smallest that suffices."""
    taken: list[Holder] = []
    for holder in sorted(holders, key=amount, reverse=True)[:most]:
        taken.append(holder)
        needed -= amount(holder)
        if needed <= 0:
            needed += amount(taken.pop())
            rest = [each for each in holders if each not in taken and amount(each) >= needed]
            return (*taken, min(rest, key=lambda each: (amount(each), each.demand)))
    return None


def _greedy(
    holders: Sequence[Holder], compute: int, memory: int, entries: int, most: int
) -> Holders | None:
    """Greedy: each time the holder with the largest fraction of what is still missing."""
    rest = sorted(holders, key=lambda holder: holder.demand)
    taken: list[Holder] = []
    while compute > 0 or memory > 0 or len(taken) < entries:
        if not rest or len(taken) == most:
            return None

        def fraction(holder: Holder, compute: int = compute, memory: int = memory) -> float:
            of_compute = min(1, holder.request_micros / compute) if compute > 0 else 0
            of_memory = min(1, holder.memory_bytes / memory) if memory > 0 else 0
            return of_compute + of_memory

        best = max(rest, key=fraction)
        rest.remove(best)
        taken.append(best)
        compute, memory = compute - best.request_micros, memory - best.memory_bytes
    return tuple(taken)


def _exact(
    holders: Sequence[Holder], compute: int, memory: int, entries: int, most: int
) -> Holders | None:
    """Dynamic programming over the size of the set.

    Sets of each size are built from those of the size before; a set that holds no more of
    either amount than another is dropped, as it can never become better.
    """
    smallest = sorted(
        holders, key=lambda holder: (holder.request_micros, holder.memory_bytes, holder.demand)
    )
    # best[k]: sets of k holders by the amounts they hold, capped at what is needed.
    best: list[dict[tuple[int, int], Holders]] = [{(0, 0): ()}]
    for holder in smallest:
        for size in range(min(len(best), most), 0, -1):
            if len(best) == size:
                best.append({})
            for (held_compute, held_memory), members in best[size - 1].items():
                sums = (
                    min(compute, held_compute + holder.request_micros),
                    min(memory, held_memory + holder.memory_bytes),
                )
                best[size].setdefault(sums, (*members, holder))
            best[size] = _undominated(best[size])
    for size, sets in enumerate(best):
        if size >= entries and (compute, memory) in sets:
            return sets[compute, memory]
    return None


def _undominated(sets: dict[tuple[int, int], Holders]) -> dict[tuple[int, int], Holders]:
    kept: dict[tuple[int, int], Holders] = {}
    most_memory = -1
    for sums in sorted(sets, reverse=True):
        if sums[1] > most_memory:
            most_memory = sums[1]
            kept[sums] = sets[sums]
    return kept
