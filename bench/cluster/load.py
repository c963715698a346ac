"""What load costs an earlier commit beside this one: SharePods that wait, a gang, a full store.

``python -m bench.cluster --load --before COMMIT``. Each row is one bench of this commit beside an
API server in memory, run with the programs of either commit in a process of its own
(:mod:`bench.cluster.earlier`). A line is that of this commit, with ``before``, and ``ratio``, this
commit by that one. Where the earlier commit gives no number, both are null, and ``why`` says why.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from bench.cluster.beside import ROOT, tree_of
from bench.report import Met

CPU_SECONDS: Final = 180
"""Seconds of processor time that a process of a row may take."""
WALL_SECONDS: Final = 1200
ROWS: Final = (
    ("bench.placement.waiting", "10000", "30"),
    ("bench.placement.waiting", "40000", "5"),
    ("bench.placement.waiting", "800", "1000"),
    ("bench.placement.waiting", "800", "1000", "selecting"),
    ("bench.placement.gang", "400"),
    ("bench.cluster.start", "8000", "20000", "--waits"),
)
"""The benches and their sizes: GPUs and SharePods that wait, members, GPUs and SharePods."""

_Line = dict[str, Any]


def compare(commit: str) -> list[Met]:
    """Run each row with the programs of that commit and of this one, and print the lines.

    Returns:
        whether this commit meets its goals.

    Raises:
        CalledProcessError: the clone does not have the commit.
        RuntimeError: this commit gives no numbers.
    """
    met: list[Met] = []
    with tree_of(commit) as tree:
        for row in ROWS:
            before, why = _run(tree, row)
            after, failed = _run(ROOT, row)
            if failed:
                raise RuntimeError(f"{' '.join(row)} with this commit: {failed}")
            for line in beside(before, why, after):
                print(json.dumps(line), flush=True)
                met.append(line["met"])
    return met


def beside(before: list[_Line], why: str, after: list[_Line]) -> list[_Line]:
    """The lines of this commit, each with the value of the earlier one and the ratio.

    Args:
        before: the lines of the earlier commit.
        why: why there are no more of them.
        after: those of this commit.
    """
    values = {line["what"]: line["value"] for line in before}
    found = []
    for line in after:
        value = values.get(line["what"])
        ratio = round(line["value"] / value, 4) if value else None
        reason = {} if value is not None else {"why": why or "that commit does not print it"}
        found.append(line | {"before": value, "ratio": ratio} | reason)
    return found


def _run(tree: Path, row: tuple[str, ...]) -> tuple[list[_Line], str]:
    """The lines that a row prints with the programs of a tree, and why there are no more."""
    argv = [
        "prlimit",
        f"--cpu={CPU_SECONDS}:{CPU_SECONDS + 5}",
        sys.executable,
        "-m",
        "bench.cluster.earlier",
        *row,
    ]
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    try:
        done = subprocess.run(
            argv, cwd=ROOT, env=environment, capture_output=True, timeout=WALL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        return _lines(error.stdout or b""), f"not ended after {WALL_SECONDS} s"
    lines = _lines(done.stdout)
    if done.returncode == 0:
        return lines, ""
    if done.returncode == 1 and lines:  # a missed goal is exit code 1 too
        return lines, _failure(done.stderr)
    if done.returncode == -signal.SIGXCPU:
        return lines, f"more than {CPU_SECONDS} s of processor time"
    if done.returncode < 0:
        return lines, f"ended by signal {-done.returncode}"
    return lines, _failure(done.stderr) or f"exit code {done.returncode}"


def _lines(output: bytes) -> list[_Line]:
    found = [json.loads(line) for line in output.splitlines() if line.startswith(b"{")]
    return [line for line in found if "what" in line]


def _failure(log: bytes) -> str:
    """The error that ended a run, from its traceback; empty for none."""
    text = log.decode(errors="replace")
    return text.strip().splitlines()[-1] if "Traceback (most recent call last)" in text else ""
