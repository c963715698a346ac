"""The labs of this test run: named by its process, so that two runs never meet."""

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from kubeshare.lab.cluster import Lab, Shape, all_labs
from kubeshare.lab.errors import LabError
from kubeshare.lab.layout import Layout
from kubeshare.lab.node import network

CLUSTER: Final = "tc"
"""The lab that the tests of the lab and of the cluster share."""
GONE: Final = "tg"
"""The labs that are booted to be taken down."""

_NAME: Final = re.compile(rf"(?:{CLUSTER}|{GONE})(?P<pid>\d+)-\d")
_TRIES: Final = 9
_reserved: list[int] = []
"""Descriptors with a lock on the addresses of this run's labs, until it ends."""


def lab_of_this_run(purpose: str) -> Lab:
    """A lab that is not up yet, with a name and a range of addresses of its own.

    Labs of test runs that were killed are taken down first. The addresses are reserved, since
    they are in use only from its boot on.

    Raises:
        LabError: the addresses of nine names are in use.
    """
    _take_down_orphans()
    names = (f"{purpose}{os.getpid()}-{number}" for number in range(1, _TRIES + 1))
    for name in names:
        if _reserve(Layout(name)):
            return Lab(name)
    raise LabError(f"the addresses of {_TRIES} labs are in use")


def _reserve(layout: Layout) -> bool:
    """Keep a lab's addresses for this run; False where another run or this machine has them."""
    file = Path(tempfile.gettempdir()) / f"kubeshare-tests-{layout.network.replace('/', '-')}.lock"
    descriptor = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        network.check_range(layout)
    except (BlockingIOError, LabError):
        os.close(descriptor)
        return False
    _reserved.append(descriptor)
    return True


@contextmanager
def booted_lab(purpose: str, shape: Shape) -> Iterator[Lab]:
    """A lab of this run that is up; down at the end."""
    lab = lab_of_this_run(purpose)
    try:
        lab.up(shape)
        yield lab
    finally:
        lab.down()


def _take_down_orphans() -> None:
    for lab in all_labs():
        match = _NAME.fullmatch(lab.name)
        if match and not Path(f"/proc/{match['pid']}").exists():
            # Another run may be taking it down just now.
            with suppress(LabError):
                lab.down()
