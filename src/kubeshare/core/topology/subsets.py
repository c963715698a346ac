"""The best set of n idle GPUs for Link, two ways: through the tree, or over all subsets.

Where the matrix is a tree's, all that Link compares within a group adds up over the
parts of the group: the sum of levels (a pair from two parts costs the group's level), the
whole groups broken, and the indices too. Of two sets that one is first by its indices
that has the smallest GPU which only one of them has, so with GPU i counting 2^(size-1-i)
the first set is the one with the greater sum. One int holds all three, and the best sets
of 0, 1, 2, … GPUs of a group follow from those of its parts.

NVLink meshes (a hybrid cube mesh) are not trees. They are small, so there all subsets
are looked at, apart from those that begin worse than the best one found.
"""

from typing import NamedTuple, TypeAlias

from kubeshare.core.topology.tree import Group, Tree, bits


class LinkScore(NamedTuple):
    """How good a set of GPUs is for Link; less is better.

    Attributes:
        level: the highest between two of them.
        total: the sum of the levels of all pairs.
        broken: how many whole groups it breaks.
        around: the idle GPUs of the smallest group around it, of that one's parent, ….
    """

    level: int
    total: int
    broken: int
    around: tuple[int, ...]


LinkAnswer: TypeAlias = tuple[LinkScore, int] | None
"""A score, and the GPUs as bits."""

_BROKEN = 1 << 10
"""More than a tree has groups."""


def closest_in_tree(tree: Tree, idle: int, allowed: int, count: int) -> LinkAnswer:
    """Link's answer for the matrix of a tree; polynomial in the number of GPUs.

    Args:
        tree: the tree.
        idle: the GPUs that nobody uses.
        allowed: those of them to choose from.
        count: how many, two or more.
    """
    tables: list[list[int]] = []  # group -> number of GPUs -> the best such set's int
    found: list[tuple[LinkScore, int]] = []
    for group in tree.groups:
        if found and found[0][0].level < group.level:
            break
        table = _table(tree, group, tables, allowed, count)
        if not group.members & ~idle:
            for taken in range(1, min(len(table), group.members.bit_count())):
                table[taken] += 1 << tree.size
        tables.append(table)
        if len(table) > count:
            # Rounded up, since what the indices count is subtracted.
            high = -(-table[count] >> tree.size)
            total, broken = divmod(high, _BROKEN)
            # All groups around it are larger than the set: what is whole there, it breaks.
            broken += sum(not tree.groups[at].members & ~idle for at in group.above)
            score = LinkScore(group.level, total, broken, _idle_around(tree, group, idle))
            found.append((score, table[count] - (high << tree.size)))
    if not found:
        return None
    score, indices = min(found)
    return score, sum(1 << (tree.size - 1 - bit) for bit in bits(-indices))


def _table(
    tree: Tree, group: Group, tables: list[list[int]], allowed: int, count: int
) -> list[int]:
    """The best sets of 0, 1, 2, … up to `count` GPUs of a group, as far as there are."""
    table = [0]
    for part in group.parts:
        table = _merged(table, tables[part], group.level * _BROKEN << tree.size, count)
    for leaf in group.leaves:
        if allowed >> leaf & 1:
            one = [0, -(1 << (tree.size - 1 - leaf))]
            table = _merged(table, one, group.level * _BROKEN << tree.size, count)
    return table


def _merged(some: list[int], more: list[int], pair: int, count: int) -> list[int]:
    """The best sets of two parts together; `pair` is what a pair with one GPU in each costs."""
    best: list[int] = []
    for taken in range(min(len(some) + len(more) - 2, count) + 1):
        first = max(0, taken - len(more) + 1)
        last = min(taken, len(some) - 1)
        best.append(
            min(
                some[here] + more[taken - here] + pair * here * (taken - here)
                for here in range(first, last + 1)
            )
        )
    return best


def closest_in_mesh(tree: Tree, idle: int, allowed: int, count: int) -> LinkAnswer:
    """Link's answer for any matrix, over all subsets in the order of their indices."""
    gpus = bits(allowed)
    best: LinkAnswer = None
    # The GPUs taken, how far the choice has come, and level and total of what is taken.
    waiting = [(0, 0, 0, 0)]
    while waiting:
        taken, position, level, total = waiting.pop()
        if best and (level, total) > best[0][:2]:
            continue
        missing = count - taken.bit_count()
        if not missing:
            score = _score(tree, idle, taken, level, total)
            if best is None or score < best[0]:
                best = score, taken
            continue
        # The last pushed comes first: the smallest index.
        for at in range(len(gpus) - missing, position - 1, -1):
            links = tree.links[gpus[at]]
            costs = [links[other] for other in bits(taken)]
            waiting.append(
                (taken | 1 << gpus[at], at + 1, max([level, *costs]), total + sum(costs))
            )
    return best


def _score(tree: Tree, idle: int, taken: int, level: int, total: int) -> LinkScore:
    broken = sum(
        not group.members & ~idle and 0 < (group.members & taken) != group.members
        for group in tree.groups
    )
    around = tree.groups[tree.enclosing(taken)]
    return LinkScore(level, total, broken, _idle_around(tree, around, idle))


def _idle_around(tree: Tree, group: Group, idle: int) -> tuple[int, ...]:
    groups = (group, *(tree.groups[at] for at in group.above))
    return tuple((around.members & idle).bit_count() for around in groups)
