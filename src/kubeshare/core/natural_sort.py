"""Natural sort order of names: "n2" before "n10"."""

import re
from typing import Final

_DIGITS: Final = "0123456789"
_RUNS: Final = re.compile(r"[0-9]+|[^0-9]+")


def natural(text: str) -> str:
    """A text that sorts so that "2" comes before "10" and "n2" before "n10".

    Runs of ASCII digits compare as numbers and come before other text; equal
    numbers that are written differently ("1", "01") still differ by their text.

    Characters 0 and 1 begin a number and other text, and its own are written as two.
    A number begins with its length, after which its digits compare as a number does.
    """
    return "".join(
        f"\0{_length(len(part.lstrip('0')))}{part.lstrip('0')}{part}"
        if part[0] in _DIGITS
        else "\1" + part.replace("\1", "\1\2").replace("\0", "\1\1")
        for part in _RUNS.findall(text)
    )


def _length(digits: int) -> str:
    """A length as text that sorts as it does, however long the number."""
    return "\x7f" * (digits // 126) + chr(digits % 126)
