"""The link matrix: the level of the link between two GPUs.

Levels are ordered by cost: NVLink < PIX < PXB < PHB < NODE < SYS, after NVIDIA's definitions and
the figures of the Gaia paper (its text swaps PHB and PXB; its SOC is today's SYS). They are
evenly spaced, as NVML's own numbers are, so sums over the pairs of a set order sets of one size
in the same way on either scale.
"""

import re
from enum import IntEnum
from typing import Final, TypeAlias

from kubeshare.core.errors import InvalidValueError


class Level(IntEnum):
    """The link between a pair of GPUs, cheapest first."""

    SELF = 0
    NVLINK = 1
    """Direct NVLinks, however many (``NV#``)."""
    PIX = 2
    """At most one PCIe bridge."""
    PXB = 3
    """Several PCIe bridges, but no host bridge."""
    PHB = 4
    """A PCIe host bridge."""
    NODE = 5
    """The interconnect between host bridges of one NUMA node."""
    SYS = 6
    """The interconnect between sockets."""


Links: TypeAlias = tuple[tuple[int, ...], ...]
"""n rows of n levels, symmetric, ``Level.SELF`` on the diagonal; row i is the GPU of index i."""

MAX_GPUS: Final = 64
"""The most GPUs that a node's topology may name."""

_KNOWN = frozenset(int(level) for level in Level)
_NVLINK = re.compile(r"NV[0-9]{1,3}|NVL|NVLINK")


def read_level(text: str) -> Level | None:
    """The level of a name (``PIX``, ``NV12``, ``SOC``); None for an unknown name."""
    if _NVLINK.fullmatch(text):
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
            if here not in _KNOWN or (here == Level.SELF) != (first == second):
                raise InvalidValueError(
                    field, f"GPU {first} to GPU {second} cannot be {name_of(here)}"
                )
    return links


def name_of(level: int) -> str:
    """A level as ``nvidia-smi`` prints it; ``X`` for a GPU and itself."""
    if level not in _KNOWN:
        return str(level)
    return {Level.SELF: "X", Level.NVLINK: "NV#"}.get(Level(level), Level(level).name)


def flat(size: int) -> Links:
    """The matrix of GPUs with unknown links: each pair is as far apart as possible."""
    return tuple(
        tuple(Level.SELF if column == row else Level.SYS for column in range(size))
        for row in range(size)
    )
