"""Experiment 6 of the Gaia paper with PyTorch, on a machine's own GPUs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench.gaia import pytorch
from bench.gaia.__main__ import main

from deadlines import DEADLINE_S
from kubeshare import native
from kubeshare.fakegpu.launch import environment

PYTHON = Path(sys.prefix) / "frameworks/bin/python"
BENCH = Path(pytorch.__file__).parent
PAPERS = ["model = V100-PCIE", "count = 4", "link = SYS", "link.0.1 = PXB", "link.2.3 = PIX"]

JOB = """#!/bin/sh
echo "$CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER $*" >> {folder}/jobs
case $CUDA_VISIBLE_DEVICES in 0,1|1,0|2,3|3,2) seconds=1 ;; *) seconds=2 ;; esac
echo "{{\\"seconds\\": $seconds}}"
"""
"""In place of a Python with PyTorch: jobs across sockets take twice as long."""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This machine has the GPUs of ``machine.profile`` in the folder that is returned."""
    profile = tmp_path / "machine.profile"
    profile.write_text("\n".join([*PAPERS, ""]))
    for name, value in environment(profile, tmp_path / "state").items():
        monkeypatch.setenv(name, value)
    tools = native.path(native.FAKE_DRIVER_FOLDER)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    job = tmp_path / "python"
    job.write_text(JOB.format(folder=tmp_path))
    job.chmod(0o755)
    return tmp_path


@pytest.mark.native
def test_the_pairs_of_gaia_are_those_of_the_machines_links(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytorch.run(str(machine / "python"), runs=3, steps=7)
    jobs = [line.split(maxsplit=2) for line in (machine / "jobs").read_text().splitlines()]
    assert len(jobs) == 3 * 2 * 2
    assert all(order == "PCI_BUS_ID" for _, order, _ in jobs)
    assert all(words == f"{BENCH / 'mnist.py'} --steps 7" for *_, words in jobs)
    ours = [jobs[run * 4 + 2 : run * 4 + 4] for run in range(3)]
    assert [sorted(gpus for gpus, *_ in both) for both in ours] == [["0,1", "2,3"]] * 3
    printed = capsys.readouterr().out
    assert "SYS+SYS and PIX+PXB: stock 2.000 s, Gaia 1.000 s" in printed
    assert "Gaia      1.000 (1.000 to 1.000)" in printed


@pytest.mark.native
@pytest.mark.parametrize(
    ("gpus", "job", "words"),
    [
        (["model = V100", "count = 3"], "", "two jobs need 4 GPUs, and this machine has 3"),
        (PAPERS, "echo No module named torch >&2; exit 1", "failed: No module named torch"),
    ],
)
def test_a_machine_that_cannot_run_it_says_why(
    machine: Path, gpus: list[str], job: str, words: str
) -> None:
    (machine / "machine.profile").write_text("\n".join([*gpus, ""]))
    (machine / "python").write_text(f"#!/bin/sh\n{job}\n")
    with pytest.raises(pytorch.MachineError, match=words):
        pytorch.run(str(machine / "python"), runs=1)


def test_without_a_driver_the_answer_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["gaia", "--experiment", "6", "--pytorch", "python3"])
    assert main() == 3
    assert capsys.readouterr().err.startswith("bench.gaia: nvidia-smi: ")


CHECK = """
import json, sys, torch
from bench.gaia.mnist import Training, network
training = Training(["cpu", "cpu"])
losses = [float(training.step()) for _ in range(20)]
first, second = (list(copy.parameters()) for copy in training.copies)
same = all(map(torch.equal, first, second))
print(json.dumps({"size": sum(p.numel() for p in first), "same": same, "losses": losses}))
"""


@pytest.mark.frameworks
def test_both_copies_of_the_network_learn_the_same() -> None:
    if not PYTHON.exists():
        pytest.fail(f"{PYTHON} does not exist: `make test-frameworks` installs it")
    done = subprocess.run(
        [str(PYTHON), "-c", CHECK],
        cwd=BENCH.parents[1],
        capture_output=True,
        text=True,
        timeout=3 * DEADLINE_S,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["size"] == 1_199_882, "as bench.gaia.training has it"
    assert found["same"]
    assert found["losses"][-1] < found["losses"][0] / 2
