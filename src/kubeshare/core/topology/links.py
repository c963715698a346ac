"""The link matrix: the level of the link between two GPUs.

Levels are ordered by cost: NVLink < PIX < PXB < PHB < NODE < SYS, after NVIDIA's definitions and
the figures of the Gaia paper (its text swaps PHB and PXB; its SOC is today's SYS). They are
evenly spaced, as NVML's own numbers are, so sums over the pairs of a set order sets of one size
in the same way on either scale.

A pair with more NVLinks is cheaper: each further link takes one off ``Level.NVLINK``. A step
between levels is larger than all the links of a node together, so the number of NVLinks decides
only between sets whose sums of levels are equal.
"""

import re
from enum import IntEnum
from typing import Final, TypeAlias

from kubeshare.core.errors import InvalidValueError

_STEP: Final = 1 << 21
_MAX_NVLINKS: Final = 999


class Level(IntEnum):
    """The link between a pair of GPUs, cheapest first; :func:`nvlink` has further levels."""

    SELF = 0
    NVLINK = _STEP
    """One NVLink, or an unknown number of them."""
    PIX = 2 * _STEP
    """At most one PCIe bridge."""
    PXB = 3 * _STEP
    """Several PCIe bridges, but no host bridge."""
    PHB = 4 * _STEP
    """A PCIe host bridge."""
    NODE = 5 * _STEP
    """The interconnect between host bridges of one NUMA node."""
    SYS = 6 * _STEP
    """The interconnect between sockets."""


Links: TypeAlias = tuple[tuple[int, ...], ...]
"""n rows of n levels, symmetric, ``Level.SELF`` on the diagonal; row i is the GPU of index i."""

MAX_GPUS: Final = 64
"""The most GPUs that a node's topology may name."""

_KNOWN = frozenset(int(level) for level in Level)
_NVLINK = re.compile(r"NV([1-9][0-9]{0,2})")


def nvlink(count: int) -> int:
    """The level of a pair of GPUs with `count` NVLinks, from 1 to 999."""
    return Level.NVLINK + 1 - count


def read_level(text: str) -> int | None:
    """The level of a name (``PIX``, ``NV12``, ``SOC``); None for an unknown name."""
    counted = _NVLINK.fullmatch(text)
    if counted:
        return nvlink(int(counted[1]))
    if text == "NVL":
        return Level.NVLINK
    if text == "SOC":
        return Level.SYS
    return Level.__members__.get(text) if text != "SELF" else None


def check_links(links: Links, field: str) -> Links:
    """Check a link matrix, and return it.

    Raises:
        InvalidValueError: it is too large, not square, not symmetric, or has an invalid level;
            under the name `field`.
    """
    size = len(links)
    if size > MAX_GPUS:
        raise InvalidValueError(field, f"names {size} GPUs, more than {MAX_GPUS}")
    for index, row in enumerate(links):
        if len(row) != size:
            raise InvalidValueError(field, f"GPU {index} has {len(row)} links, not {size}")
    for first in range(size):
        for second in range(first, size):
            here, there = links[first][second], links[second][first]
            if here != there:
                raise InvalidValueError(
                    field,
                    f"is not symmetric: GPU {first} to GPU {second} is {name_of(here)}, "
                    f"back it is {name_of(there)}",
                )
            if not _is_known(here) or (here == Level.SELF) != (first == second):
                raise InvalidValueError(
                    field, f"GPU {first} to GPU {second} cannot be {name_of(here)}"
                )
    return links


def name_of(level: int) -> str:
    """A level as ``nvidia-smi`` prints it; ``X`` for a GPU and itself."""
    nvlinks = _nvlinks(level)
    if nvlinks:
        return f"NV{nvlinks}"
    if level not in _KNOWN:
        return str(level)
    return "X" if level == Level.SELF else Level(level).name


def without_counts(total: int) -> int:
    """A sum of levels in steps, from 1 for NVLink to 6 for SYS, without the numbers of NVLinks."""
    return -(-total // _STEP)


def flat(size: int) -> Links:
    """The matrix of GPUs with unknown links: each pair is as far apart as possible."""
    return tuple(
        tuple(Level.SELF if column == row else Level.SYS for column in range(size))
        for row in range(size)
    )


def _is_known(level: int) -> bool:
    return level in _KNOWN or _nvlinks(level) > 0


def _nvlinks(level: int) -> int:
    """The number of NVLinks of a level; 0 for a level without."""
    count = Level.NVLINK + 1 - level
    return count if 1 <= count <= _MAX_NVLINKS else 0
