"""Removes deeply nested values from JSON, which would end the program.

The schema of a kind may keep unknown fields, and the API server takes ten thousand levels of
them. Decoding recurses once for each level, as does all code that walks the object. No built-in
kind nests its fields anywhere near so deeply, so deeper values are not part of any and are
dropped.
"""

import re
from typing import Final

MAX_DEPTH: Final = 256
"""Levels of lists and maps that are kept: a quarter of Python's recursion limit."""

_BRACKETS: Final = b"[]{}"
_OTHERS: Final = bytes(set(range(256)) - set(_BRACKETS))
_ALIKE: Final = bytes.maketrans(b"[]", b"{}")
_TOKENS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def limit_depth(text: bytes) -> bytes:
    """JSON without values nested more than :data:`MAX_DEPTH` deep; all else stays as it is.

    ``text`` may be invalid JSON: the decoder will report it.
    """
    if text.count(b"{") + text.count(b"[") <= MAX_DEPTH or _is_shallow(text):
        return text
    return drop_deep_values(text)


def _is_shallow(text: bytes) -> bool:
    """Whether it is surely no deeper; False where brackets in strings hide that."""
    rest = text.translate(_ALIKE, _OTHERS)
    for _ in range(MAX_DEPTH):
        shorter = rest.replace(b"{}", b"")
        if not shorter:
            return True
        if len(shorter) == len(rest):
            return False
        rest = shorter
    return False


def drop_deep_values(text: bytes) -> bytes:
    """JSON with ``null`` for each list or map nested more than :data:`MAX_DEPTH` deep."""
    parts: list[bytes] = []
    depth = begin = 0
    for token in _TOKENS.finditer(text):
        bracket = token.group()
        if bracket in {b"[", b"{"}:
            depth += 1
            if depth == MAX_DEPTH + 1:
                parts += [text[begin : token.start()], b"null"]
        elif bracket in {b"]", b"}"}:
            if depth == MAX_DEPTH + 1:
                begin = token.end()
            depth -= 1
    return b"".join([*parts, text[begin:]])
