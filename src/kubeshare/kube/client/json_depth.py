"""Objects nested so deeply that reading them would end the program.

The schema of a kind may keep fields that it does not know, and the API server takes ten
thousand levels of them; reading goes down level by level, as does whatever looks at the object
after that. No kind of Kubernetes' own nests its fields anywhere near so deeply, so what
lies deeper is no part of any, and is left out.
"""

import re
from typing import Final

MAX_DEPTH: Final = 256
"""Levels of lists and maps that are read: a fourth of what Python takes."""

_BRACKETS: Final = b"[]{}"
_OTHERS: Final = bytes(set(range(256)) - set(_BRACKETS))
_ALIKE: Final = bytes.maketrans(b"[]", b"{}")
_TOKENS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def limit_depth(text: bytes) -> bytes:
    """JSON without what is nested more than :data:`DEPTH` deep; nothing else of it is changed.

    Args:
        text: valid JSON, or what will be found not to be.
    """
    if text.count(b"{") + text.count(b"[") <= MAX_DEPTH or _is_shallow(text):
        return text
    return drop_deep_values(text)


def _is_shallow(text: bytes) -> bool:
    """It is surely no deeper; brackets within strings may hide that."""
    left = text.translate(_ALIKE, _OTHERS)
    for _ in range(MAX_DEPTH):
        shorter = left.replace(b"{}", b"")
        if not shorter:
            return True
        if len(shorter) == len(left):
            return False
        left = shorter
    return False


def drop_deep_values(text: bytes) -> bytes:
    """JSON with ``null`` for each list and map that is nested more than :data:`DEPTH` deep."""
    kept: list[bytes] = []
    depth = begin = 0
    for token in _TOKENS.finditer(text):
        bracket = token.group()
        if bracket in {b"[", b"{"}:
            depth += 1
            if depth == MAX_DEPTH + 1:
                kept += [text[begin : token.start()], b"null"]
        elif bracket in {b"]", b"}"}:
            if depth == MAX_DEPTH + 1:
                begin = token.end()
            depth -= 1
    return b"".join([*kept, text[begin:]])
