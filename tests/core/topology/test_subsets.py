"""The closest sets of one node: two ways of searching that must agree, and what they promise."""

import random
from itertools import combinations

import pytest

from core.topology.topologies import CUBE_MESH, DGX_1, TREES, mesh
from kubeshare.core.topology import Level, Links, nvlink
from kubeshare.core.topology.selection import (
    LARGEST_MESH,
    Closest,
    FragmentScore,
    Score,
    SingularScore,
    closest,
)
from kubeshare.core.topology.subsets import closest_in_mesh, closest_in_tree
from kubeshare.core.topology.tree import Tree, bits

LEVELS = (0, nvlink(4), nvlink(2), *[level for level in Level if level])


def random_tree(source: random.Random, gpus: list[int], level: int) -> dict[tuple[int, int], int]:
    """Places in LEVELS of the pairs of a random tree whose root has at most a level."""
    pairs: dict[tuple[int, int], int] = {}
    if len(gpus) < 2:
        return pairs
    here = source.randint(1, level)  # its place in LEVELS
    source.shuffle(gpus)
    cuts = sorted(source.sample(range(1, len(gpus)), source.randint(1, len(gpus) - 1)))
    parts = [gpus[a:b] for a, b in zip([0, *cuts], [*cuts, len(gpus)], strict=True)]
    for one, other in combinations(parts, 2):
        pairs |= {(a, b): here for a in one for b in other}
    for part in parts:
        pairs |= random_tree(source, part, here)
    return pairs


def links_of(size: int, pairs: dict[tuple[int, int], int]) -> Links:
    def level(a: int, b: int) -> int:
        return 0 if a == b else LEVELS[pairs.get((a, b), pairs.get((b, a), 0))]

    return tuple(tuple(level(row, column) for column in range(size)) for row in range(size))


def test_searching_the_tree_finds_what_looking_at_all_subsets_finds() -> None:
    source = random.Random(11)
    broken = 0
    for _ in range(3000):
        size = source.randint(2, 9)
        links = links_of(size, random_tree(source, list(range(size)), len(LEVELS) - 1))
        tree = Tree(links)
        assert tree.is_exact
        idle = ((1 << size) - 1) & ~(source.getrandbits(size) & source.getrandbits(size))
        allowed = idle & ~(source.getrandbits(size) & source.getrandbits(size))
        if allowed.bit_count() < 2:
            continue
        count = source.randint(2, allowed.bit_count())
        expected = closest_in_mesh(tree, idle, allowed, count)
        assert closest_in_tree(tree, idle, allowed, count) == expected
        broken += bool(expected and expected[0].broken)
    assert broken > 300


@pytest.mark.parametrize("name", TREES)
def test_the_tree_of_a_trees_matrix_is_that_tree(name: str) -> None:
    tree = Tree(TREES[name])
    assert tree.is_exact
    for number, group in enumerate(tree.groups):
        members = bits(group.members)
        assert max(tree.links[a][b] for a, b in combinations(members, 2)) == group.level
        assert set(members) == set(group.leaves).union(
            *(bits(tree.groups[child].members) for child in group.children)
        )
        assert all(group.members & ~tree.groups[at].members == 0 for at in group.above)
        assert all(at > number for at in group.above)


def test_a_lone_gpu_has_no_group_and_costs_nothing() -> None:
    tree = Tree(TREES["T1"])
    assert tree.groups == ()
    assert tree.costs == (0,)
    assert tree.around(0) == ()


def test_a_mesh_is_no_tree_and_its_cliques_are_the_closest_sets() -> None:
    assert not Tree(CUBE_MESH).is_exact
    solver = Closest(CUBE_MESH)
    everything = 0xFF
    expected = {2: 0b11, 3: 0b111, 4: 0b1111, 5: 0b1_1111}
    for count, gpus in expected.items():
        found = solver.best(everything, everything, count)
        assert found is not None
        assert found[1] == gpus
    # 4, 6 and 7 are of one clique; 0 is linked to 4 only.
    found = solver.best(0b1101_0001, 0b1101_0001, 3)
    assert found is not None
    assert bits(found[1]) == (4, 6, 7)


