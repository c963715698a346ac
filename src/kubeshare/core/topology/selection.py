"""Selects the best GPUs of a node (Gaia, algorithms 2 to 4).

Each of the three has a total order, so the result never depends on the order of a listing:

* Fragment's fallback: access cost, then a GPU whose group is already broken, then index;
* Singular: a GPU whose siblings are all busy first, then access cost, then whole groups broken,
  then fewest idle GPUs in its parent, in the parent's parent, …, then index;
* Link: highest level between two GPUs of the set, then the sum of the levels of all pairs, then
  whole groups broken, then fewest idle GPUs in the smallest enclosing group, in its parent, …,
  then the indices.

A *whole* group has only idle GPUs; a set *breaks* it by taking some of them, not all. Everything
before the index is the *score*: scores of sets on different nodes compare.

``idle`` are the unused GPUs; ``allowed`` are those of them that the demand may use, for example
by model. Both are ints, bit i for the GPU with index i.
"""

from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from kubeshare.core.topology.links import Links
from kubeshare.core.topology.subsets import LinkScore, closest_in_mesh, closest_in_tree
from kubeshare.core.topology.tree import Tree, bits


class FragmentScore(NamedTuple):
    """How good an idle GPU is for a fraction; less is better.

    Attributes:
        cost: its access cost.
        whole: whether its group is whole, so that it would be broken.
    """

    cost: int
    whole: bool


class SingularScore(NamedTuple):
    """How good an idle GPU is for a demand of one; less is better.

    Attributes:
        company: whether it has no siblings, or an idle one.
        cost: its access cost.
        broken: how many whole groups it breaks.
        around: the numbers of idle GPUs in its parent, in the parent's parent, ….
    """

    company: bool
    cost: int
    broken: int
    around: tuple[int, ...]


Score: TypeAlias = FragmentScore | SingularScore | LinkScore
"""Scores of one rule compare across trees."""

Best: TypeAlias = tuple[Score, int]
"""A score, and the GPUs as bits."""

LARGEST_MESH: Final = 16
"""A larger matrix that is not a tree's is treated as its tree, with each pair at the level of the
smallest enclosing group: its subsets are too many to try."""

_MAX_CACHED: Final = 1 << 15


class Closest:
    """The best GPUs for nodes with one link matrix, with a cache."""

    def __init__(self, links: Links) -> None:
        self.tree = Tree(links)
        self._by_tree = self.tree.is_exact or self.tree.size > LARGEST_MESH
        self._cache: dict[tuple[int, int, int], Best | None] = {}

    def best(self, idle: int, allowed: int, count: int) -> Best | None:
        """The best GPUs; None if there are too few.

        Args:
            idle: the unused GPUs.
            allowed: those of them to choose from.
            count: how many whole ones (Singular, Link); 0 for a fraction of one (Fragment).
        """
        key = (idle, allowed, count)
        try:
            return self._cache[key]
        except KeyError:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            best = self._cache[key] = self._search(idle, allowed, count)
            return best

    def _search(self, idle: int, allowed: int, count: int) -> Best | None:
        if allowed.bit_count() < max(count, 1):
            return None
        if count > 1:
            search = closest_in_tree if self._by_tree else closest_in_mesh
            return search(self.tree, idle, allowed, count)
        score = self._singular if count else self._fragment
        # Of equal scores the lower bit, which is the lower index.
        return min((score(gpu, idle), 1 << gpu) for gpu in bits(allowed))

    def _fragment(self, gpu: int, idle: int) -> Score:
        around = self.tree.around(gpu)
        whole = bool(around) and self._is_whole(around[0], idle)
        return FragmentScore(self.tree.costs[gpu], whole)

    def _singular(self, gpu: int, idle: int) -> Score:
        around = self.tree.around(gpu)
        groups = self.tree.groups
        # The paper's "cousin": the other GPUs below the same parent.
        siblings = groups[around[0]].members & ~(1 << gpu) if around else 0
        return SingularScore(
            company=not siblings or bool(siblings & idle),
            cost=self.tree.costs[gpu],
            broken=sum(self._is_whole(group, idle) for group in around),
            around=tuple((groups[group].members & idle).bit_count() for group in around),
        )

    def _is_whole(self, group: int, idle: int) -> bool:
        return not self.tree.groups[group].members & ~idle


@lru_cache(maxsize=256)
def closest(links: Links) -> Closest:
    """The shared :class:`Closest` of all nodes with the same link matrix."""
    return Closest(links)
