"""The fewest holders that have what is missing, against trying every set."""

import random
from itertools import combinations

import pytest

from kubeshare.core.diagnosis.cover import EXACT, fewest_that_cover
from kubeshare.core.ledger.holder import Holder


def holders_of(*parts: tuple[int, int]) -> list[Holder]:
    return [
        Holder(demand=f"h{number}", name=f"h{number}", request_micros=request, memory_bytes=memory)
        for number, (request, memory) in enumerate(parts)
    ]


def fewest_by_trial(
    holders: list[Holder], compute: int, memory: int, entries: int, most: int
) -> int | None:
    for size in range(len(holders) + 1):
        for members in combinations(holders, size):
            enough = sum(each.request_micros for each in members) >= compute
            enough = enough and sum(each.memory_bytes for each in members) >= memory
            if enough and size >= entries and size <= most:
                return size
    return None


def test_no_smaller_set_is_overlooked() -> None:
    source = random.Random(4)
    sizes: list[int | None] = []
    for _ in range(3000):
        parts = [(source.randint(0, 5), source.randint(0, 5)) for _ in range(source.randint(0, 7))]
        holders = holders_of(*parts)
        compute, memory = source.randint(-2, 14), source.randint(-2, 14)
        entries, most = source.choice((-3, -1, 0, 0, 1, 2)), source.choice((0, 1, 2, 3, 9, 9))
        found = fewest_that_cover(holders, compute, memory, entries, most)
        size = None if found is None else len(found)
        assert size == fewest_by_trial(holders, compute, memory, entries, most)
        if found is not None:
            assert len(set(found)) == len(found)
            assert sum(each.request_micros for each in found) >= compute
            assert sum(each.memory_bytes for each in found) >= memory
        sizes.append(size)
    assert all(sizes.count(size) > 50 for size in (None, 0, 1, 2, 3, 4))


@pytest.mark.parametrize(
    ("compute", "memory", "expected"),
    [(4, 0, ["h1"]), (0, 4, ["h0"]), (7, 0, ["h2", "h0"]), (4, 4, ["h2"]), (0, 0, [])],
)
def test_of_equal_sets_a_small_one_is_taken(compute: int, memory: int, expected: list[str]) -> None:
    holders = holders_of((1, 4), (4, 1), (6, 6))
    found = fewest_that_cover(holders, compute, memory, 0, 9)
    assert found is not None
    assert [each.demand for each in found] == expected


def test_among_many_holders_hardly_more_are_found_than_are_needed() -> None:
    source = random.Random(8)
    for _ in range(20):
        parts = [(source.randint(1, 15_000), source.randint(1, 15_000)) for _ in range(128)]
        holders = holders_of(*parts)
        found = fewest_that_cover(holders, 100_000, 100_000, 0, 128)
        assert found is not None
        assert len(set(found)) == len(found)
        assert sum(each.request_micros for each in found) >= 100_000
        assert sum(each.memory_bytes for each in found) >= 100_000
        # Nobody has more than 15 000 of either.
        assert 7 <= len(found) <= 10
        assert fewest_that_cover(holders, 100_000, 100_000, 0, 6) is None
        assert fewest_that_cover(holders, 10**9, 1, 0, 128) is None
        many = fewest_that_cover(holders, 1, 1, 30, 128)
        assert many is not None
        assert len(many) == 30


def test_less_than_nobody_is_no_set() -> None:
    assert fewest_that_cover(holders_of((1, 1)), 0, 0, -3, -1) is None


def test_who_has_nothing_counts_where_only_entries_are_asked() -> None:
    found = fewest_that_cover(holders_of((0, 0), (0, 0)), 0, 0, 1, 9)
    assert found is not None
    assert len(found) == 1


def test_of_many_holders_the_smallest_that_has_enough_of_one_thing_is_taken() -> None:
    holders = holders_of(*((size, size) for size in range(EXACT + 5, 0, -1)))
    assert fewest_that_cover(holders, 0, 5, 0, 9) == (holders[-5],)
    assert fewest_that_cover(holders, 5, 0, 0, 9) == (holders[-5],)


NEARLY_ALL, ALL_COMPUTE, ALL_MEMORY, NOTHING = (9, 9), (10, 0), (0, 10), (0, 0)


def test_all_sets_are_looked_at_among_few_and_one_by_one_among_many() -> None:
    few = [NEARLY_ALL, ALL_COMPUTE, ALL_MEMORY] + [NOTHING] * (EXACT - 3)
    pair = fewest_that_cover(holders_of(*few), 10, 10, 0, 9)
    assert pair is not None
    assert [each.demand for each in pair] == ["h2", "h1"]
    three = fewest_that_cover(holders_of(*few, NOTHING), 10, 10, 0, 9)
    assert three is not None
    assert [each.demand for each in three] == ["h0", "h1", "h2"]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        # What is there to the last unit is enough, and one unit less is not.
        ([(5, 5), (5, 5), (5, 5)], ["h0", "h1"]),
        ([(9, 10), (1, 0)], ["h0", "h1"]),
        ([(10, 9), (0, 1)], ["h0", "h1"]),
        ([ALL_COMPUTE, ALL_MEMORY], ["h0", "h1"]),
        ([ALL_MEMORY, ALL_COMPUTE], ["h0", "h1"]),
        # More than is missing is worth no more than what is missing.
        ([(20, 0), NEARLY_ALL, (1, 1)], ["h1", "h2"]),
        ([(0, 20), NEARLY_ALL, (1, 1)], ["h1", "h2"]),
        # The last unit of one thing is worth as much as the last of the other.
        ([(0, 5), NEARLY_ALL, (1, 1)], ["h1", "h2"]),
        ([(5, 0), NEARLY_ALL, (1, 1)], ["h1", "h2"]),
    ],
)
def test_among_many_the_one_with_most_of_what_is_missing_is_next(
    parts: list[tuple[int, int]], expected: list[str]
) -> None:
    found = fewest_that_cover(holders_of(*parts, *[NOTHING] * EXACT), 10, 10, 0, 9)
    assert found is not None
    assert [each.demand for each in found] == expected


def test_among_many_no_more_leave_than_may() -> None:
    many = holders_of(ALL_COMPUTE, ALL_MEMORY, *[NOTHING] * EXACT)
    assert fewest_that_cover(many, 10, 10, 0, 1) is None
    assert fewest_that_cover(many, 10, 10, 0, 2) is not None
