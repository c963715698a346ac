"""Shows how far a long step is, on a terminal."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

import click

from kubeshare.simulator.experiment import Progress, no_progress

PERIOD_S: Final = 1.0
"""How often the elapsed time is shown."""

_ERASE: Final = "\r\x1b[K"


@contextmanager
def progress_bar(jobs: int, step: str = "jobs", seconds: float = 0) -> Iterator[Progress]:
    """A bar of so many jobs on the standard error, if that is a terminal.

    Args:
        jobs: how many; of a step that counts none, the elapsed time is shown.
        step: its name.
        seconds: about how long such a step takes; 0 if that is not known.
    """
    if not jobs:
        with elapsed_time(step, seconds):
            yield no_progress
        return
    if not sys.stderr.isatty():
        yield no_progress
        return
    with click.progressbar(
        length=jobs, label=step, file=sys.stderr, update_min_steps=max(1, jobs // 200)
    ) as bar:
        yield bar.update


@contextmanager
def elapsed_time(step: str, seconds: float = 0) -> Iterator[None]:
    """The name of a step and its seconds, on the standard error, if that is a terminal.

    Args:
        step: its name.
        seconds: about how long it takes; 0 if that is not known.
    """
    if not sys.stderr.isatty():
        yield
        return
    ended = Event()
    thread = Thread(target=_show, args=(step, seconds, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _show(step: str, seconds: float, ended: Event) -> None:
    """Renew the line until the step has ended; one shorter than a period shows nothing."""
    begun = time.monotonic()
    shown, of = False, f" of about {seconds:.0f} s" if seconds else ""
    while not ended.wait(PERIOD_S):
        sys.stderr.write(f"{_ERASE}{step}: {time.monotonic() - begun:.0f} s{of}")
        sys.stderr.flush()
        shown = True
    if shown:
        sys.stderr.write(_ERASE)
        sys.stderr.flush()
