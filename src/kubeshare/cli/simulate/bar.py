"""The progress bar of a simulation."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from kubeshare.simulator.experiment import Progress, no_progress


@contextmanager
def progress_bar(jobs: int) -> Iterator[Progress]:
    """A bar of so many jobs on the standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield no_progress
        return
    with click.progressbar(
        length=jobs, label="jobs", file=sys.stderr, update_min_steps=max(1, jobs // 200)
    ) as bar:
        yield bar.update
