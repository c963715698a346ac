"""The best GPUs of a node for Fragment, Singular and Link (Gaia, algorithms 2 to 4).

Each of the three has a total order, so that no answer depends on an order of listing:

* Fragment's fallback: access cost, then a GPU whose group is broken already, then index;
* Singular: a GPU whose siblings are all busy first, then access cost, then whole groups
  broken, then fewest idle GPUs in its parent, in the parent of that, …, then index;
* Link: highest level between two of the set, then the sum of the levels of all pairs,
  then whole groups broken, then fewest idle GPUs in the smallest group around it, in the
  parent of that, …, then the indices.

A *whole* group is one with all its GPUs idle; a set *breaks* it by taking some, not all.
What comes before the index is a *score*: scores of sets of different nodes compare.

`idle` are the GPUs that nobody uses; `allowed` are those of them that the demand may
have, say by model. Both are ints, bit i for the GPU of index i.
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
        whole: it is the first of its group to be used.
    """

    cost: int
    whole: bool


class SingularScore(NamedTuple):
    """How good an idle GPU is for a demand of one; less is better.

    Attributes:
        company: it has no siblings, or one of them is idle.
        cost: its access cost.
        broken: how many whole groups it breaks.
        around: the idle GPUs of its parent, of the parent of that, ….
    """

    company: bool
    cost: int
    broken: int
    around: tuple[int, ...]


Score: TypeAlias = FragmentScore | SingularScore | LinkScore
"""Scores by the same rule compare, whatever the trees."""

Best: TypeAlias = tuple[Score, int]
"""A score, and the GPUs as bits."""

LARGEST_MESH: Final = 16
"""A matrix of more GPUs that is not a tree's is treated as its tree is: with each pair
at the level of the smallest group around it. All subsets of more are too many to look at."""

_MOST_REMEMBERED: Final = 1 << 15


class Closest:
    """Answers for all nodes with one link matrix, and remembers them."""

    def __init__(self, links: Links) -> None:
        self.tree = Tree(links)
        self._by_tree = self.tree.is_exact or self.tree.size > LARGEST_MESH
        self._known: dict[tuple[int, int, int], Best | None] = {}

    def best(self, idle: int, allowed: int, count: int) -> Best | None:
        """The best GPUs, None when there are not so many.

        Args:
            idle: the GPUs that nobody uses.
            allowed: those of them to choose from.
            count: how many whole ones (Singular, Link); 0 for a fraction of one (Fragment).
        """
        question = (idle, allowed, count)
        try:
            return self._known[question]
        except KeyError:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            answer = self._known[question] = self._search(idle, allowed, count)
            return answer

    def _search(self, idle: int, allowed: int, count: int) -> Best | None:
        if allowed.bit_count() < max(count, 1):
            return None
        if count > 1:
            search = closest_in_tree if self._by_tree else closest_in_mesh
            return search(self.tree, idle, allowed, count)
        score = self._singular if count else self._fragment
        # The lower bit is the lower index.
        return min((score(gpu, idle), 1 << gpu) for gpu in bits(allowed))

    def _fragment(self, gpu: int, idle: int) -> Score:
        around = self.tree.around(gpu)
        whole = bool(around) and self._is_whole(around[0], idle)
        return FragmentScore(self.tree.costs[gpu], whole)

    def _singular(self, gpu: int, idle: int) -> Score:
        around = self.tree.around(gpu)
        groups = self.tree.groups
        # "Cousin" in the print: the other GPUs below the same parent.
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
    """The same for nodes with the same link matrix, so that what one learns all know."""
    return Closest(links)
