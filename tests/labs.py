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
_LOCK: Final = Path(tempfile.gettempdir()) / "kubeshare-tests-boot.lock"


def lab_of_this_run(purpose: str) -> Lab:
    """A lab that is not up yet, with a name and a range of addresses of its own.

    Labs of test runs that were killed are taken down first.

    Raises:
        LabError: the addresses of nine names are in use.
    """
    _take_down_orphans()
    for number in range(1, _TRIES + 1):
        name = f"{purpose}{os.getpid()}-{number}"
        try:
            network.check_range(Layout(name))
        except LabError:
            if number == _TRIES:
                raise
        else:
            break
    return Lab(name)


@contextmanager
def booted_lab(purpose: str, shape: Shape) -> Iterator[Lab]:
    """A lab of this run that is up; down at the end.

    Runs boot theirs one after another: the addresses of a lab are in use from its boot on.
    """
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lab = lab_of_this_run(purpose)
        try:
            lab.up(shape)
        except BaseException:
            lab.down()
            raise
    try:
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
