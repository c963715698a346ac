"""Parser of the output of ``nvidia-smi topo -m``.

Its header is underlined by escape codes; besides GPUs it has columns and rows for network cards,
then columns about CPUs and NUMA nodes, and a legend. Only the links between GPUs are read. For a
pair with NVLinks it prints ``NV#`` instead of the PCIe level, so the matrix need not be that of
a tree.
"""

import re
from typing import Final

from kubeshare.core.errors import InvalidValueError
from kubeshare.core.topology.links import MAX_GPUS, Level, Links, check_links, read_level

_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GPU: Final = re.compile(r"GPU([0-9]{1,4})")
_AFFINITY: Final = ("CPU", "NUMA")
_MAX_LENGTH: Final = 1 << 20


def read_matrix(text: str, field: str) -> Links:
    """Parse the output of ``nvidia-smi topo -m``; only the header and the GPU lines are needed.

    Returns:
        the link matrix of the GPUs 0, 1, …

    Raises:
        InvalidValueError: it is no such output, a GPU or a link is missing, duplicate or
            unknown, or the matrix is not symmetric; under the name `field`.
    """
    if len(text) > _MAX_LENGTH:
        raise InvalidValueError(field, f"is longer than {_MAX_LENGTH} characters")
    rows = [line.split() for line in _ESCAPES.sub("", text).splitlines()]
    rows = [row for row in rows if row]
    header = next((row for row in rows if _GPU.fullmatch(row[0])), None)
    if header is None:
        raise InvalidValueError(field, "no line begins with GPU0: this is not `nvidia-smi topo -m`")
    columns = _columns(header, field)
    links: dict[int, dict[int, int]] = {}
    for row in rows[rows.index(header) + 1 :]:
        match = _GPU.fullmatch(row[0])
        if match is None:
            continue
        number = int(match[1])
        if number in links:
            raise InvalidValueError(field, f"GPU{number} has two lines")
        links[number] = _row(number, row[1:], columns, field)
    if not links:
        raise InvalidValueError(field, "names GPUs, and has no line for any of them")
    return check_links(_matrix(links, field), field)


def _columns(header: list[str], field: str) -> list[int | None]:
    """The GPU of each column, None for another device."""
    end = next((at for at, word in enumerate(header) if word in _AFFINITY), len(header))
    found = [_GPU.fullmatch(word) for word in header[:end]]
    columns = [int(match[1]) if match else None for match in found]
    gpus = [number for number in columns if number is not None]
    twice = [number for number in gpus if gpus.count(number) > 1]
    if twice:
        raise InvalidValueError(field, f"GPU{twice[0]} has two columns")
    if len(gpus) > MAX_GPUS or max(gpus) >= MAX_GPUS:
        raise InvalidValueError(field, f"names more than {MAX_GPUS} GPUs")
    return columns


def _row(number: int, words: list[str], columns: list[int | None], field: str) -> dict[int, int]:
    """The levels from one GPU to all GPUs."""
    if len(words) < len(columns):
        raise InvalidValueError(
            field, f"GPU{number} has {len(words)} links, and there are {len(columns)} columns"
        )
    levels: dict[int, int] = {}
    for other, word in zip(columns, words, strict=False):
        if other is None:
            continue
        level = Level.SELF if word in ("X", "x") else read_level(word)
        if level is None:
            raise InvalidValueError(field, f'GPU{number} to GPU{other}: "{word}" is not a level')
        levels[other] = level
    return levels


def _matrix(links: dict[int, dict[int, int]], field: str) -> Links:
    size = len(links)
    named = {number for row in links.values() for number in row} | links.keys()
    for number in sorted(named):
        if number not in links:
            raise InvalidValueError(field, f"GPU{number} has a column, but no line")
        if any(number not in row for row in links.values()):
            raise InvalidValueError(field, f"GPU{number} has a line, but no column")
    if max(named) >= size:
        missing = min(set(range(size)) - named)
        raise InvalidValueError(field, f"GPU{missing} is not there, and GPU{max(named)} is")
    return tuple(tuple(links[row][column] for column in range(size)) for row in range(size))
