"""What runs in the background has little weight, and leaves no control group behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools import background

GROUP = "kubeshare-background-1"


@pytest.mark.parametrize(
    ("folder", "file", "weight"),
    [(f"cpu/{GROUP}", "cpu.shares", "256"), (GROUP, "cpu.weight", "25")],
    ids=["version-1", "version-2"],
)
def test_the_process_joins_a_group_of_little_weight(
    tmp_path: Path, folder: str, file: str, weight: str
) -> None:
    made = tmp_path / folder
    made.mkdir(parents=True)
    (made / file).write_text("the default")
    if made.parent == tmp_path:
        (tmp_path / "cgroup.controllers").write_text("cpu")
        (tmp_path / "cgroup.subtree_control").touch()

    background.join(GROUP, tmp_path)

    assert (made / file).read_text() == weight
    assert (made / "cgroup.procs").read_text() == str(os.getpid())


@pytest.mark.parametrize("allowed", [True, False])
def test_the_command_runs_with_a_low_priority_and_its_group_goes(
    tmp_path: Path, allowed: bool
) -> None:
    root = tmp_path / "cgroup"
    (root / "cpu").mkdir(parents=True)
    if not allowed:
        (root / "cpu").rmdir()
        (root / "cpu").touch()  # in which no group can be made
    priority = tmp_path / "priority"
    script = f"import os, sys; print(os.nice(0), file=open({str(priority)!r}, 'w')); sys.exit(3)"

    handler = signal.getsignal(signal.SIGTERM)
    assert background.run([sys.executable, "-c", script], root) == 3
    assert signal.getsignal(signal.SIGTERM) is handler

    assert priority.read_text() == f"{background.NICE}\n"
    assert list(root.glob("cpu/*")) == []


def test_a_command_that_is_ended_from_outside_leaves_no_group(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    (root / "cpu").mkdir(parents=True)
    sleeper = "import time; print('runs', flush=True); time.sleep(600)"
    script = (
        "import sys; from pathlib import Path; from tools import background; "
        f"sys.exit(background.run([sys.executable, '-c', {sleeper!r}], Path({str(root)!r})) + 100)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"runs\n"
        assert list(root.glob("cpu/*")) != []

        running.terminate()

        assert running.wait(timeout=30) == 100 - signal.SIGTERM
    assert list(root.glob("cpu/*")) == []
