"""Fails on retired names and on folders with too many modules: ``python tools/check_layout.py``.

``docs/glossary.md`` has one word a concept. A word that the project gave up comes back with
the next change that copies an old line, unless something says so.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

MOST_MODULES: Final = 16
"""Modules in one folder, packages and ``__main__`` not counted."""

RETIRED: Final[Mapping[str, str]] = {
    # identifier, or the beginning of a definition -> what it is called now
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


def main(root: Path) -> int:
    """Print what is wrong under `root`; exit code 1 when anything is."""
    problems = [*retired_names(root), *crowded_folders(root)]
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path("src")))
