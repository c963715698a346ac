"""Fails on retired names, crowded folders, long modules and first lines, shared record numbers.

``docs/glossary.md`` has one word a concept. A word that the project gave up comes back with
the next change that copies an old line, unless something says so.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

MOST_MODULES: Final = 16
"""Modules in one folder, packages and ``__main__`` not counted."""

MOST_LINES: Final = 500
"""Lines of one module."""

MOST_WORDS: Final = 12
"""Words in the first line of a module's docstring."""

RETIRED: Final[Mapping[str, str]] = {
    # identifier, or the beginning of a definition -> what it is called now
    "Asker": "Requester",
    "AskerKey": "RequesterKey",
    "AskingObject": "RequesterObject",
    "CarryOut": "Binder",
    "Dismantle": "VGPUDeletion",
    "EarlyPods": "PreboundPods",
    "Endings": "Finalizations",
    "FullNodes": "UnschedulablePods",
    "GangTimeouts": "GangController",
    "GrantedGpu": "GrantedShare",
    "Hindrance": "Blocker",
    "KeptConnections": "ConnectionPool",
    "KeptLedger": "LedgerCache",
    "Latest": "AssumeCache",
    "LeaseElector": "LeaderElector",
    "LostNodes": "DeletedNodes",
    "Mirror": "StatusWriter",
    "MoveOn": "Rescheduler",
    "Nudges": "StartRetries",
    "OnLooked": "OnScanned",
    "PATIENCE_SECONDS": "HOLDER_WAIT_SECONDS",
    "PlainPodLife": "PodController",
    "PoolLife": "PoolController",
    "QuickClient": "DirectClient",
    "Regain": "PlaceholderRecovery",
    "SharePodLife": "SharePodController",
    "SharePodWakes": "SharePodEventHandlers",
    "ShortOfGpus": "UnmetDemand",
    "Suspicions": "PersistentFindings",
    "TakenBack": "LostAllocations",
    "TakenGpus": "ContendedGpus",
    "VGPULife": "VGPUController",
    "VGPUWakes": "VGPUEventHandlers",
    "Watched": "Informers",
    "def _tell": "set_condition, or emit for an event",
    "def _told": "set_condition, or emit for an event",
    "def move_on": "reschedule",
    "def tell": "set_condition, or emit for an event",
    "def told": "set_condition, or emit for an event",
    "devices_program": "device_manager_program",
    "leave_alone": "freeze_live_objects",
    "name_look": "add_reconcile_context",
    "read_place": "parse_cgroup",
    "tell_overhead": "report_overhead",
}

_GENERATED: Final = re.compile(r"_pb2(_grpc)?\.pyi?$")


def modules(root: Path) -> list[Path]:
    """The Python files under `root` that people write, sorted."""
    return sorted(path for path in root.rglob("*.py") if not _GENERATED.search(path.name))


def retired_names(root: Path, retired: Mapping[str, str] = RETIRED) -> Iterator[str]:
    """A line for each use of a retired name under `root`, with its place and its successor."""
    found = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, retired))})(?!\w)")
    for path in modules(root):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            for match in found.finditer(line):
                name = match[1]
                yield f"{path}:{number}: {name} is retired: it is {retired[name]} now"


def crowded_folders(root: Path, most: int = MOST_MODULES) -> Iterator[str]:
    """A line for each folder under `root` with more than `most` modules."""
    counts = Counter(path.parent for path in modules(root) if not path.name.startswith("__"))
    for folder, count in sorted(counts.items()):
        if count > most:
            yield f"{folder}: {count} modules, more than {most}: divide it by what they do"


def long_modules(root: Path, most: int = MOST_LINES) -> Iterator[str]:
    """A line for each module under `root` of more than `most` lines."""
    for path in modules(root):
        lines = len(path.read_text().splitlines())
        if lines > most:
            yield f"{path}: {lines} lines, more than {most}: divide it by what they do"


def long_first_lines(root: Path, most: int = MOST_WORDS) -> Iterator[str]:
    """A line for each module whose docstring begins with more than `most` words."""
    for path in modules(root):
        first = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
        words = len(first.split())
        if words > most:
            yield f"{path}:1: {words} words in the first line, more than {most}: say what it does"


def shared_numbers(records: Path) -> Iterator[str]:
    """A line for each number that several decision records in a folder have."""
    found: dict[str, list[str]] = {}
    for path in sorted(records.glob("[0-9]*.md")):
        found.setdefault(path.name.partition("-")[0], []).append(path.name)
    for number, names in found.items():
        if len(names) > 1:
            yield f"{records}: {number} is the number of {' and '.join(names)}: take the next one"


def main(root: Path, beside: Sequence[Path], records: Path) -> int:
    """Print what is wrong with the modules and the records; exit code 1 when anything is.

    Of the modules in the folders `beside`, only the length counts.
    """
    checks = (retired_names, crowded_folders, long_modules, long_first_lines)
    problems = [problem for check in checks for problem in check(root)]
    problems += [problem for folder in beside for problem in long_modules(folder)]
    problems += shared_numbers(records)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path("src"), (Path("bench"), Path("tests"), Path("tools")), Path("docs/designs")))
