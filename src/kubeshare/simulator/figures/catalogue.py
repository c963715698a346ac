"""All figures and tables that can be reproduced, by name."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec

from kubeshare.simulator.experiment import Progress
from kubeshare.simulator.figures import gpushare
from kubeshare.simulator.figures.figure import Figure
from kubeshare.simulator.figures.gaia import experiments, utilisation
from kubeshare.simulator.figures.gaia import tables as gaia
from kubeshare.simulator.figures.kubeshare import (
    abstract,
    fragmentation,
    interference,
    one_gpu,
    overhead,
    tables,
    throughput,
)

Make = Callable[[int, Progress], Figure]
"""Makes a figure, of so many seeds.

Raises:
    NotReproducedError: it cannot be made here.
    KeyboardInterrupt: it was interrupted.
"""


class Entry(msgspec.Struct, frozen=True):
    """A figure that can be made.

    Attributes:
        make: makes it; None where it only summarises others.
        jobs: how many jobs arrive in all of its runs, of so many seeds.
        seconds: about how long it takes, where it is measured in real time.
        needs: the figures that it summarises.
        summarise: makes it from them, by name.
    """

    make: Make | None = None
    jobs: Callable[[int], int] = lambda _: 0
    seconds: int = 0
    needs: tuple[str, ...] = ()
    summarise: Callable[[Mapping[str, Figure]], Figure] | None = None


def _throughput(name: str, make: Make) -> Entry:
    return Entry(make, partial(throughput.jobs_of, name))


def _gaia_figure(name: str) -> Entry:
    return Entry(lambda _seeds, _progress: gaia.figure(name))


def _gaia_table(number: str) -> Entry:
    return Entry(
        lambda _seeds, progress: gaia.table(number, progress), lambda _: gaia.runs_of(number)
    )


FIGURES: Final[dict[str, Entry]] = {
    "3": Entry(fragmentation.figure_3, lambda _: 2 * len(fragmentation.DEMANDS)),
    "5": Entry(one_gpu.figure_5, seconds=60),
    "6": Entry(one_gpu.figure_6, seconds=90),
    "7": Entry(one_gpu.figure_7, seconds=240),
    "8a": _throughput("8a", throughput.figure_8a),
    "8b": _throughput("8b", throughput.figure_8b),
    "8c": _throughput("8c", throughput.figure_8c),
    "9": _throughput("9", throughput.figure_9),
    "10": Entry(overhead.figure_10),
    "11": Entry(overhead.figure_11),
    "12": Entry(one_gpu.figure_12, seconds=60),
    "13": Entry(interference.figure_13, interference.jobs_of),
    "table-1": Entry(tables.table_1),
    "table-2": Entry(tables.table_2),
    "table-3": Entry(tables.table_3),
    "claims": Entry(needs=abstract.NEEDS, summarise=abstract.abstract),
    "gaia-figure-4": _gaia_figure("gaia-figure-4"),
    "gaia-figure-5": _gaia_figure("gaia-figure-5"),
    "gaia-table-1": _gaia_table("1"),
    "gaia-table-2": _gaia_table("2"),
    "gaia-table-3": _gaia_table("3"),
    "gaia-table-4": _gaia_table("4"),
    "gaia-experiment-5": Entry(experiments.experiment_5),
    "gaia-experiment-6": Entry(experiments.experiment_6),
    "gaia-utilisation": Entry(utilisation.figure, utilisation.jobs_of),
    "gpushare": Entry(gpushare.examples),
}
"""Name → its entry, in the order of the papers."""


def jobs_of(name: str, seeds: int, made: Mapping[str, Figure]) -> int:
    """How many jobs arrive until a figure is made, beside those that are made already."""
    entry = FIGURES[name]
    return entry.jobs(seeds) + sum(
        jobs_of(each, seeds, made) for each in entry.needs if each not in made
    )


def make(name: str, seeds: int, progress: Progress, made: dict[str, Figure]) -> Figure:
    """Make a figure, and those that it summarises.

    Args:
        name: of the figure.
        seeds: how many.
        progress: told of jobs that arrive.
        made: the figures that were made before, by name; gets the new ones.

    Raises:
        NotReproducedError: it, or one that it summarises, cannot be made here.
        KeyboardInterrupt: it was interrupted.
    """
    if name in made:
        return made[name]
    entry = FIGURES[name]
    if entry.summarise is not None:
        parts = {each: make(each, seeds, progress, made) for each in entry.needs}
        made[name] = entry.summarise(parts)
    else:
        assert entry.make is not None
        made[name] = entry.make(seeds, progress)
    return made[name]
