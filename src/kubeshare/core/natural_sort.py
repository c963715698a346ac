"""Natural sort order of names: "n2" before "n10"."""

import re
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
    return "".join(
        f"\0{_length(len(run.lstrip('0')))}{run.lstrip('0')}{run}"
        if run[0] in _DIGITS
        else "\1" + run.replace("\1", "\1\2").replace("\0", "\1\1")
        for run in _RUNS.findall(text)
    )


def _length(digits: int) -> str:
    """A number of digits as text that sorts in the same order."""
    return "\x7f" * (digits // 126) + chr(digits % 126)
