"""The bench for machines with a GPU, played on a fake one: does it measure, keep time and draw."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from bench.gpu import search_path
from bench.gpu.overlap import OVERLAP, Ran, overlap_ns, read
from bench.gpu.program import judged

from kubeshare import compiled, native

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
    assert done.stdout.splitlines()[-1] == (
        "no time for 1: python3 -m bench.gpu --fake V100x1 --only figure-7 --out OTHER-FOLDER"
    )
    assert not (tmp_path / "figure-7.png").exists()


def test_a_machine_without_a_gpu_is_told_so(tmp_path: Path) -> None:
    done = bench("--only", "memory", "--out", str(tmp_path), fake="")
    assert done.returncode == 3
    assert re.fullmatch(
        r"bench.gpu: no GPU answers \(.+\); name a fake one: --fake V100x1\n",
        done.stderr,
        re.DOTALL,
    )


def test_events_wait_for_the_work_of_every_stream(tmp_path: Path) -> None:
    done = bench("--only", "markers", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    waits = results(tmp_path)["markers"]["waits"]
    assert len(waits) == 4
    assert all(each == {"context": True, "stream": True} for each in waits.values())


def test_with_the_library_each_hooked_name_is_the_librarys_by_both_ways(tmp_path: Path) -> None:
    done = bench("--only", "entry-points", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    points = results(tmp_path)["entry-points"]
    for way in ("dlsym", "cuGetProcAddress"):
        assert points["bare"][way]["ours"] == 0
        assert points["shared"][way]["ours"] > 150
        assert points["shared"][way]["hooked_but_not_ours"] == []


def test_jobs_that_end_in_any_way_leave_no_claim_behind(tmp_path: Path) -> None:
    done = bench("--only", "exits", "--pace", "0.05", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    exits = results(tmp_path)["exits"]
    assert exits["claims_left"] == 0
    assert {code.partition(": ")[2] for code in exits["codes"]} == {"exit code 0", "exit code -9"}
    assert exits["rate_after"] > 0.5 * exits["rate_before"] > 0


def test_kernels_that_ran_at_once_are_seen_by_their_stamps(tmp_path: Path) -> None:
    file = tmp_path / "stamps"
    file.write_text("10 20\n30 40\n")
    beside = [Ran(0, 12), Ran(18, 31), Ran(40, 50)]
    assert overlap_ns(list(read(file)), beside) == 2 + 2 + 1
    assert overlap_ns(list(read(file)), [Ran(20, 30)]) == 0


@pytest.mark.parametrize(("overlap", "missed"), [(0, ()), (7, ("missed",))])
def test_jobs_that_ran_at_once_miss_the_goal(overlap: int, missed: tuple[str, ...]) -> None:
    result = {"shared": {"overlap_ns": overlap}, "bare": {"overlap_ns": 9}}
    found = judged(OVERLAP, result)
    assert found.keys() - result.keys() == set(missed)
    assert found.get("missed", " 7 ns").count(" 7 ns") == 1


@pytest.mark.parametrize("is_compiled", [True, False])
def test_the_report_says_which_code_of_the_handover_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_compiled: bool
) -> None:
    if not is_compiled:  # as for a Python that the tree was not built for
        build = tmp_path / "build"
        build.mkdir()
        for each in native.folder().iterdir():
            if each.name != compiled.FOLDER:
                (build / each.name).symlink_to(each)
        monkeypatch.setenv("KUBESHARE_NATIVE", str(build))
    done = bench("--only", "markers", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    code = json.loads((tmp_path / "results.json").read_text())["machine"]["code"]
    assert code["is_compiled"] is is_compiled
    assert ("run `make native`" in code["why_not"]) is not is_compiled


@pytest.mark.parametrize("framework", ["pytorch", "cupy"])
def test_a_framework_is_left_out_where_it_computes_nothing(tmp_path: Path, framework: str) -> None:
    done = bench("--only", framework, "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "compute nothing" in results(tmp_path)[framework]["left_out"]


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A tree with the source and the build, and without a Python that has any package."""
    tree = tmp_path / "tree"
    for name in ("bench", "src", "native/driver_api"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("results"))
    shutil.copy(ROOT / "Makefile", tree)
    (tree / "native" / "build").symlink_to(ROOT / "native" / "build")
    (tree / "packages").mkdir()
    return tree


def add_packages(tree: Path) -> None:
    """Link what it needs."""
    for name, source in needed().items():
        assert source.stem == name
        (tree / "packages" / source.name).symlink_to(source)


def add_wheels(tree: Path) -> None:
    """The same as pip downloads it."""
    for name, source in needed().items():
        with zipfile.ZipFile(tree / "packages" / f"{name}-1-py3-none-any.whl", "w") as wheel:
            for file in [*source.rglob("*")] if source.is_dir() else [source]:
                wheel.write(file, file.relative_to(source.parent))
            wheel.writestr(f"{name}-1.dist-info/METADATA", "")


def needed() -> dict[str, Path]:
    """Packages and modules by name."""
    modules = {name: Path(str(find_spec(name).origin)) for name in search_path.NEEDED}  # type: ignore[union-attr]
    return {
        name: module.parent if module.name == "__init__.py" else module
        for name, module in modules.items()
    }


@pytest.mark.parametrize("by", ["python", "make"])
@pytest.mark.parametrize("add", [add_packages, add_wheels])
def test_a_copied_tree_runs_without_pip_git_and_network(
    tmp_path: Path, copied: Path, add: Callable[[Path], None], by: str
) -> None:
    bare = tmp_path / "bin" / "python3"
    bare.parent.mkdir()
    bare.write_text(f'#!/bin/sh\nexec {sys._base_executable} -S "$@"\n')  # type: ignore[attr-defined]
    bare.chmod(0o755)
    part = f"--only entry-points --out {tmp_path / 'out'}"
    commands = {
        "python": ["python3", "-m", "bench.gpu", "--fake", "V100x1", *part.split()],
        "make": ["make", "bench-gpu", "FAKE=V100x1", f"ARGS={part}"],
    }
    ours = {"PYTHONPATH", "MAKEFLAGS", "MAKELEVEL"}
    environment = {key: value for key, value in os.environ.items() if key not in ours}
    environment["PATH"] = f"{bare.parent}:{environment['PATH']}"

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            commands[by], cwd=copied, env=environment, capture_output=True, text=True, check=False
        )

    refused = run()
    assert refused.returncode == 2
    assert "cannot import click" in refused.stderr
    assert str(copied / "packages") in refused.stderr
    add(copied)
    done = run()
    assert done.returncode == 0, done.stderr
    # With the library: by `kubeshare run` and a daemon that it has started, both of the tree.
    shared = results(tmp_path / "out")["entry-points"]["shared"]
    assert shared["dlsym"]["ours"] > 150
    assert shared["dlsym"]["hooked_but_not_ours"] == []
    assert not (copied / ".venv").exists()


def test_a_wheel_that_is_none_is_named(copied: Path) -> None:
    (copied / "packages" / "click-1-py3-none-any.whl").touch()
    done = subprocess.run(
        [sys.executable, "-m", "bench.gpu"], cwd=copied, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert re.fullmatch(r"bench.gpu: .*click-1-py3-none-any.whl: .* not a zip file\n", done.stderr)
