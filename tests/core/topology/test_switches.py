"""Sets of GPUs under one switch, against trying all sets."""

import random
from itertools import combinations

import pytest

from core.topology.topologies import CUBE_MESH, TREES, mesh
from kubeshare.core.topology import Level, Links, nvlink
from kubeshare.core.topology.switches import MAX_SWITCHES, switches


def by_trial(links: Links) -> set[frozenset[int]]:
    """The largest sets of which every pair is at most PXB apart, of every set there is."""
    gpus = range(len(links))
    near = [
        frozenset(some)
        for size in range(1, len(links) + 1)
        for some in combinations(gpus, size)
        if all(links[a][b] <= Level.PXB for a, b in combinations(some, 2))
    ]
    return {each for each in near if not any(each < other for other in near)}


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        (TREES["T8"], [{0, 1}, {2, 3}, {4, 5}, {6, 7}]),
        (TREES["T4P"], [{0, 1}, {2, 3}]),
        (TREES["T6"], [{0, 1}, {2, 3}, {4, 5}]),
        (TREES["T3L"], [{0, 1}, {2}]),
        (TREES["mixed"], [{0, 3}, {1, 4}, {2}, {5}]),
        (TREES["T1"], [{0}]),
        ((), []),
        (CUBE_MESH, [{0, 1, 2, 3}, {4, 5, 6, 7}, {0, 4}, {1, 5}, {2, 6}, {3, 7}]),
    ],
)
def test_known_machines(links: Links, expected: list[set[int]]) -> None:
    assert list(switches(links)) == [frozenset(gpus) for gpus in expected]


def test_random_matrices() -> None:
    source = random.Random(3)
    levels = [nvlink(2), Level.NVLINK, Level.PIX, Level.PXB, Level.PHB, Level.NODE, Level.SYS]
    for _ in range(200):
        size = source.randint(1, 7)
        pairs = {pair: source.choice(levels) for pair in combinations(range(size), 2)}
        links = tuple(
            tuple(0 if a == b else pairs[min(a, b), max(a, b)] for b in range(size))
            for a in range(size)
        )
        found = switches(links)
        assert len(set(found)) == len(found)
        assert set(found) == by_trial(links)


def test_an_arbitrary_matrix_has_a_bounded_number_of_sets() -> None:
    """Every GPU is near all but its two neighbours in a triple: 3^20 largest sets."""
    apart = {
        frozenset(pair) for n in range(20) for pair in combinations(range(3 * n, 3 * n + 3), 2)
    }
    near = [pair for pair in combinations(range(60), 2) if frozenset(pair) not in apart]
    assert len(switches(mesh(60, near))) == MAX_SWITCHES
