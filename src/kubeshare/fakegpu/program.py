"""Runs ``fakegpu-stat``, the program that reads profiles and states."""

import json
import os
import subprocess
from collections.abc import Mapping
from typing import Any

from kubeshare import native
from kubeshare.fakegpu.errors import FakeGpuError

_PROGRAM = "fakegpu-stat"
_VARIABLES = ("FAKEGPU_PROFILE", "FAKEGPU_STATE", "FAKEGPU_SEED")


def ask(*arguments: str, settings: Mapping[str, str]) -> Any:
    """The JSON that the program prints.

    Args:
        arguments: of the program.
        settings: the only variables for the fake GPU that it sees.

    Raises:
        FakeGpuError: the program says that it cannot; its own words.
        NativeMissingError: it has not been built.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in _VARIABLES}
    done = subprocess.run(  # noqa: S603 - our own program, by its path
        [native.path(_PROGRAM), *arguments],
        env={**inherited, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise FakeGpuError(done.stderr.strip().removeprefix(f"{_PROGRAM}: "))
    return json.loads(done.stdout)
