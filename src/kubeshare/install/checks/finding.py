"""The result of one check, and how checks are run over facts."""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Final, Generic, TypeVar

from msgspec import Struct

F = TypeVar("F")

NAMED: Final = 5
"""Objects that a finding names; more are counted."""


class Level(StrEnum):
    """How good a finding is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(Struct, frozen=True, kw_only=True):
    """What a check found.

    Attributes:
        check: its name.
        level: whether it is as it has to be.
        seen: what was found, a sentence.
        fix: the command or the setting that mends it; ``""`` where nothing is to be mended.
    """

    check: str
    level: Level
    seen: str
    fix: str = ""


class Verdict(Struct, frozen=True):
    """A finding before it has the name of its check."""

    level: Level
    seen: str
    fix: str = ""


class Check(Struct, Generic[F], frozen=True):
    """A check.

    Attributes:
        name: one or two words.
        reads: the facts that it needs, by the names of their attributes.
        judge: called with all facts, if these could be read.
    """

    name: str
    reads: tuple[str, ...]
    judge: Callable[[F], Verdict]


def run(checks: Iterable[Check[F]], facts: F, unread: Mapping[str, str]) -> list[Finding]:
    """The findings of the checks, in their order.

    Args:
        checks: what to find out.
        facts: that were gathered.
        unread: by the name of an attribute that could not be read, why.
    """
    return [_finding(check, facts, unread) for check in checks]


def failed(findings: Iterable[Finding]) -> list[Finding]:
    """Those that say no."""
    return [finding for finding in findings if finding.level is Level.FAIL]


def ok(seen: str) -> Verdict:
    """All is as it has to be."""
    return Verdict(Level.OK, seen)


def warn(seen: str, fix: str) -> Verdict:
    """It works, or may work, with a drawback."""
    return Verdict(Level.WARN, seen, fix)


def fail(seen: str, fix: str) -> Verdict:
    """KubeShare cannot work, or cannot enforce shares."""
    return Verdict(Level.FAIL, seen, fix)


def listed(names: Iterable[str]) -> str:
    """The first names of several, and how many there are beside these."""
    found = list(names)
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return ", ".join(found[:NAMED]) + more


def _finding(check: Check[F], facts: F, unread: Mapping[str, str]) -> Finding:
    reasons = [unread[name] for name in check.reads if name in unread]
    if reasons:
        judged = warn(f"could not be read: {reasons[0]}", "run this as an administrator")
    else:
        judged = check.judge(facts)
    return Finding(check=check.name, level=judged.level, seen=judged.seen, fix=judged.fix)
