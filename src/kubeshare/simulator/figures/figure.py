"""A figure or table: its numbers, and the claims of the paper."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kubeshare.simulator.measurements import Estimate

SIMULATION: Final = "simulation"
"""It ran in the simulator, in virtual time."""

CORE: Final = "the core"
"""The functions of the core ran, on a ledger in memory."""


class Point(msgspec.Struct, frozen=True):
    """A point of a line, with the interval of its height."""

    x: float
    y: Estimate


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What the paper says, what came out here, and whether the one holds for the other.

    Attributes:
        paper, here, holds: these.
        why: why the two differ; "" where they do not.
    """

    paper: str
    here: str
    holds: bool
    why: str = ""


class Quoted(msgspec.Struct, frozen=True, kw_only=True):
    """A kept result.

    Attributes:
        file: where it is in a clone.
        date, commit, machine: when, of which commit and where it was measured, as its first line
            says.
    """

    file: str
    date: str
    commit: str
    machine: str


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure or a table.

    Attributes:
        name: as in the paper.
        title, x, y: what it shows, and what its axes are.
        lines: name → its points; all lines have the same x.
        paper: what the paper's text states, in the same axes: name → points without intervals.
            Empty where it states no number: its curves are not read off pictures.
        ticks: the names of x = 0, 1, … where x is no number.
        table: rows of text, the header first, of what is no line.
        claims: of the paper.
        chosen: what the paper leaves open, and what was taken here.
        ran: where it ran.
        quoted: the kept result that it quotes; None if it ran now.
    """

    name: str
    title: str
    x: str = ""
    y: str = ""
    lines: Mapping[str, Sequence[Point]] = msgspec.field(default_factory=dict)
    paper: Mapping[str, Sequence[Point]] = msgspec.field(default_factory=dict)
    ticks: Sequence[str] = ()
    table: Sequence[Sequence[str]] = ()
    claims: Sequence[Claim]
    chosen: Sequence[str] = ()
    ran: str = SIMULATION
    quoted: Quoted | None = None

    @property
    def where(self) -> str:
        """Where it ran, and the kept result that it quotes."""
        return f"{self.ran}, quoted from {self.quoted.file}" if self.quoted else self.ran

    @property
    def measured(self) -> str:
        """``(measured on …)``: date, commit and machine of a kept result; "" if it ran now."""
        if self.quoted is None:
            return ""
        kept = self.quoted
        return f" (measured {kept.date}, commit {kept.commit}, {kept.machine})"

    @property
    def heading(self) -> str:
        """``Figure 9``, ``Table 1``, ``Gaia figure 4``."""
        words = self.name.replace("-", " ")
        return f"Figure {words}" if words[0].isdigit() else words[0].upper() + words[1:]

    @property
    def holds(self) -> bool:
        """Whether all its claims hold."""
        return all(claim.holds for claim in self.claims)


def stated(*points: tuple[float, float]) -> list[Point]:
    """Points of a paper, each x and y, without intervals."""
    return [Point(x, Estimate(y, None)) for x, y in points]


def bars(values: Sequence[float]) -> list[Point]:
    """Points without intervals at x = 0, 1, …."""
    return [Point(at, Estimate(value, None)) for at, value in enumerate(values)]


class NotReproducedError(Exception):
    """A figure cannot be made here; the message says why, and what to do."""

    exit_code = 3
