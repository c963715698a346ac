"""What `make gpu-tree` packs: the pins of the packages, and only what was built."""

from pathlib import Path

import pytest

from kubeshare import compiled
from tools import gpu_tree

ROOT = Path(__file__).parents[2]


def test_the_packages_are_those_of_the_pinned_requirements() -> None:
    pinned = gpu_tree.pins((ROOT / "requirements" / "runtime.txt").read_text())
    lines = pinned.splitlines()
    assert [line.partition("==")[0] for line in lines if "==" in line] == list(gpu_tree.PACKAGES)
    assert sum("--hash=sha256:" in line for line in lines) > len(gpu_tree.PACKAGES)


def test_a_package_that_is_not_pinned_is_named() -> None:
    with pytest.raises(gpu_tree.TreeError, match="has no msgspec, structlog"):
        gpu_tree.pins("click==8.5.1\n    --hash=sha256:0\nnvidia-ml-py==13\n    --hash=sha256:1\n")


@pytest.mark.slow
@pytest.mark.native
def test_the_tree_has_source_and_build_and_no_results(tmp_path: Path) -> None:
    gpu_tree.lay_out(tmp_path)
    assert (tmp_path / "bench" / "gpu" / "__main__.py").exists()
    assert (tmp_path / "native" / "build" / "libkubeshare-vgpu.so").stat().st_size > 100_000
    assert compiled.library(tmp_path / "native" / "build" / compiled.FOLDER).exists()
    assert not (tmp_path / "bench" / "results").exists()
    assert (tmp_path / "COMMIT").read_text().strip()
