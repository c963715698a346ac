"""What was built runs where it has to: on the oldest C library that containers with GPUs have."""

import re
import subprocess
from pathlib import Path

import pytest

from kubeshare import native

pytestmark = pytest.mark.native

OLDEST = (2, 17)
ELF = b"\x7fELF"


def built() -> list[Path]:
    """The programs and libraries; intermediate and sanitized ones run only here."""
    folder = native.folder()
    own = {"obj", "asan", "tsan"}
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
        and not own & set(path.relative_to(folder).parts)
        and path.read_bytes()[:4] == ELF
    ]


def needed(path: Path) -> list[tuple[int, ...]]:
    shown = subprocess.run(
        ["readelf", "--version-info", "--wide", path], capture_output=True, text=True, check=True
    ).stdout
    versions = re.findall(r"Name: GLIBC_([0-9.]+)", shown)
    return [tuple(map(int, version.split("."))) for version in versions]


def test_nothing_needs_a_newer_c_library_than_2_17() -> None:
    names = {path.name for path in built()}
    assert {"libcuda.so.1", "libnvidia-ml.so.1", "burn", "fakegpu-stat"} <= names
    newer = {
        path.name: needed(path) for path in built() if max(needed(path), default=(0,)) > OLDEST
    }
    assert newer == {}


def test_the_libraries_show_only_the_names_of_their_api() -> None:
    for library, prefix in (("libcuda.so.1", "cu"), ("libnvidia-ml.so.1", "nvml")):
        path = native.path(f"fakegpu/{library}")
        shown = subprocess.run(
            ["nm", "--dynamic", "--defined-only", "--format=posix", path],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        names = [line.split()[0] for line in shown.splitlines()]
        assert len(names) > 40
        assert [name for name in names if not name.startswith(prefix)] == []
