"""Packs what measures a GPU on a machine that has no network, pip or make.

``dist/kubeshare-gpu.tar.gz``: KubeShare's source, the bench, the native build, and the packages
that such a machine's Python lacks, for each Python of `PYTHONS`. There:

    tar -xzf kubeshare-gpu.tar.gz && cd kubeshare-gpu && python3 -m bench.gpu

or ``make bench-gpu``, where there is make.
"""

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from kubeshare import compiled

ROOT: Final = Path(__file__).resolve().parents[1]
NAME: Final = "kubeshare-gpu"
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
PACKAGES: Final = ("click", "msgspec", "nvidia-ml-py", "structlog")
SOURCES: Final = ("LICENSE", "Makefile", "bench", "src", "native/driver_api/names.list")
NATIVE: Final = (
    *("libkubeshare-vgpu.so", "burn", "launch-bench", "marker-bench"),
    *("fakegpu", "fakegpu-stat"),
    # For the Python that built it; another one runs the sources.
    compiled.FOLDER,
)


class TreeError(Exception):
    """The tree cannot be packed; the message says why."""


def pins(requirements: str) -> str:
    """The pinned and hashed lines of `PACKAGES`.

    Raises:
        TreeError: one of them is not there.
    """
    blocks = re.split(r"^(?=[a-z])", requirements, flags=re.MULTILINE)
    found = {block.partition("==")[0]: block for block in blocks}
    if missing := [name for name in PACKAGES if name not in found]:
        raise TreeError(f"requirements/runtime.txt has no {', '.join(missing)}")
    return "".join(found[name] for name in PACKAGES)


def add_packages(folder: Path, uv: Path, pinned: str) -> None:
    """Install the packages once for each Python; only compiled modules differ, and by name.

    Raises:
        TreeError: one has no wheel for one of them.
    """
    with tempfile.TemporaryDirectory() as name:
        wanted = Path(name) / "requirements.txt"
        wanted.write_text(pinned)
        for python in PYTHONS:
            target = Path(name) / python
            command = [
                *(str(uv), "pip", "install", "--quiet", "--require-hashes", "--no-deps"),
                *("--only-binary", ":all:", "--python-platform", "x86_64-manylinux_2_28"),
                *("--python-version", python, "--target", str(target), "-r", str(wanted)),
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise TreeError(f"packages for Python {python}: {done.stderr.strip()[-500:]}")
            shutil.copytree(target, folder, dirs_exist_ok=True)


def lay_out(tree: Path) -> None:
    """Copy what is tracked of `SOURCES`, and the native build.

    Raises:
        TreeError: a file of the build is missing.
    """
    command = ["git", "ls-files", "-z", *SOURCES]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in [*filter(None, listed.stdout.split("\0"))]:
        if not name.startswith("bench/results/"):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    build = tree / "native" / "build"
    build.mkdir(parents=True)
    for name in NATIVE:
        source = ROOT / "native" / "build" / name
        if not source.exists():
            raise TreeError(f"{source} is missing: run `make native`")
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, build / name)
    commit = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(commit, cwd=ROOT, capture_output=True, text=True, check=True)
    (tree / "COMMIT").write_text(done.stdout)


def main() -> int:
    """Pack it; exit code 3 when a package or a file cannot be had."""
    dist = ROOT / "dist" / f"{NAME}.tar.gz"
    dist.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name) / NAME
        try:
            lay_out(tree)
            pinned = pins((ROOT / "requirements" / "runtime.txt").read_text())
            add_packages(tree / "packages", Path(sys.executable).with_name("uv"), pinned)
        except TreeError as error:
            print(f"gpu-tree: {error}", file=sys.stderr)
            return 3
        with tarfile.open(dist, "w:gz") as tar:
            tar.add(tree, NAME)
    size = dist.stat().st_size / 2**20
    print(f"{dist.relative_to(ROOT)}: {size:.1f} MiB, for Python {', '.join(PYTHONS)}")
    print(f"there: tar -xzf {dist.name} && cd {NAME} && python3 -m bench.gpu")
    return 0


if __name__ == "__main__":
    sys.exit(main())
