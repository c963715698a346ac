"""Where a copied tree finds KubeShare and the few packages that it needs.

A machine with a GPU often has no network and no pip. So the tree brings its source and, in a folder
``packages``, whatever that machine's Python lacks (`make gpu-tree` packs both).
"""

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ROOT / "packages"
NEEDED: Final = ("click", "msgspec", "pynvml", "structlog")


def extend() -> None:
    """Let this process and those that it starts import from the tree."""
    folders = [str(ROOT), str(ROOT / "src"), str(PACKAGES)]
    sys.path[1:1] = folders
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*folders, *([before] if before else [])])


def missing() -> dict[str, str]:
    """Packages that cannot be imported -> why."""
    found = {}
    for name in NEEDED:
        try:
            import_module(name)
        except ImportError as error:
            found[name] = str(error)
    return found
