"""Converts the links of a GPUNode into the core's link matrix."""

from collections import Counter
from functools import lru_cache

from kubeshare.api.types.v1 import GPULink, GPUNodeSpec
from kubeshare.core.topology.links import MAX_GPUS, Level, Links, flat, read_level


def matrix(found: GPUNodeSpec) -> Links:
    """The link levels between a node's GPUs; rows and columns are their NVML indexes.

    Pairs without a link, or with a level that this version does not know, have the highest
    cost (``SYS``), and pairs with several links the highest of theirs, so that the matrix is
    symmetric and their order does not matter. Empty if no link is known, or an index exceeds the
    largest possible node.
    """
    size = max((gpu.index for gpu in found.devices), default=-1) + 1
    return _matrix(size, found.links) if found.links and size <= MAX_GPUS else ()


def row_of(uuid: str, found: GPUNodeSpec) -> int | None:
    """The row of a GPU in its node's matrix.

    None if the node does not list the GPU, or another GPU has the same index: a GPU that has
    vanished keeps its last index, which the driver may have given to another one.
    """
    count = Counter(gpu.index for gpu in found.devices)
    return next(
        (gpu.index for gpu in found.devices if gpu.uuid == uuid and count[gpu.index] == 1), None
    )


@lru_cache(maxsize=64)  # most nodes are of a few kinds, and nodes change often
def _matrix(size: int, links: tuple[GPULink, ...]) -> Links:
    levels: dict[tuple[int, int], int] = {}
    for link in links:
        low, high = sorted((link.a, link.b))
        if 0 <= low < high < size:
            level = read_level(link.link) or Level.SYS
            levels[low, high] = max(levels.get((low, high), Level.SELF), level)
    rows = [list(row) for row in flat(size)]
    for (low, high), level in levels.items():
        rows[low][high] = rows[high][low] = level
    return tuple(tuple(int(level) for level in row) for row in rows)
