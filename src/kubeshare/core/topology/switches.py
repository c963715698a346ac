"""Finds the GPUs of a node that are under one switch.

GPUs are under one *switch* if every pair of them has NVLink or is at most PCIe bridges apart
(level PXB): no path between two of them passes a host bridge. In a PCIe tree these are the
subtrees below the host bridges. In an NVLink mesh they are its cliques, which may overlap.
"""

from functools import lru_cache
from typing import Final

from kubeshare.core.topology.links import Level, Links
from kubeshare.core.topology.tree import bits

MAX_SWITCHES: Final = 256
"""The most sets of one node; real nodes have a few, an arbitrary matrix has exponentially many."""


@lru_cache(maxsize=256)
def switches(links: Links) -> tuple[frozenset[int], ...]:
    """The largest sets of GPUs under one switch, each GPU in at least one; large sets first.

    A GPU that is near no other is a set of its own. Beyond :data:`MAX_SWITCHES` sets the rest is
    left out. Source: the algorithm of Bron and Kerbosch for maximal cliques, with pivots.
    """
    near = [
        sum(1 << other for other, level in enumerate(row) if other != gpu and level <= Level.PXB)
        for gpu, row in enumerate(links)
    ]
    found: list[int] = []

    def grow(taken: int, candidates: int, done: int) -> None:
        if not candidates | done:
            found.append(taken)
            return
        pivot = max(bits(candidates | done), key=lambda gpu: (near[gpu] & candidates).bit_count())
        for gpu in bits(candidates & ~near[pivot]):
            if len(found) == MAX_SWITCHES:
                return
            grow(taken | 1 << gpu, candidates & near[gpu], done & near[gpu])
            candidates &= ~(1 << gpu)
            done |= 1 << gpu

    if links:
        grow(0, (1 << len(links)) - 1, 0)
    ordered = sorted(map(bits, found), key=lambda gpus: (-len(gpus), gpus))
    return tuple(map(frozenset, ordered))
