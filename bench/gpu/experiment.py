"""What an experiment is: a title, the seconds that it takes, how it is run and drawn."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from bench.gpu.clients import Bench

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Result = dict[str, Any]
"""What can be written as JSON."""


class LeftOutError(Exception):
    """This machine cannot run it; the message says why."""


class Experiment(Struct, frozen=True):
    """One part of the report.

    Attributes:
        name: key in the JSON, and name of the picture.
        title: for people.
        seconds: that it takes at most at full pace; used to keep within the time.
        run: measures, and returns what can be written as JSON.
        draw: the picture of a result, where there is one.
        missed: what of a result is not as it must be, in words; empty where all is.
    """

    name: str
    title: str
    seconds: float
    run: Callable[[Bench], Result]
    draw: Callable[["Axes", Result], None] | None = None
    missed: Callable[[Result], str] | None = None
