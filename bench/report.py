"""Lines of the bench: a number, its goal, and whether it is met."""

import json
import statistics
from collections.abc import Sequence
from typing import Any


def line(what: str, goal: str, value: float, *, met: bool, **made_from: Any) -> bool:
    """Print one number as a JSON line.

    Args:
        what: what was measured, with its unit.
        goal: in words.
        value: the number that the goal speaks of.
        met: whether it is met.
        made_from: the raw numbers of both sides.

    Returns:
        ``met``, so that callers can count.
    """
    entry = {"what": what, "goal": goal, "value": round(value, 4), "met": met} | made_from
    print(json.dumps(entry), flush=True)
    return met


def median(values: Sequence[float]) -> float:
    """The middle one: a stray run does not move it."""
    return statistics.median(values)
