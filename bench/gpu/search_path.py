"""Where a copied tree finds KubeShare and the few packages that it needs.

A machine with a GPU often has no network and no pip. So the tree brings its source and, in a folder
``packages``, whatever that machine's Python lacks (`make gpu-tree` packs both), as packages or as
the wheels that pip downloads.
"""

import os
import sys
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ROOT / "packages"
NEEDED: Final = ("click", "msgspec", "pynvml", "structlog")


class WheelError(Exception):
    """A wheel in `PACKAGES` cannot be unpacked."""


def extend() -> None:
    """Let this process and those that it starts import from the tree.

    Raises:
        WheelError: a wheel cannot be unpacked; the message names it.
    """
    _unpack_wheels()
    folders = [str(ROOT), str(ROOT / "src"), str(PACKAGES)]
    sys.path[1:1] = folders
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*folders, *([before] if before else [])])


def _unpack_wheels() -> None:
    """Unpack wheels once: Python imports no compiled module from one."""
    for wheel in PACKAGES.glob("*.whl"):
        name, version, *_ = wheel.name.split("-")
        if not (PACKAGES / f"{name}-{version}.dist-info").exists():
            try:
                with zipfile.ZipFile(wheel) as opened:
                    opened.extractall(PACKAGES)
            except (OSError, zipfile.BadZipFile) as error:
                raise WheelError(f"{wheel}: {error}") from None


def missing() -> dict[str, str]:
    """Packages that cannot be imported -> why."""
    found = {}
    for name in NEEDED:
        try:
            import_module(name)
        except ImportError as error:
            found[name] = str(error)
    return found
