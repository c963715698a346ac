"""SharePods a second and CPU of an earlier commit beside those of this one, in turns.

Each run is a process of its own on a new control plane, with the manifests and the programs of its
commit; only the bench itself is this one's.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.cluster.rate import Size
from bench.report import NO_GOAL, Met, at_least, report

LEAST_RATIO = 1.5
ROOT = Path(__file__).parents[2]
_RATE, _CPU = "applied to pod created", "CPU of the control plane"
_WRITES = "writes of our programs a SharePod"

_Lines = dict[str, dict[str, Any]]


def compare(commit: str, size: Size, runs: int) -> list[Met]:
    """Run both as often as asked, and report each and the ratio of their rates.

    Raises:
        CalledProcessError: the clone does not have the commit, or a run failed.
    """
    before: list[_Lines] = []
    after: list[_Lines] = []
    with tree_of(commit) as tree:
        for _ in range(runs):
            before.append(_run(tree, size))
            after.append(_run(ROOT, size))
    results = []
    for what in (_CPU, _WRITES):
        for version, lines in ((commit, before), ("this commit", after)):
            found = [_line(each, what) for each in lines]
            values = [float(each["value"]) for each in found]
            made_from = [each["each"][0] for each in found]
            what_of = f"{found[0]['what']}, {version}"
            results.append(report(what_of, NO_GOAL, values, each=made_from))
    ratios = [_rate(new) / _rate(old) for old, new in zip(before, after, strict=True)]
    results.append(
        report(
            f"{size.sharepods} SharePods: so many a second, this commit by {commit}",
            at_least(LEAST_RATIO),
            ratios,
            before=[_rate(each) for each in before],
            after=[_rate(each) for each in after],
        )
    )
    return results


@contextmanager
def tree_of(commit: str) -> Iterator[Path]:
    """The files of a commit of this clone, for a while.

    Raises:
        CalledProcessError: the clone does not have it.
    """
    with tempfile.TemporaryDirectory(prefix="kubeshare-before-") as name:
        archive = ["git", "archive", commit]
        sources = subprocess.run(archive, cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", name], input=sources, check=True)
        yield Path(name)


def _run(tree: Path, size: Size) -> _Lines:
    """One run with the programs of a source tree: name of a number -> its line."""
    counts = ("--rate", f"--nodes={size.nodes}", f"--sharepods={size.sharepods}", "--runs=1")
    done = subprocess.run(
        [sys.executable, "-m", "bench.cluster.earlier", "bench.cluster", *counts],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(tree / "src")},
        stdout=subprocess.PIPE,
        check=False,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    found = {line["what"]: line for line in lines if "what" in line}
    if not found:  # a missed goal is exit code 1 too
        done.check_returncode()
    return found


def _line(lines: _Lines, words: str) -> dict[str, Any]:
    return next(line for what, line in lines.items() if words in what)


def _rate(lines: _Lines) -> float:
    return float(_line(lines, _RATE)["each"][0]["to_running_a_second"])
