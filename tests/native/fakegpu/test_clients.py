"""Whole programs on the fake GPU: the workloads, and the CDI specification's promise."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kubeshare import fakegpu, native

pytestmark = pytest.mark.native

EXAMPLES = Path(__file__).parents[3] / "native" / "examples"
GIB = 1 << 30


def run(state: Path, *command: str | Path, code: int = 0) -> list[Any]:
    """The JSON lines of a program that ends with a code."""
    variables = {**os.environ, **fakegpu.environment("V100x1", state)}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_burn_does_the_steps_that_it_was_asked_for(tmp_path: Path) -> None:
    burn = native.path("burn")
    lines = run(tmp_path, burn, "--steps", "50", "--kernel-us", "2000", "--streams", "3")
    assert lines[-1]["summary"]["kernels"] == 50
    assert fakegpu.stat(tmp_path).gpus[0].busy_ns == 100_000_000


@pytest.mark.slow
def test_burn_reports_its_pace_each_second(tmp_path: Path) -> None:
    *each, summary = run(tmp_path, native.path("burn"), "--seconds", "1.2", "--memory", "1Gi")
    assert [set(line) for line in each] == [{"kernels_per_s"}]
    assert summary["summary"]["memory"] == GIB
    assert 0 < each[0]["kernels_per_s"] <= 1010


def test_burn_says_when_memory_runs_out(tmp_path: Path) -> None:
    lines = run(tmp_path, native.path("burn"), "--memory", "17Gi", code=1)
    assert lines[0]["error"] == "CUDA_ERROR_OUT_OF_MEMORY"


@pytest.mark.parametrize(
    "wrong",
    [["--memory", "many"], ["--inflight", "0"], ["--seconds", "-1"], ["--what"], ["x", "1"]],
)
def test_burn_refuses_wrong_use(tmp_path: Path, wrong: list[str]) -> None:
    assert run(tmp_path, native.path("burn"), *wrong, code=2) == []


def test_nvidias_python_client_runs(tmp_path: Path) -> None:
    program = EXAMPLES / "burn.py"
    lines = run(tmp_path, sys.executable, program, "--seconds", "0.3", "--memory", str(GIB))
    kernels = lines[0]["summary"]["kernels"]
    assert kernels > 0
    fill_ns = GIB * 1000 // 750_000
    assert fakegpu.stat(tmp_path).gpus[0].busy_ns == kernels * 1_000_000 + fill_ns
    lines = run(tmp_path, sys.executable, program, "--memory", str(17 * GIB), code=1)
    assert lines == [{"error": "CUDA_ERROR_OUT_OF_MEMORY"}]


def test_the_cdi_specification_names_each_gpu_by_uuid_index_and_all(tmp_path: Path) -> None:
    first, second = fakegpu.gpus("V100x2", "n1")
    spec = fakegpu.cdi_spec("V100x2", tmp_path, "/opt/driver", "n1")
    nodes = {
        device["name"]: [node["path"] for node in device["containerEdits"]["deviceNodes"]]
        for device in spec["devices"]
    }
    assert spec["kind"] == "nvidia.com/gpu"
    assert nodes == {
        first.uuid: ["/dev/nvidia0"],
        second.uuid: ["/dev/nvidia1"],
        "0": ["/dev/nvidia0"],
        "1": ["/dev/nvidia1"],
        "all": ["/dev/nvidia0", "/dev/nvidia1"],
    }
    edits = spec["containerEdits"]
    assert edits["env"] == [
        "FAKEGPU_DEVICE_NODES=1",
        "FAKEGPU_PROFILE=V100x2",
        "FAKEGPU_SEED=n1",
        "FAKEGPU_STATE=/run/fakegpu/state",
    ]
    mounts = {mount["containerPath"]: mount for mount in edits["mounts"]}
    assert (
        mounts["/usr/lib/x86_64-linux-gnu/libcuda.so.1"]["hostPath"] == "/opt/driver/libcuda.so.1"
    )
    assert mounts["/run/fakegpu/state"]["hostPath"] == str(tmp_path)
    assert "rw" in mounts["/run/fakegpu/state"]["options"]


def test_the_cdi_specification_brings_a_profiles_file(tmp_path: Path) -> None:
    profile = fakegpu.profiles()[0]
    edits = fakegpu.cdi_spec(profile, tmp_path, "/opt/driver")["containerEdits"]
    assert "FAKEGPU_PROFILE=/run/fakegpu/profile" in edits["env"]
    mounts = {mount["containerPath"]: mount["hostPath"] for mount in edits["mounts"]}
    assert mounts["/run/fakegpu/profile"] == str(profile)


@pytest.mark.slow
def test_each_memory_resource_of_cuda_core_takes_what_it_says(tmp_path: Path) -> None:
    program = Path(__file__).parent / "clients" / "with_core_memory.py"
    # The packages that lie apart come after those of the environment.
    apart = f"import runpy, site; site.addsitedir({str(Path(sys.prefix) / 'clients')!r}); "
    run_it = f"runpy.run_path({str(program)!r})"
    [taken] = run(tmp_path, sys.executable, "-c", apart + run_it)
    assert taken.pop("filled") == [7] * 4
    assert taken == {
        "default": [32, 32],  # it tells the pool to keep what it has
        "own": [32, 0],
        "shared": [32, 0],
        "pinned": [0, 0],
        "legacy pinned": [0, 0],
        "managed": [32, 0],
        "virtual": [2, 2],  # it never releases the handle that it created
        "graph": [4, 0],
    }