def test_of_gpus_with_nvlinks_those_with_more_of_them_are_closer() -> None:
    solver = Closest(DGX_1)
    everything = 0xFF
    pair = solver.best(everything, everything, 2)
    assert pair is not None
    # 0 and 1 have one NVLink.
    assert bits(pair[1]) == (0, 3)
    assert pair[0].level == nvlink(2)  # type: ignore[union-attr]  # it is Link's
    # In each clique of four there is a set with two such pairs and one with a single NVLink.
    three = solver.best(everything, everything, 3)
    assert three is not None
    assert bits(three[1]) == (0, 2, 3)


def test_the_number_of_nvlinks_only_decides_between_equal_sums_of_levels() -> None:
    most, one, node, far = nvlink(999), nvlink(1), Level.NODE, Level.SYS
    links: Links = (
        (0, most, far, far, far),
        (most, 0, far, far, far),
        (far, far, 0, one, far),
        (far, far, one, 0, node),
        (far, far, far, node, 0),
    )
    found = Closest(links).best(0b11111, 0b11111, 3)
    assert found is not None
    assert bits(found[1]) == (2, 3, 4)


def test_a_mesh_of_too_many_gpus_is_placed_on_as_its_tree() -> None:
    size = LARGEST_MESH + 1
    ring = mesh(size, [(at, (at + 1) % size) for at in range(size)])
    solver = Closest(ring)
    everything = (1 << size) - 1
    found = solver.best(everything, everything, size // 2)
    assert found is not None
    # In the tree all GPUs of the ring are in one group, so the first ones are as good as any.
    assert bits(found[1]) == tuple(range(size // 2))
    assert found[0][0] == Level.NVLINK


def test_a_mesh_of_sixteen_gpus_is_searched_by_its_links() -> None:
    ring = mesh(LARGEST_MESH, [(at, (at + 1) % LARGEST_MESH) for at in range(LARGEST_MESH)])
    everything = (1 << LARGEST_MESH) - 1
    found = Closest(ring).best(everything, everything, 4)
    assert found is not None
    assert bits(found[1]) == (0, 1, 2, 3)
    assert found[0][:2] == (Level.SYS, 3 * Level.NVLINK + 3 * Level.SYS)


def test_sixty_four_gpus_are_searched_in_polynomial_time() -> None:
    flat = mesh(64, [], beyond=Level.PIX)
    everything = (1 << 64) - 1
    # Looking at all subsets would take years.
    found = Closest(flat).best(everything, everything, 32)
    assert found is not None
    assert bits(found[1]) == tuple(range(32))


def test_there_is_no_answer_where_too_few_may_be_taken() -> None:
    solver = closest(TREES["T6"])
    for count in (0, 1, 2, 7):
        assert solver.best(0b111111, 0, count) is None
    assert solver.best(0b111111, 0b1, 2) is None


def test_nodes_with_the_same_links_share_what_is_known_of_them() -> None:
    copy = tuple(tuple(row) for row in TREES["T8"])
    assert closest(copy) is closest(TREES["T8"])


@pytest.mark.parametrize(
    ("name", "idle", "gpu", "count", "score"),
    [
        ("T8", 0b1111_1111, 2, 1, SingularScore(True, Level.PIX, 3, (2, 4, 8))),
        ("T8", 0b0000_0111, 2, 1, SingularScore(False, Level.PIX, 0, (1, 3, 3))),
        ("T8", 0b1100_1100, 2, 1, SingularScore(True, Level.PIX, 1, (2, 2, 4))),
        ("T3L", 0b111, 2, 1, SingularScore(True, Level.SYS, 1, (3,))),
        ("counts", 0b111111, 2, 1, SingularScore(True, Level.NVLINK, 2, (3, 6))),
        ("counts", 0b111111, 3, 1, SingularScore(True, nvlink(2), 3, (2, 3, 6))),
        ("T1", 0b1, 0, 1, SingularScore(True, Level.SELF, 0, ())),
        ("T8", 0b1111_1111, 2, 0, FragmentScore(Level.PIX, True)),
        ("T8", 0b0000_0111, 2, 0, FragmentScore(Level.PIX, False)),
        ("T3L", 0b111, 2, 0, FragmentScore(Level.SYS, True)),
        ("T1", 0b1, 0, 0, FragmentScore(Level.SELF, False)),
    ],
)
def test_a_gpu_scores_by_its_siblings_its_cost_and_what_it_breaks(
    name: str, idle: int, gpu: int, count: int, score: Score
) -> None:
    assert Closest(TREES[name]).best(idle, 1 << gpu, count) == (score, 1 << gpu)
