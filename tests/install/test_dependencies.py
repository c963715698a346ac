"""Every package that the product imports is one that it declares."""

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import distribution
from itertools import chain
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "kubeshare"
EXTRAS = ("simulator", "web")
"""Folders of `src/kubeshare` with dependencies of an extra of the same name."""
OPTIONAL = ("sim", "simulator")
"""Extras without which a command draws nothing, or writes no Parquet, and says so."""
LAB = ("demo", "fakegpu", "lab")
"""Folders that are in a wheel of their own, which depends on this one."""


def imported(folder: Path, *without: str) -> set[str]:
    """The top-level modules that are imported below a folder."""

    skipped = {SOURCES / name for name in without}
    files = [each for each in folder.rglob("*.py") if not skipped & set(each.parents)]
    found = {name for file in files for name in imported_by(file)}
    return found - set(sys.stdlib_module_names) - {"kubeshare"}


@cache
def imported_by(file: Path) -> frozenset[str]:
    """The top-level modules that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return frozenset(found)


def declared(extra: str = "") -> list[str]:
    """The distributions that the project depends on, with those of an extra."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = table["dependencies"] + table["optional-dependencies"].get(extra, [])
    return [re.split(r"[\s<>=!~;\[]", each, maxsplit=1)[0] for each in requirements]


def provided(name: str) -> set[str]:
    """The top-level modules of a distribution."""
    return {file.parts[0].partition(".")[0] for file in distribution(name).files or ()}


@pytest.mark.parametrize("folder", ["", *EXTRAS])
def test_every_import_is_declared(folder: str) -> None:
    modules = imported(SOURCES / folder, *LAB, *([] if folder else EXTRAS))
    names = {*declared(folder), *chain.from_iterable(map(declared, OPTIONAL))}
    assert modules <= set().union(*(provided(name) for name in names))


def test_every_declared_package_is_imported() -> None:
    modules = imported(SOURCES, *LAB)
    assert [name for name in declared() if not provided(name) & modules] == []
