"""Natural sort order of names: "n2" before "n10"."""

import re
from functools import lru_cache
from typing import Final

_DIGITS: Final = "0123456789"
_RUNS: Final = re.compile(r"[0-9]+|[^0-9]+")


def natural(text: str) -> str:
    """The sort key of a name, by which "2" is before "10" and "n2" before "n10".

    Runs of ASCII digits compare as numbers and sort before other text; equal numbers that are
    written differently ("1", "01") still differ by their text.

    In the key, the characters 0 and 1 introduce a number and other text; where they occur in
    text they are escaped. A number begins with its length, so its digits compare as a number.
    """
    return "".join(map(_of_run, _RUNS.findall(text)))


@lru_cache(maxsize=1 << 14)
def natural_name(name: str) -> str:
    """The sort key of the name of a node or model: few names occur often, so it is cached."""
    return natural(name)


@lru_cache(maxsize=1 << 14)  # a name has few different runs, a list of names too
def _of_run(run: str) -> str:
    if run[0] in _DIGITS:
        number = run.lstrip("0")
        return f"\0{_length(len(number))}{number}{run}"
    return "\1" + run.replace("\1", "\1\2").replace("\0", "\1\1")


def _length(digits: int) -> str:
    """A number of digits as text that sorts in the same order."""
    return "\x7f" * (digits // 126) + chr(digits % 126)
