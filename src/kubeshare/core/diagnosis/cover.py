"""The fewest holders that together have what is missing."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final, TypeAlias

from kubeshare.core.ledger.holder import Holder

Holders: TypeAlias = tuple[Holder, ...]

EXACT: Final = 20
"""Among how many holders the fewest are found by looking at all sets that matter."""

_request = attrgetter("request_micros")
_memory = attrgetter("memory_bytes")


def fewest_that_cover(
    holders: Sequence[Holder], compute: int, memory: int, entries: int, most: int
) -> Holders | None:
    """The fewest holders that have so much compute and memory together, and are so many.

    Args:
        holders: of one GPU.
        compute: micros; not positive asks nothing.
        memory: bytes; not positive asks nothing.
        entries: how many at least; not positive asks nothing.
        most: how many at most.

    Returns:
        None when no such set exists.

    Of several such sets it is a small one. Where both amounts are missing and there are
    more than :data:`EXACT` holders, it may have a few more than it needs: to find the
    fewest then takes too long.
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
    search = _one_by_one if len(holders) > EXACT else _of_both
    return search(holders, max(0, compute), max(0, memory), entries, most)


def _largest(
    holders: Sequence[Holder], amount: Callable[[Holder], int], needed: int, most: int
) -> Holders | None:
    """The largest ones as far as they are needed; the last is as small as will do."""
    taken: list[Holder] = []
    for holder in sorted(holders, key=amount, reverse=True)[:most]:
        taken.append(holder)
        needed -= amount(holder)
        if needed <= 0:
            needed += amount(taken.pop())
            rest = [each for each in holders if each not in taken and amount(each) >= needed]
            return (*taken, min(rest, key=lambda each: (amount(each), each.demand)))
    return None


def _one_by_one(
    holders: Sequence[Holder], compute: int, memory: int, entries: int, most: int
) -> Holders | None:
    """Each time the one that has the largest part of what is still missing."""
    rest = sorted(holders, key=lambda holder: holder.demand)
    taken: list[Holder] = []
    while compute > 0 or memory > 0 or len(taken) < entries:
        if not rest or len(taken) == most:
            return None

        def part(holder: Holder, compute: int = compute, memory: int = memory) -> float:
            of_compute = min(1, holder.request_micros / compute) if compute > 0 else 0
            of_memory = min(1, holder.memory_bytes / memory) if memory > 0 else 0
            return of_compute + of_memory

        best = max(rest, key=part)
        rest.remove(best)
        taken.append(best)
        compute, memory = compute - best.request_micros, memory - best.memory_bytes
    return tuple(taken)


def _of_both(
    holders: Sequence[Holder], compute: int, memory: int, entries: int, most: int
) -> Holders | None:
    """The same where both are missing.

    Sets of each size are built up from those of the size before; of two sets the one that
    has no more of either is dropped, as it can never become better than the other.
    """
    smallest = sorted(
        holders, key=lambda holder: (holder.request_micros, holder.memory_bytes, holder.demand)
    )
    # Sets of k holders by index, with what they have, at most as much as is needed of each.
    best: list[dict[tuple[int, int], Holders]] = [{(0, 0): ()}]
    for holder in smallest:
        for size in range(min(len(best), most), 0, -1):
            if len(best) == size:
                best.append({})
            for (has_compute, has_memory), members in best[size - 1].items():
                sums = (
                    min(compute, has_compute + holder.request_micros),
                    min(memory, has_memory + holder.memory_bytes),
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
