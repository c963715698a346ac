"""The bench for machines with a GPU, played on a fake one: does it measure, keep time and draw."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.native, pytest.mark.slow, pytest.mark.serial]


def bench(*options: str, fake: str = "V100x1") -> subprocess.CompletedProcess[str]:
    """Run the program as a person would."""
    return subprocess.run(
        [sys.executable, "-m", "bench.gpu", *(("--fake", fake) if fake else ()), *options],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def results(folder: Path) -> dict[str, Any]:
    """What it has written, by experiment."""
    report = json.loads((folder / "results.json").read_text())
    assert report["machine"]["gpu"]["model"] == "Tesla V100-SXM2-16GB"
    return dict(report["results"])


def test_usage_follows_the_rate_of_requests_and_is_drawn(tmp_path: Path) -> None:
    done = bench("--only", "figure-5", "--pace", "0.3", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    points = results(tmp_path)["figure-5"]["points"]
    assert [point["rate"] for point in points] == [10, 20, 40, 60, 80]
    assert points[-1]["used"] > 2 * points[0]["used"] > 0
    assert all(point["latency_ms"]["p99"] >= point["latency_ms"]["p50"] for point in points)
    assert (tmp_path / "figure-5.png").stat().st_size > 1000


def test_figure_6_is_drawn_by_the_papers_window_too(tmp_path: Path) -> None:
    done = bench("--only", "figure-6-window", "--pace", "0.05", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    # Too short for shares to settle: all that ran was charged, and charged to somebody.
    for stage in results(tmp_path)["figure-6-window"]["stages"]:
        assert stage["charged"].keys() == stage["target"].keys()
        assert 0.3 < sum(stage["charged"].values()) < 1.1
    assert (tmp_path / "figure-6-window.png").stat().st_size > 1000


def test_what_the_driver_takes_is_what_the_library_charges(tmp_path: Path) -> None:
    done = bench("--only", "memory", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    rows = results(tmp_path)["memory"]["rows"]
    assert [row["charged"] for row in rows] == [row["taken"] for row in rows]
    assert all(row["taken"] >= row["bytes"] for row in rows)


def test_what_does_not_fit_in_the_time_is_left_out_and_said_so(tmp_path: Path) -> None:
    done = bench("--only", "figure-7", "--minutes", "0.1", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert results(tmp_path)["figure-7"] == {"left_out": "no time for it"}
    assert not (tmp_path / "figure-7.png").exists()


def test_a_machine_without_a_gpu_is_told_so(tmp_path: Path) -> None:
    done = bench("--only", "memory", "--out", str(tmp_path), fake="")
    assert (done.returncode, done.stderr) == (
        3,
        "bench.gpu: no GPU answers; name a fake one: --fake V100x1\n",
    )
