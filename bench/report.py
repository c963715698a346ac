"""Results of a bench as JSON lines: each number with its spread and its goal.

The first line of a run is ``{"machine": …}``: processor, its speed now, commit, versions. Then
comes one line for each number: ``what`` (with the unit), ``value`` (the median), ``low`` and
``high`` (the spread of the runs), ``runs``, ``better`` (``lower`` or ``higher``), ``goal``,
``met``, and whatever the number was made from. ``met`` is null for a number without a goal, which
is not counted. ``python -m bench.compare OLD NEW`` compares two such outputs.
"""

import datetime as dt
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from bench.cpu_time import reference_seconds, slowness

Met: TypeAlias = bool | None
"""Whether a goal is met; None for a number without a goal."""

Answer = TypeVar("Answer")

_ROOT: Final = Path(__file__).parents[1]


class Goal(NamedTuple):
    """What a number has to reach.

    Attributes:
        text: as it is printed.
        better: which direction is an improvement.
        is_met: whether a number meets the goal; None for no goal.
    """

    text: str
    better: Literal["lower", "higher"]
    is_met: Callable[[float], bool] | None


def at_most(bound: float) -> Goal:
    """A number that is to be `bound` or less."""
    return Goal(f"<= {bound:g}", "lower", lambda value: value <= bound)


def less_than(bound: float) -> Goal:
    """A number that is to be less than `bound`."""
    return Goal(f"< {bound:g}", "lower", lambda value: value < bound)


def at_least(bound: float) -> Goal:
    """A number that is to be `bound` or more."""
    return Goal(f">= {bound:g}", "higher", lambda value: value >= bound)


def time_at_most(bound: float) -> Goal:
    """A time, or a part of a core, that is to be `bound` or less on a quick machine.

    A slower one may take as many times as much as it takes for a fixed work just now. A goal made
    before a bench has run is that of another moment.
    """
    here = bound * slowness()
    return Goal(f"<= {here:.3g} here, {bound:g} quick", "lower", lambda value: value <= here)


def rate_at_least(bound: float) -> Goal:
    """So much in a second, or more, on a quick machine; as in :func:`time_at_most`."""
    here = bound / slowness()
    return Goal(f">= {here:.5g} here, {bound:g} quick", "higher", lambda value: value >= here)


NO_GOAL: Final = Goal("none", "lower", None)
"""A number that is only reported, the lower the better."""

NO_GOAL_HIGHER: Final = Goal("none", "higher", None)
"""A number that is only reported, the higher the better."""


def report(what: str, goal: Goal, values: float | Sequence[float], **made_from: Any) -> Met:
    """Print one number as a JSON line; its median is held against the goal.

    Args:
        what: what was measured, with its unit; the key by which outputs are compared.
        goal: what the number has to reach.
        values: one value of each run.
        made_from: raw numbers of both sides.
    """
    runs = [values] if isinstance(values, int | float) else list(values)
    value = median(runs)
    met = None if goal.is_met is None else goal.is_met(value)
    entry = {
        "what": what,
        "goal": goal.text,
        "value": round(value, 4),
        "low": round(min(runs), 4),
        "high": round(max(runs), 4),
        "runs": len(runs),
        "better": goal.better,
        "met": met,
    }
    print(json.dumps(entry | made_from), flush=True)
    return met


class Sample(NamedTuple):
    """One number of one run of a bench that runs as a whole several times."""

    what: str
    goal: Goal
    value: float
    made_from: Mapping[str, Any]


def sample(what: str, goal: Goal, value: float, **made_from: Any) -> Sample:
    """A number of one run; :func:`report_runs` prints it together with the other runs'."""
    return Sample(what, goal, value, made_from)


def report_runs(runs: Sequence[Sequence[Sample]]) -> list[Met]:
    """Print each number of several whole runs; what each was made from is listed by run."""
    by_name: dict[str, list[Sample]] = {}
    for run in runs:
        for one in run:
            by_name.setdefault(one.what, []).append(one)
    results = []
    for what, samples in by_name.items():
        details = [dict(one.made_from) for one in samples if one.made_from]
        made_from = {"each": details} if details else {}
        results.append(report(what, samples[0].goal, [one.value for one in samples], **made_from))
    return results


def summarize(results: Iterable[Met]) -> int:
    """Print how many goals are met; the exit code: 1 when one is missed."""
    every = list(results)
    goals = [met for met in every if met is not None]
    print(json.dumps({"goals": len(goals), "met": sum(goals), "no_goal": len(every) - len(goals)}))
    return 0 if all(goals) else 1


def machine() -> dict[str, Any]:
    """Where, when and from which commit the numbers of a run are."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load": round(os.getloadavg()[0], 2),
        "reference_ms": round(statistics.median(reference_seconds(9)) * 1e3, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "commit": _git("rev-parse", "--short", "HEAD") or _packed_commit(),
        "uncommitted_changes": bool(_git("status", "--porcelain")),
        "started": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "arguments": sys.argv[1:],
    }


def print_machine() -> None:
    """Print the first line of a run."""
    print(json.dumps({"machine": machine()}), flush=True)


def interleave(
    rounds: int, one: Callable[[], Answer], other: Callable[[], Answer]
) -> tuple[list[Answer], list[Answer]]:
    """Run both sides of a comparison in turn, so that a noisy machine disturbs both alike.

    The side that goes first changes each round: what warms up or drifts favours neither.
    """
    ones: list[Answer] = []
    others: list[Answer] = []
    for number in range(rounds):
        if number % 2 == 0:
            ones.append(one())
            others.append(other())
        else:
            others.append(other())
            ones.append(one())
    return ones, others


def differences(values: Sequence[float], baseline: Sequence[float]) -> list[float]:
    """By how much each value is above the baseline of the same round."""
    return [value - base for value, base in zip(values, baseline, strict=True)]


def ratios(values: Sequence[float], baseline: Sequence[float]) -> list[float]:
    """Each value divided by the baseline of the same round."""
    return [value / base for value, base in zip(values, baseline, strict=True)]


def median(values: Sequence[float]) -> float:
    """The middle value, which one stray run does not move."""
    return statistics.median(values)


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that so many percent of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def _cpu() -> str:
    for text in Path("/proc/cpuinfo").read_text().splitlines():
        if text.startswith("model name"):
            return text.partition(":")[2].strip()
    return platform.machine()


def _packed_commit() -> str:
    """What `make gpu-tree` wrote into a tree without git; empty where it did not."""
    file = _ROOT / "COMMIT"
    return file.read_text().strip() if file.exists() else ""


def _git(*arguments: str) -> str:
    """What git prints; empty where this is no clone or git is not installed."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return done.stdout.strip()
