"""A driver of an older branch lacks what newer ones brought."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kubeshare import fakegpu, native

pytestmark = pytest.mark.native

ASK = """
import ctypes, json, sys
cuda, nvml = (ctypes.CDLL(path) for path in sys.argv[1:3])
version, found, status = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int(-1)
cuda.cuDriverGetVersion(ctypes.byref(version))
text = ctypes.create_string_buffer(80)
nvml.nvmlInit_v2()
nvml.nvmlSystemGetDriverVersion(text, 80)
def ask(name, version):
    result = cuda.cuGetProcAddress_v2(name, ctypes.byref(found), version, ctypes.c_uint64(0),
                                      ctypes.byref(status))
    return [result, bool(found.value), status.value]
print(json.dumps({
    "cuda": version.value,
    "driver": text.value.decode(),
    "exported": [hasattr(cuda, name) for name in ("cuCtxGetId", "cuCtxRecordEvent",
                                                  "cuCtxCreate_v4", "cuMemAlloc_v2")],
    "own": ask(b"cuCtxRecordEvent", version.value),
    "newer": ask(b"cuCtxRecordEvent", version.value + 10)[0],
    "create": ask(b"cuCtxCreate", version.value)[:2],
}))
"""


def answers(folder: Path, profile: str) -> dict[str, Any]:
    path = folder / "old.profile"
    path.write_text(profile)
    libraries = [native.path(f"fakegpu/{name}") for name in ("libcuda.so.1", "libnvidia-ml.so.1")]
    done = subprocess.run(
        [sys.executable, "-c", ASK, *libraries],
        env=os.environ | fakegpu.environment(str(path), folder),
        capture_output=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("driver", "cuda", "has_record"),
    [(525, 12000, False), (535, 12020, False), (550, 12040, False), (555, 12050, True)],
)
def test_names_that_came_later_are_neither_exported_nor_found(
    tmp_path: Path, driver: int, cuda: int, has_record: bool
) -> None:
    assert answers(tmp_path, f"driver_version = {driver}\n") == {
        "cuda": cuda,
        "driver": f"{driver}.71.05",
        "exported": [True, has_record, has_record, True],
        "own": [0, has_record, 0 if has_record else 1],
        "newer": 1,
        "create": [0, True],
    }


def test_a_branch_that_is_not_known_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "wrong.profile"
    path.write_text("driver_version = 470\n")
    done = subprocess.run(
        [native.path("burn"), "--steps", "1"],
        check=False,
        env=os.environ | fakegpu.environment(str(path), tmp_path),
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "driver_version = 470: expected a branch of the driver from 525 to 615" in done.stderr
