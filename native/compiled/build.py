"""Compiles the token daemon's handover with mypyc: ``python -m compiled.build FOLDER``.

The result is one library with all of the modules, and a list of the sources that it was made
from. `kubeshare.compiled` loads it in place of those sources; nothing is written beside
them, so that all else reads and runs the same Python.
"""

import contextlib
import importlib
import json
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import mypy.version
from mypyc.build import include_dir, mypycify

from kubeshare import compiled

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = ROOT / "src"

PACKAGES: Final = ("kubeshare/core/token", "kubeshare/tokens/wire")
"""Folders whose modules are compiled."""

NOT_COMPILED: Final = ("__init__.py", "action.py")
"""What only collects names; and actions, which are compared by value and hashed: mypyc loses what
stands behind the base in a class's head, here ``frozen=True``."""

MODULES: Final = (
    "kubeshare/tokens/arbitration.py",
    "kubeshare/tokens/files/tallies.py",
    "kubeshare/tokens/linux.py",
    "kubeshare/tokens/session.py",
)

_FLAGS: Final = (
    "-O2",
    "-fPIC",
    "-fwrapv",
    "-fvisibility=hidden",
    "-DNDEBUG",
    "-w",
    "-s",
    "-shared",
)


def compiled_files() -> list[str]:
    """The modules to compile, relative to `SOURCES`, sorted."""
    found = [
        str(path.relative_to(SOURCES))
        for package in PACKAGES
        for path in (SOURCES / package).glob("*.py")
        if path.name not in NOT_COMPILED
    ]
    return sorted([*found, *MODULES])


def read_files(files: Sequence[str]) -> list[str]:
    """All of KubeShare's files that these modules import, and they themselves, sorted.

    mypyc copies constants and layouts from one module into another, so the library belongs to
    all of them.
    """
    for file in files:
        importlib.import_module(file.removesuffix(".py").replace("/", "."))
    modules = [module for name, module in sys.modules.items() if name.startswith("kubeshare")]
    return sorted(str(Path(str(module.__file__)).relative_to(SOURCES)) for module in modules)


def build(folder: Path, compiler: Sequence[str]) -> None:
    """Build the library in `folder`, unless it has one of the same sources and tools."""
    files = compiled_files()
    manifest = compiled.Manifest(
        modules=[file.removesuffix(".py").replace("/", ".") for file in files],
        sources=compiled.hashes(SOURCES, read_files(files)),
        tools=[mypy.version.__version__, *compiler],
    )
    library, listed = compiled.library(folder), compiled.manifest(folder)
    with contextlib.suppress(FileNotFoundError):
        if library.exists() and json.loads(listed.read_bytes()) == manifest:
            return
    folder.mkdir(parents=True, exist_ok=True)
    listed.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="compiled-", dir=folder) as scratch:
        unit = _write_c(files, Path(scratch))
        made = Path(scratch) / library.name
        includes = [include_dir(), scratch, sysconfig.get_path("include")]
        command = [*compiler, *_FLAGS, *(f"-I{path}" for path in includes), str(unit)]
        subprocess.run([*command, "-o", str(made)], check=True)
        made.replace(library)
    listed.write_text(json.dumps(manifest, indent=1) + "\n")


def _write_c(files: Sequence[str], folder: Path) -> Path:
    """Translate the modules; returns the one file of C that includes all others."""
    options = [f"--config-file={ROOT / 'pyproject.toml'}", f"--cache-dir={folder / 'cache'}"]
    paths = [str(SOURCES / file) for file in files]
    with Path(os.devnull).open("w") as quiet, contextlib.redirect_stdout(quiet):
        extensions = mypycify([*options, *paths], group_name=compiled.GROUP, target_dir=str(folder))
    lines = []
    for extension in extensions:
        for number, source in enumerate(extension.sources):
            # Each module's file also defines the function of a package, of which one library
            # with all of them has no use.
            unique = f"ks_unused_{extension.name.replace('.', '_')}_{number}"
            lines += [
                f"#define PyInit___init__ {unique}",
                f'#include "{source}"',
                "#undef PyInit___init__",
            ]
    unit = folder / "all.c"
    unit.write_text("\n".join(lines) + "\n")
    return unit


def main() -> int:
    """Build where the arguments say; exit code 1 where the compiler failed."""
    folder, *compiler = sys.argv[1:]
    headers = Path(sysconfig.get_path("include"), "Python.h")
    if not headers.exists():
        print(f"  {headers} is missing: the token daemon will run as pure Python")
        return 0
    try:
        build(Path(folder).resolve(), compiler or shlex.split(os.environ.get("CC", "cc")))
    except subprocess.CalledProcessError as error:
        print(f"compiled: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
