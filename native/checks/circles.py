"""Fails on circles among a library's C files: `python -m checks.circles FOLDER OBJECT…`.

The objects lie in FOLDER as their sources lie in the library's folder. A file needs another if it
has an undefined symbol that the other defines. Files that need each other in a circle can neither
be understood nor tested one by one.
"""

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

TABLES = ("lookup/hook_table",)  # name functions of every part, and call none
MAY_CIRCLE = ("memory",)  # a charge that finds no room has reserves returned, which are charged

SYMBOL = re.compile(r"(?P<name>\S+) (?P<type>[A-Za-z])(?: .*)?")


def symbols(item: Path) -> tuple[set[str], set[str]]:
    """Returns the global symbols that an object file defines, and those that it needs."""
    listed = subprocess.run(
        ["nm", "--extern-only", "--format=posix", item],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    defined: set[str] = set()
    needed: set[str] = set()
    for match in map(SYMBOL.fullmatch, listed.stdout.splitlines()):
        if match:
            (needed if match["type"] in "Uw" else defined).add(match["name"])
    return defined, needed


def graph(folder: Path, objects: Iterable[Path]) -> dict[str, set[str]]:
    """Returns the files that each file needs, by their paths in the folder without `.o`."""
    found = {str(item.relative_to(folder).with_suffix("")): symbols(item) for item in objects}
    home = {name: file for file, (defined, _) in found.items() for name in defined}
    return {
        file: set()
        if file in TABLES
        else {home[name] for name in needed if name in home and home[name] != file}
        for file, (_, needed) in found.items()
    }


def circles(needs: dict[str, set[str]]) -> list[list[str]]:
    """Returns the strongly connected components of more than one file (Tarjan 1972)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(file: str) -> None:
        order[file] = lowest[file] = len(order)
        stack.append(file)
        for needed in sorted(needs[file]):
            if needed not in order:
                visit(needed)
            if needed in stack:
                lowest[file] = min(lowest[file], lowest[needed])
        if lowest[file] == order[file]:
            start = stack.index(file)
            if len(stack) - start > 1:
                found.append(sorted(stack[start:]))
            del stack[start:]

    for file in needs:
        if file not in order:
            visit(file)
    return found


def forbidden(found: Iterable[list[str]]) -> list[list[str]]:
    """Returns the circles that do not stay inside one of the folders that may have them."""
    return [
        circle
        for circle in found
        if not any(all(file.startswith(f"{folder}/") for file in circle) for folder in MAY_CIRCLE)
    ]


def report(needs: dict[str, set[str]]) -> list[str]:
    """Returns a line for each forbidden circle and one for each of its files; empty if none is."""
    lines = []
    for circle in forbidden(circles(needs)):
        lines.append(f"these files need each other in a circle: {', '.join(circle)}")
        lines += [f"  {one} needs {', '.join(sorted(needs[one] & set(circle)))}" for one in circle]
    return lines


if __name__ == "__main__":
    folder, *objects = map(Path, sys.argv[1:])
    sys.exit("\n".join(report(graph(folder, objects))) or None)
