"""The fewest holders that have what is missing, against trying every set."""

import random
from itertools import combinations

import pytest

from kubeshare.core.cover import fewest_that_cover
from kubeshare.core.device import Holder


def holders_of(*parts: tuple[int, int]) -> list[Holder]:
    return [
        Holder(demand=f"h{number}", name=f"h{number}", request=request, memory=memory)
        for number, (request, memory) in enumerate(parts)
    ]


def fewest_by_trial(
    holders: list[Holder], compute: int, memory: int, entries: int, most: int
) -> int | None:
    for size in range(len(holders) + 1):
        for members in combinations(holders, size):
            enough = sum(each.request for each in members) >= compute
            enough = enough and sum(each.memory for each in members) >= memory
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
            assert sum(each.request for each in found) >= compute
            assert sum(each.memory for each in found) >= memory
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
        assert sum(each.request for each in found) >= 100_000
        assert sum(each.memory for each in found) >= 100_000
        # Nobody has more than 15 000 of either.
        assert 7 <= len(found) <= 10
        assert fewest_that_cover(holders, 100_000, 100_000, 0, 6) is None
        assert fewest_that_cover(holders, 10**9, 1, 0, 128) is None
        many = fewest_that_cover(holders, 1, 1, 30, 128)
        assert many is not None
        assert len(many) == 30
