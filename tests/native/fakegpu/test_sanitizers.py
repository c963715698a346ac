"""The fake driver and NVML under many threads, watched by the sanitizers."""

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.native, pytest.mark.slow]

NATIVE = Path(__file__).parents[3] / "native"


@pytest.mark.parametrize("queues", [0, 4])
@pytest.mark.parametrize("variant", ["asan", "tsan"])
def test_threads_at_everything_at_once_find_no_fault(
    tmp_path: Path, variant: str, queues: int
) -> None:
    profile = tmp_path / "stress.profile"
    profile.write_text(f"hardware_queues = {queues}\n")
    build = f"build/{variant}"
    stress = f"{build}/fakegpu-stress"
    subprocess.run(["make", "-s", "-C", NATIVE, f"VARIANT={variant}", stress], check=True)
    done = subprocess.run(
        [NATIVE / stress, "8", "300"],
        env={
            **os.environ,
            "LD_LIBRARY_PATH": str(NATIVE / build / "fakegpu"),
            "FAKEGPU_STATE": str(tmp_path),
            "FAKEGPU_PROFILE": str(profile),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout == "ok\n"
    assert done.returncode == 0
