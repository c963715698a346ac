"""A release is complete, or it says what is missing."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from kubeshare import __version__
from tools import release

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("## 1.2.0 - 2026-12-01", "1.2.0 - 2026-12-01"),
        ("## [1.2.0]", "[1.2.0]"),
        ("## Unreleased", "Unreleased"),
    ],
)
def test_the_section_of_the_version_is_found(heading: str, expected: str) -> None:
    text = f"# Changelog\n\n{heading}\n\n## 1.1.0\n"
    assert release.changelog_section(text, "1.2.0") == expected


def test_a_changelog_without_the_version_is_refused() -> None:
    with pytest.raises(release.ReleaseError, match=r"no section for 1\.2\.0"):
        release.changelog_section("# Changelog\n\n## 1.1.0\n", "1.2.0")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (
            [
                "kubeshare/lab/cluster.py",
                "kubeshare/deploy/chart/kubeshare/manifests/crds/vgpus.yaml",
            ],
            "kubeshare/lab",
        ),
        (["kubeshare/cli/main.py"], "manifests"),
    ],
)
def test_a_wheel_with_too_much_or_too_little_is_refused(
    tmp_path: Path, names: list[str], words: str
) -> None:
    wheel = tmp_path / "kubeshare.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    with pytest.raises(release.ReleaseError, match=words):
        release.check_wheel(wheel)


@pytest.mark.slow
@pytest.mark.native
def test_the_image_context_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "context.tar.gz"
    release.image_context(path)
    with tarfile.open(path) as tar:
        names = tar.getnames()
    assert "Containerfile" in names
    assert "root/usr/local/lib/kubeshare/libkubeshare-vgpu.so" in names
    assert "root/usr/local/lib/kubeshare/src/kubeshare/cli/main.py" in names
    assert "root/usr/local/lib/kubeshare/packages/msgspec/__init__.py" in names


@pytest.mark.slow
def test_the_wheel_works_alone_and_names_what_the_lab_needs(tmp_path: Path) -> None:
    release.build(ROOT, tmp_path, "--wheel")
    (wheel,) = tmp_path.glob("*.whl")
    release.check_wheel(wheel)
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "kubeshare.cli.main", *arguments]
        environment = {"PYTHONPATH": f"{tmp_path / 'installed'}:{':'.join(sys.path)}"}
        return subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    assert run("--version").stdout.split()[-1] == __version__
    refused = run("lab", "status")
    assert refused.returncode == 3
    assert "pip install 'kubeshare[lab]'" in refused.stderr
