"""Parser of the bracket notation for trees: ``SOC(PHB(PIX(0,1),PIX(2,3)),PIX(4,5))``.

A level with brackets is a group whose members share that level; a number is a GPU, ``0..3`` are
four GPUs, and ``0`` alone is a node with one GPU.
"""

import re
from typing import Final, NoReturn

from kubeshare.core.errors import InvalidValueError
from kubeshare.core.topology.links import MAX_GPUS, Level, Links, name_of, read_level

_TOKENS: Final = re.compile(r"\s*(?:(?P<word>[A-Z][A-Z0-9]*)\s*\(|(?P<mark>[,)])|(?P<gpu>[0-9.]+))")
_GPUS: Final = re.compile(r"([0-9]{1,4})(?:\.\.([0-9]{1,4}))?")
_MAX_LENGTH: Final = 4096


def read_notation(text: str, field: str) -> Links:
    """Parse a tree in bracket notation.

    Returns:
        the link matrix of the GPUs 0, 1, … in the tree.

    Raises:
        InvalidValueError: it is no such tree, names a GPU twice or omits one, or has a group
            inside another of a lower level; under the name `field`.
    """
    reader = _Reader(text, field)
    members = reader.read()
    size = len(members)
    missing = sorted(set(range(size)) - set(members))
    if missing:
        reader.fail(f"names {size} GPUs, and GPU {missing[0]} is not among them")
    return tuple(tuple(reader.level(row, column) for column in range(size)) for row in range(size))


class _Reader:
    """A parser from left to right with a stack of open groups."""

    def __init__(self, text: str, field: str) -> None:
        self._text = text.strip()
        self._field = field
        self._open: list[tuple[int, list[int]]] = []
        self._pairs: dict[tuple[int, int], int] = {}
        self._seen: set[int] = set()

    def fail(self, reason: str) -> NoReturn:
        raise InvalidValueError(self._field, reason)

    def level(self, first: int, second: int) -> int:
        """The level of the smallest group that contains both GPUs."""
        pair = (min(first, second), max(first, second))
        return Level.SELF if first == second else self._pairs[pair]

    def read(self) -> list[int]:
        """The GPUs of the whole tree."""
        if len(self._text) > _MAX_LENGTH:
            self.fail(f"is longer than {_MAX_LENGTH} characters")
        position, closed, wants_member = 0, list[int](), True
        while position < len(self._text):
            if closed and not self._open:
                self.fail(f'goes on after its end: "{self._text[position:][:20]}"')
            token = _TOKENS.match(self._text, position)
            if token is None or wants_member == bool(token["mark"]):
                expected = "a group or a GPU" if wants_member else '"," or ")"'
                self.fail(f'expected {expected} at "{self._text[position:][:20]}"')
            position = token.end()
            wants_member = bool(token["word"]) or token["mark"] == ","
            if token["word"]:
                self._begin(token["word"])
            elif token["gpu"]:
                closed = self._add(self._gpus(token["gpu"]))
            elif token["mark"] == ")":
                closed = self._end()
        if self._open or not closed:
            self.fail("ends before its brackets do" if self._open else "is empty")
        return closed

    def _begin(self, word: str) -> None:
        level = read_level(word)
        if level is None:
            known = ", ".join(level.name for level in Level if level)
            self.fail(f"{word} is not a level; these are: {known}")
        if self._open and level > self._open[-1][0]:
            self.fail(f"{word} is inside {name_of(self._open[-1][0])}, which is nearer")
        self._open.append((level, []))

    def _end(self) -> list[int]:
        """Close a group: it is the whole tree, or a member of the enclosing group."""
        _, members = self._open.pop()
        return self._add(members) if self._open else members

    def _add(self, gpus: list[int]) -> list[int]:
        """Add GPUs to the open group; the pairs that they form get its level."""
        if not self._open:
            if len(gpus) > 1:
                self.fail("several GPUs need a level around them")
            return gpus
        level, members = self._open[-1]
        for first in members:
            for second in gpus:
                self._pairs.setdefault((min(first, second), max(first, second)), level)
        for first in gpus:
            for second in gpus:
                if first < second:
                    self._pairs.setdefault((first, second), level)
        members += gpus
        return []

    def _gpus(self, text: str) -> list[int]:
        match = _GPUS.fullmatch(text)
        if match is None:
            self.fail(f'"{text}" is not a GPU such as 0, or several such as 0..3')
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last >= MAX_GPUS:
            self.fail(f'"{text}" is not within 0..{MAX_GPUS - 1}')
        gpus = list(range(first, last + 1))
        twice = self._seen.intersection(gpus)
        if twice:
            self.fail(f"names GPU {min(twice)} twice")
        self._seen.update(gpus)
        return gpus
