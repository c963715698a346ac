"""What earlier runs have found, so that a run can be stopped and taken up again.

A verdict stands as long as its module is as it was. That a mutant lives stands only as
long as the tests are as they were, too, unless somebody has said why it may live. It is
a file of JSON lines, which git ignores.
"""

import hashlib
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Final

import msgspec

from robustness.mutants.forks import Verdict
from robustness.mutants.mutations import Mutant
from robustness.mutants.suite import PACKAGES, REPOSITORY, SOURCES

ALIVE: Final = ("survived", "not run")


class _Line(msgspec.Struct):
    """A verdict, by which test it is, and what the module and the tests were then."""

    name: str
    module: str
    tests: str
    verdict: Verdict
    by: str


class Record:
    """Verdicts by the names of mutants.

    Args:
        path: where they are kept.
        package: of which mutants are judged.
        excused: the names of those of which it is said why they live.
    """

    def __init__(self, path: Path, package: str, excused: Container[str]) -> None:
        self._path = path
        self._excused = excused
        places = [REPOSITORY / place for place in PACKAGES[package]]
        self._tests = _digest(
            file for place in places for file in sorted((place, *place.rglob("*")))
        )
        self._modules: dict[str, str] = {}
        self._lines: dict[str, _Line] = {}
        if path.exists():
            for text in path.read_bytes().splitlines():
                line = msgspec.json.decode(text, type=_Line)
                self._lines[line.name] = line

    def verdict(self, mutant: Mutant) -> Verdict | None:
        """What is known of it and still stands."""
        line = self._lines.get(mutant.name)
        if line is None or line.module != self._module(mutant.module):
            return None
        if line.tests == self._tests or line.verdict not in ALIVE or line.name in self._excused:
            return line.verdict
        return None

    def add(self, mutant: Mutant, verdict: Verdict, by: str) -> None:
        """Keep a verdict, and by which test it is."""
        line = _Line(mutant.name, self._module(mutant.module), self._tests, verdict, by)
        self._lines[mutant.name] = line
        self._path.parent.mkdir(exist_ok=True)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")

    def _module(self, module: str) -> str:
        if module not in self._modules:
            self._modules[module] = _digest([SOURCES / module])
        return self._modules[module]


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        if file.is_file() and file.suffix != ".pyc":
            digest.update(f"{file.relative_to(REPOSITORY)}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
