"""The workload's ways of working, on the fake GPU alone."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kubeshare import fakegpu, native

pytestmark = pytest.mark.native

MILLISECOND_NS = 1_000_000


def burn(state: Path, *options: str, code: int = 0, profile: str = "V100x1") -> dict[str, Any]:
    """The summary of a run."""
    done = subprocess.run(
        [native.path("burn"), *options],
        env={**os.environ, **fakegpu.environment(profile, state)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    if code != 0:
        return {}
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])["summary"]
    return summary


def test_an_inference_server_has_latencies_from_arrival_to_end(tmp_path: Path) -> None:
    summary = burn(tmp_path, "--rate", "500", "--kernel-us", "1000", "--steps", "200")
    latency = summary["latency_ms"]
    assert summary["kernels"] == 200
    assert 1 <= latency["p50"] <= latency["p99"] <= latency["max"]
    assert fakegpu.stat(tmp_path).gpus[0].busy_ns == 200 * MILLISECOND_NS


@pytest.mark.slow
def test_requests_that_come_faster_than_they_are_served_wait_ever_longer(tmp_path: Path) -> None:
    summary = burn(tmp_path, "--rate", "1000", "--kernel-us", "10000", "--steps", "60")
    # The last of 60 arrives after about 60 ms and is done after 600.
    assert summary["latency_ms"]["max"] > 400
    assert 150 < summary["latency_ms"]["p50"] < summary["latency_ms"]["p99"]


def test_each_step_is_a_kernel_on_each_gpu(tmp_path: Path) -> None:
    summary = burn(tmp_path, "--gpus", "2", "--steps", "30", profile="V100x2")
    assert summary["kernels"] == 30
    assert [gpu.busy_ns for gpu in fakegpu.stat(tmp_path).gpus] == [30 * MILLISECOND_NS] * 2


def test_a_step_may_be_a_graph_of_kernels(tmp_path: Path) -> None:
    summary = burn(tmp_path, "--graph", "20", "--kernel-us", "500", "--steps", "10")
    assert summary["kernels"] == 200
    assert fakegpu.stat(tmp_path).gpus[0].busy_ns == 100 * MILLISECOND_NS


@pytest.mark.parametrize("how", ["--sync", "--no-sync"])
def test_all_steps_are_done_however_they_are_waited_for(tmp_path: Path, how: str) -> None:
    assert burn(tmp_path, how, "--steps", "50")["kernels"] == 50
    assert fakegpu.stat(tmp_path).gpus[0].busy_ns == 50 * MILLISECOND_NS


@pytest.mark.slow
def test_pauses_leave_the_gpu_idle(tmp_path: Path) -> None:
    summary = burn(tmp_path, "--busy-ms", "20", "--idle-ms", "80", "--seconds", "0.5")
    assert summary["kernels"] < 300


@pytest.mark.parametrize(
    "wrong",
    [
        ["--rate"],
        ["--rate", "0"],
        ["--rate", "5", "--gpus", "2"],
        ["--busy-ms", "5"],
        ["--gpus", "17"],
        ["--sync", "1"],
    ],
)
def test_wrong_use_is_refused(tmp_path: Path, wrong: list[str]) -> None:
    burn(tmp_path, *wrong, code=2)
