"""Where the native programs and libraries are.

A clone has them under ``native/build`` (``make native``); an image or a
package names its folder in ``KUBESHARE_NATIVE``.
"""

import os
from pathlib import Path

_CLONE_BUILD = Path(__file__).resolve().parents[2] / "native" / "build"

DEVICE_LIBRARY = "libkubeshare-vgpu.so"
FAKE_DRIVER_FOLDER = "fakegpu"


class NativeMissingError(Exception):
    """A native file is not where it should be; the message says how to make it."""


def folder() -> Path:
    """The folder of the native build, whether or not it exists."""
    return Path(os.environ.get("KUBESHARE_NATIVE", _CLONE_BUILD))


def path(name: str) -> Path:
    """The absolute path of a native file or folder.

    Args:
        name: relative to the build folder, for example ``burn`` or ``fakegpu/libcuda.so.1``.

    Raises:
        NativeMissingError: it has not been built.
    """
    found = folder() / name
    if not found.exists():
        raise NativeMissingError(
            f"{found} does not exist: run `make native` in the clone, "
            "or set KUBESHARE_NATIVE to the folder that has it"
        )
    return found
