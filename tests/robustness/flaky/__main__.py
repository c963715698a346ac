"""Runs folders of tests many times in random order, and names the tests that fail.

Every second run of a folder competes with one busy process for each processor. A test
that fails in any run is flaky, or depends on the order: both are bugs.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from xml.etree import ElementTree as ET

MARKS = "not lab and not apiserver and not serial and not frameworks"
_BUSY = "while True: pass"
_NOTHING_COLLECTED = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the folders; returns 1 when a test failed in any run."""
    parser = argparse.ArgumentParser(prog="python -m robustness.flaky", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--times", type=int, default=20, help="runs of each folder")
    parser.add_argument("-m", dest="marks", default=MARKS, help="pytest's expression of marks")
    asked = parser.parse_args(arguments)
    failures: Counter[str] = Counter()
    for folder in asked.folders:
        if not any(folder.rglob("test_*.py")):
            continue
        for seed in range(asked.times):
            with load() if seed % 2 else nullcontext():
                failed = run(folder, seed, asked.marks)
            failures.update(failed)
            _say(f"{folder}, seed {seed}: {', '.join(failed) or 'passed'}")
    for name, times in failures.most_common():
        _say(f"failed {times} times: {name}")
    return 1 if failures else 0


def run(folder: Path, seed: int, marks: str) -> list[str]:
    """Run the tests of a folder once, in the order of that seed; the names of those that failed."""
    with tempfile.TemporaryDirectory() as reports:
        report = Path(reports) / "junit.xml"
        order = ("--random-order", f"--random-order-seed={seed}")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *order]
        command += ["-m", marks, f"--junitxml={report}", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        failed = sorted(_failed(report)) if report.exists() else []
    if done.returncode not in (0, _NOTHING_COLLECTED) and not failed:
        failed = [f"{folder}: pytest ended with {done.returncode}"]
    return failed


def _failed(report: Path) -> Iterator[str]:
    for case in ET.parse(report).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            yield f"{case.get('classname')}::{case.get('name')}"


@contextmanager
def load() -> Iterator[None]:
    """Keep every processor busy."""
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
