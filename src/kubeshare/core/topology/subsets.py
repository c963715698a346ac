"""The best set of n idle GPUs for Link, found two ways.

If the matrix is a tree's, everything that Link compares within a group adds up over the subgroups
of the group: the sum of levels (a pair from two subgroups costs the group's level), the whole
groups broken, and the indices too. Of two sets, the first by indices is the one with the smallest
GPU that only one of them has; if GPU i counts 2^(size-1-i), that is the set with the greater sum.
One int holds all three, and the best sets of 0, 1, 2, … GPUs of a group follow from those of its
subgroups.

NVLink meshes (a hybrid cube mesh) are no trees. They are small, so all subsets are tried, except
those that start worse than the best one found.
"""

from typing import NamedTuple, TypeAlias

from kubeshare.core.topology.tree import Group, Tree, bits


class LinkScore(NamedTuple):
    """How good a set of GPUs is for Link; less is better.

    Attributes:
        level: the highest level between two of them.
        total: the sum of the levels of all pairs.
        broken: how many whole groups it breaks.
        around: the numbers of idle GPUs in the smallest enclosing group, in its parent, ….
    """

    level: int
    total: int
    broken: int
    around: tuple[int, ...]


LinkBest: TypeAlias = tuple[LinkScore, int] | None
"""A score, and the GPUs as bits."""

_MAX_BROKEN = 1 << 10
"""More than the groups of any tree."""


def closest_in_tree(tree: Tree, idle: int, allowed: int, count: int) -> LinkBest:
    """Link's best set for the matrix of a tree; polynomial in the number of GPUs.

    Args:
        tree: the tree.
        idle: the unused GPUs.
        allowed: those of them to choose from.
        count: how many, two or more.
    """
    tables: list[list[int]] = []  # group -> number of GPUs -> int of the best set
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
            # Rounded up, since the value of the indices is subtracted.
            high = -(-table[count] >> tree.size)
            total, broken = divmod(high, _MAX_BROKEN)
            # All enclosing groups are larger than the set, so it breaks the whole ones.
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
    """The ints of the best sets of 0, 1, 2, … up to `count` GPUs of a group."""
    table = [0]
    for child in group.children:
        table = _merged(table, tables[child], group.level * _MAX_BROKEN << tree.size, count)
    for leaf in group.leaves:
        if allowed >> leaf & 1:
            one = [0, -(1 << (tree.size - 1 - leaf))]
            table = _merged(table, one, group.level * _MAX_BROKEN << tree.size, count)
    return table


def _merged(some: list[int], more: list[int], pair: int, count: int) -> list[int]:
    """Merge the tables of two subgroups; `pair` is the cost of a pair with one GPU in each."""
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


def closest_in_mesh(tree: Tree, idle: int, allowed: int, count: int) -> LinkBest:
    """Link's best set for any matrix, over all subsets in the order of their indices."""
    gpus = bits(allowed)
    best: LinkBest = None
    # The GPUs taken, the position of the next candidate, and level and total of the taken.
    stack = [(0, 0, 0, 0)]
    while stack:
        taken, position, level, total = stack.pop()
        if best and (level, total) > best[0][:2]:
            continue
        missing = count - taken.bit_count()
        if not missing:
            score = _score(tree, idle, taken, level, total)
            if best is None or score < best[0]:
                best = score, taken
            continue
        # The last pushed is popped first: the smallest index.
        for at in range(len(gpus) - missing, position - 1, -1):
            links = tree.links[gpus[at]]
            costs = [links[other] for other in bits(taken)]
            stack.append((taken | 1 << gpus[at], at + 1, max([level, *costs]), total + sum(costs)))
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
