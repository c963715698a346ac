"""Runs the tests of a package, and judges whether they notice a mutant.

They are collected once. Each mutant is then a fork of that process, in which one
function's code is exchanged, and which runs the tests that execute the changed
statement until one fails. A mutant of what runs at import is a fork that imports
everything anew.

All is repeatable: hypothesis draws the same examples each time, and time is that of
the processor, so that a busy machine does not look like an endless loop.
"""

import gc
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import click
import coverage
import msgspec
import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, Phase, settings

from few_examples import limit_examples
from robustness.mutants.forks import Verdict, answer_of, judged, limit_time
from robustness.mutants.mutations import Mutant
from robustness.mutants.swap import Changed, Functions, clear_caches, forget_modules

REPOSITORY: Final = Path(__file__).parents[3]
SOURCES: Final = REPOSITORY / "src" / "kubeshare"
PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "core": (
        "tests/core",
        "tests/conformance",
        "tests/dialects",
        "tests/cli/test_plan.py",
        "tests/docs",
        "tests/robustness/fuzz",
    ),
    "kube": ("tests/kube",),
    "scheduler": ("tests/scheduler",),
    # An extender that decides in its filter leaves it to the device manager to name the GPUs.
    "device_manager": ("tests/device_manager", "tests/extender/test_predicates.py"),
    "node": ("tests/node",),
    "tokens": ("tests/tokens",),
}
"""Package of which mutants are made -> the tests that must notice them."""

_OPTIONS: Final = (
    *("-o", "addopts=", "--import-mode=importlib", "-s", "--timeout=0"),
    # This module imports hypothesis before pytest loads its plugin.
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
    *("-p", "no:cacheprovider", "-p", "no:terminal", "-p", "no:looptime_plugin"),
    *("-m", "not lab and not apiserver and not native and not slow and not serial"),
    *("--rootdir", str(REPOSITORY), "--hypothesis-profile=mutants"),
)
_EXAMPLES: Final = 60
_EPISODES: Final = 20
_TIMES_LONGER: Final = 10
_SECONDS_MORE: Final = 0.5
_SECONDS_TO_IMPORT: Final = 30


class Test(msgspec.Struct, frozen=True):
    """What is known of a test of the unchanged program.

    Attributes:
        name: pytest's id.
        seconds: of the processor that it takes, watched.
        lines: module → the lines that it runs.
    """

    name: str
    seconds: float
    lines: dict[str, set[int]]


class Suite:
    """The tests, collected and run once on the unchanged program.

    Args:
        items: as pytest has collected them.
        package: of which mutants are judged.

    Raises:
        SystemExit: one of them fails.
    """

    def __init__(self, items: Sequence[pytest.Item], package: str) -> None:
        self._package = package
        self._folder = SOURCES / package
        self._items = {item.nodeid: item for item in items}
        self._functions = Functions(SOURCES)
        clear_caches(self._folder)
        gc.collect()
        gc.freeze()
        tests = answer_of(self._learn)
        self._tests = sorted(tests, key=lambda test: (test.seconds, test.name))
        self._killers: dict[tuple[str, str], list[str]] = defaultdict(list)

    def judge(self, mutant: Mutant) -> tuple[Verdict, str]:
        """Whether the tests notice it, and which one does."""
        tests = self._who_runs(mutant)
        if not tests:
            return "not run", ""
        run = self._run if mutant.function else _run_anew
        verdict, name = judged(lambda report: run(mutant, tests, report))
        if name:
            killers = self._killers[mutant.module, mutant.function]
            if name in killers:
                killers.remove(name)
            killers.insert(0, name)
        return verdict, name

    def _who_runs(self, mutant: Mutant) -> list[Test]:
        """Who runs the changed statement; killers of its neighbours come first, then by time."""
        if not mutant.function:
            # A test that runs nothing of the package checks what an import has made.
            return [t for t in self._tests if mutant.module in t.lines or not t.lines]
        first, last = mutant.span
        killers = self._killers[mutant.module, mutant.function]
        found = [
            test
            for test in self._tests
            if any(first <= line <= last for line in test.lines.get(mutant.module, ()))
        ]
        return sorted(
            found,
            key=lambda test: killers.index(test.name) if test.name in killers else len(killers),
        )

    def _run(self, mutant: Mutant, tests: Iterable[Test], report: Callable[[str], None]) -> bool:
        self._functions.swap(mutant)
        return all(_passes_in_time(self._items[test.name], test, report) for test in tests)

    def _learn(self) -> list[Test]:
        """Run all tests on the unchanged program; note what they run and how long."""
        watched = coverage.Coverage(
            data_file=None, config_file=False, include=[f"{self._folder}/*"]
        )
        watched.start()
        seconds: dict[str, float] = {}
        for name, item in self._items.items():
            watched.switch_context(name)
            begun = time.process_time()
            if not _passes(item):
                click.echo(f"{name} fails on the unchanged program", err=True)
                raise SystemExit(1)
            seconds[name] = time.process_time() - begun
        watched.stop()
        lines: dict[str, dict[str, set[int]]] = {name: {} for name in seconds}
        data = watched.get_data()
        for path in data.measured_files():
            module = str(Path(path).relative_to(SOURCES))
            for line, names in data.contexts_by_lineno(path).items():
                for name in filter(None, names):
                    lines[name].setdefault(module, set()).add(line)
        return [Test(name, spent, lines[name]) for name, spent in seconds.items()]


class _Instead:
    """Has pytest collect, and somebody else decide what to do with the items."""

    def __init__(self, use: Callable[[Sequence[pytest.Item]], None]) -> None:
        self._use = use

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        # A mutant that outlives some random examples has to be met by a test that aims.
        limit_examples(session.items, examples=_EXAMPLES, episodes=_EPISODES)
        self._use(session.items)
        return True


def with_suite(package: str, use: Callable[[Suite], None]) -> None:
    """Collect the tests of a package, and use them.

    Raises:
        SystemExit: they cannot be collected, or fail on the unchanged program.
    """
    os.chdir(REPOSITORY)
    settings.register_profile(
        "mutants",
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    collector = _Instead(lambda items: use(Suite(items, package)))
    failed = pytest.main([*_OPTIONS, *PACKAGES[package]], plugins=[collector])
    if failed:
        sys.exit(int(failed))


def _run_anew(mutant: Mutant, tests: Sequence[Test], report: Callable[[str], None]) -> bool:
    report("import")
    limit_time(_SECONDS_TO_IMPORT)
    forget_modules(SOURCES, REPOSITORY / "tests")
    sys.meta_path.insert(0, Changed(SOURCES, mutant))
    known = {test.name: test for test in tests}
    passed: list[bool] = []

    def run(items: Sequence[pytest.Item]) -> None:
        passed.append(all(_passes_in_time(item, known[item.nodeid], report) for item in items))

    failed = pytest.main([*_OPTIONS, *known], plugins=[_Instead(run)])
    return not failed and passed == [True]


def _passes_in_time(item: pytest.Item, test: Test, report: Callable[[str], None]) -> bool:
    report(test.name)
    limit_time(_TIMES_LONGER * test.seconds + _SECONDS_MORE)
    return _passes(item)


def _passes(item: pytest.Item) -> bool:
    # As if it were the only one: a fork may end at any of them.
    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))
