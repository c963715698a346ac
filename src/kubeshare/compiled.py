"""Runs the compiled modules of a handover in place of their sources.

``make native`` compiles them with mypyc into one library. They are used only if they were made
from the sources that are here: else, or where there is no library for this Python, the sources
themselves run, and do the same more slowly. See ``docs/designs/054``.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import source_hash, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple, TypedDict

from kubeshare import native

FOLDER: Final = "compiled"
"""In the folder of the native build."""

GROUP: Final = "kubeshare_handover"
_COMMON: Final = f"{GROUP}__mypyc"
"""What mypyc's modules have in common: each imports it."""
_SOURCES: Final = Path(__file__).resolve().parents[1]


class Manifest(TypedDict):
    """What a library consists of and was made from.

    Attributes:
        modules: the names of its modules.
        sources: the hash of each file that they were made from, by its path below ``src``.
        tools: what made it.
    """

    modules: list[str]
    sources: dict[str, str]
    tools: list[str]


class Code(NamedTuple):
    """Which code runs.

    Attributes:
        is_compiled: whether the compiled modules do.
        why_not: why the sources do; empty where they do not.
    """

    is_compiled: bool
    why_not: str = ""


def library(folder: Path) -> Path:
    """The library of this Python's version and machine in a folder of compiled modules."""
    return folder / f"{GROUP}{EXTENSION_SUFFIXES[0]}"


def manifest(folder: Path) -> Path:
    """The file beside `library` that has its `Manifest` as JSON."""
    return folder / f"{GROUP}{EXTENSION_SUFFIXES[0]}.json"


def hashes(sources: Path, files: Iterable[str]) -> dict[str, str]:
    """The hashes by which Python compares sources and bytecode, of files below `sources`.

    Raises:
        OSError: one of them cannot be read.
    """
    return {file: source_hash((sources / file).read_bytes()).hex() for file in files}


def use(folder: Path | None = None) -> Code:
    """Have imports find the compiled modules from now on; call it before any of them is imported.

    Args:
        folder: of compiled modules; that of the native build where it is left out.
    """
    folder = folder or native.folder() / FOLDER
    found = library(folder)
    try:
        listed: Manifest = json.loads(manifest(folder).read_bytes())
        if hashes(_SOURCES, listed["sources"]) != listed["sources"]:
            return Code(False, f"{found} was made from other sources: run `make native`")
        finder = _Finder(found, listed["modules"])
    except FileNotFoundError as error:
        return Code(False, f"{error.filename} does not exist: run `make native`")
    except (OSError, ValueError, TypeError, KeyError) as error:
        return Code(False, f"{manifest(folder)} cannot be read: {error!r}")
    sys.meta_path.insert(0, finder)
    try:
        import_module(_COMMON)
    except ImportError as error:
        sys.meta_path.remove(finder)
        return Code(False, f"{found} cannot be loaded: {error}")
    return Code(True)


class _Finder(MetaPathFinder):
    """Finds some modules in one library."""

    def __init__(self, found: Path, modules: Iterable[str]) -> None:
        self._library = str(found)
        self._modules = {*modules, _COMMON}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002  of the protocol
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        if fullname not in self._modules:
            return None
        loader = ExtensionFileLoader(fullname, self._library)
        return spec_from_file_location(fullname, self._library, loader=loader)
