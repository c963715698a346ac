"""The access-cost tree of the Gaia paper, built from link levels.

A *group* is an inner node of the tree: GPUs that reach each other by links of its level or lower.
The tree is built by raising a threshold over the levels: at each level, GPUs that reach each
other are joined, and each new component is a group. For the matrix of a PCIe tree this restores
the tree; it is defined for any matrix.

The paper stores counts on the tree (GPUs left, fragments left) that every allocation must update
and that can drift. Here the tree is immutable, and the idle GPUs are an argument: sets of GPUs
are ints, bit i for the GPU with index i.
"""

from functools import cached_property

import msgspec

from kubeshare.core.topology.links import Level, Links


class Group(msgspec.Struct, frozen=True):
    """An inner node of the tree.

    Attributes:
        level: the level of links between its children.
        members: all GPUs below it, as bits.
        children: the numbers of the groups directly below it.
        leaves: the GPUs directly below it.
        above: the numbers of the enclosing groups, from its parent to the root.
    """

    level: int
    members: int
    children: tuple[int, ...]
    leaves: tuple[int, ...]
    above: tuple[int, ...]


class Tree:
    """The tree of one link matrix.

    Args:
        links: the matrix.

    Attributes:
        links: the matrix.
        size: how many GPUs.
        groups: children before their parents; the last one is the root. A node with one GPU
            has none.
    """

    def __init__(self, links: Links) -> None:
        self.links = tuple(tuple(int(level) for level in row) for row in links)
        self.size = len(links)
        self.groups: tuple[Group, ...] = _groups(self.links)
        self._parents = [-1] * self.size
        for number, group in enumerate(self.groups):
            for leaf in group.leaves:
                self._parents[leaf] = number

    def around(self, gpu: int) -> tuple[int, ...]:
        """The numbers of the groups of a GPU, from its parent to the root."""
        parent = self._parents[gpu]
        return (parent, *self.groups[parent].above) if parent >= 0 else ()

    @cached_property
    def costs(self) -> tuple[int, ...]:
        """The access cost of each GPU: the level of its parent, 0 for a single GPU."""
        return tuple(
            self.groups[parent].level if parent >= 0 else Level.SELF for parent in self._parents
        )

    def enclosing(self, gpus: int) -> int:
        """The number of the smallest group that contains these GPUs, two or more."""
        return next(number for number, group in enumerate(self.groups) if not gpus & ~group.members)

    @cached_property
    def is_exact(self) -> bool:
        """Whether the matrix is a tree's: each pair has the level of its smallest common group."""
        return all(
            self.links[first][second] == self.groups[self.enclosing(1 << first | 1 << second)].level
            for first in range(self.size)
            for second in range(first)
        )


def _groups(links: Links) -> tuple[Group, ...]:
    """The new components of each level."""
    size = len(links)
    component = [1 << gpu for gpu in range(size)]  # GPU -> members of its component
    found: list[tuple[int, int]] = []
    for level in sorted({level for row in links for level in row}):
        before = set(component)
        for first in range(size):
            for second in range(first):
                if links[first][second] <= level and component[first] != component[second]:
                    joined = component[first] | component[second]
                    for gpu in range(size):
                        if joined >> gpu & 1:
                            component[gpu] = joined
        fresh = set(component) - before
        found += [(level, members) for members in sorted(fresh)]
    return tuple(_group(found, number) for number in range(len(found)))


def _group(found: list[tuple[int, int]], number: int) -> Group:
    level, members = found[number]
    above = [at for at in range(number + 1, len(found)) if not members & ~found[at][1]]
    inside = [at for at in range(number) if not found[at][1] & ~members]
    # A child is inside no other group that is inside this one.
    children = [at for at in inside if not any(_within(found, at, other) for other in inside)]
    covered = 0
    for at in children:
        covered |= found[at][1]
    direct = members & ~covered
    return Group(level, members, tuple(children), bits(direct), tuple(above))


def _within(found: list[tuple[int, int]], inner: int, outer: int) -> bool:
    return inner != outer and not found[inner][1] & ~found[outer][1]


def bits(mask: int) -> tuple[int, ...]:
    """The GPUs of a set, in ascending order."""
    return tuple(gpu for gpu in range(mask.bit_length()) if mask >> gpu & 1)
