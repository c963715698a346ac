"""A release is complete, or it says what is missing."""

import hashlib
import json
import platform
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from deploy.helm import IMAGE, Helm
from kubeshare import __version__
from kubeshare.install import manifests
from kubeshare.lab.images import binaries
from kubeshare.lab.progress import Progress
from tools import krew, release, sbom

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
        (["kubeshare/deploy/chart/kubeshare/manifests/crds/vgpus.yaml"], "py.typed"),
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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """KubeShare's wheel, as a release has it."""
    folder = tmp_path_factory.mktemp("wheel")
    release.build(ROOT, folder, "--wheel")
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_works_alone_and_names_what_the_lab_needs(wheel: Path, tmp_path: Path) -> None:
    release.check_wheel(wheel)
    assert "kubeshare/web/static/js/main.js" in zipfile.ZipFile(wheel).namelist()
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "kubeshare.cli.main", *arguments]
        environment = {"PYTHONPATH": f"{tmp_path / 'installed'}:{':'.join(sys.path)}"}
        return subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    assert run("--version").stdout.split()[-1] == __version__
    code = "from kubeshare import client, policy_testing; print(client.__file__)"
    environment = {"PYTHONPATH": f"{tmp_path / 'installed'}:{':'.join(sys.path)}"}
    imported = subprocess.check_output([sys.executable, "-c", code], env=environment, cwd=tmp_path)
    assert str(tmp_path) in imported.decode()
    refused = run("lab", "status")
    assert refused.returncode == 3
    assert "pip install 'kubeshare[lab]'" in refused.stderr


@pytest.mark.slow
def test_the_packaged_chart_renders_as_its_folder_does(tmp_path: Path) -> None:
    path = tmp_path / f"kubeshare-{__version__}.tgz"
    release.chart(path)
    helm = Helm(binaries.helm(Progress()), tmp_path)
    packaged, folder = (
        helm("template", "r", str(chart), "--namespace", "n", values={"image": IMAGE})
        for chart in (path, release.CHART)
    )
    assert packaged == folder
    chart = yaml.safe_load(helm("show", "chart", str(path)))
    assert chart == yaml.safe_load((release.CHART / "Chart.yaml").read_text())


@pytest.mark.slow
def test_install_yaml_has_what_install_applies() -> None:
    image = "registry.example/kubeshare@sha256:" + "0" * 64
    text = release.install_yaml(image)
    expected = manifests.load(manifests.Options(namespace="kubeshare-system", image=image))
    assert list(yaml.safe_load_all(text)) == expected
    assert "kubeshare:dev" not in text


def test_the_manifest_for_krew_names_each_archive_by_its_hash(tmp_path: Path) -> None:
    archives = {"amd64": tmp_path / "a.tar.gz", "arm64": tmp_path / "b.tar.gz"}
    for name, path in archives.items():
        path.write_text(name)
    read = yaml.safe_load(krew.manifest("1.2.3", archives, "https://downloads.example/v1.2.3/"))
    assert read["spec"]["version"] == "v1.2.3"
    assert [
        (each["selector"]["matchLabels"], each["uri"], each["sha256"])
        for each in read["spec"]["platforms"]
    ] == [
        (
            {"os": "linux", "arch": name},
            f"https://downloads.example/v1.2.3/{path.name}",
            hashlib.sha256(name.encode()).hexdigest(),
        )
        for name, path in archives.items()
    ]


@pytest.mark.slow
def test_the_plugin_works_from_its_archive_alone(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    monkeypatch.setattr(krew, "PYTHONS", (here, "3.14"))
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    requirements = (ROOT / "requirements" / "runtime.txt").read_text()
    path = tmp_path / "plugin.tar.gz"
    krew.archive(wheel, requirements, architecture, path)
    with tarfile.open(path) as tar:
        tar.extractall(tmp_path / "store", filter="data")
        names = tar.getnames()
    for version in krew.PYTHONS:
        assert [name for name in names if f"cpython-{version.replace('.', '')}-" in name]
    assert not [name for name in names if "/grpc/" in name]
    # As krew does.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(Path(sys.executable).resolve())
    command = tmp_path / "bin" / "kubectl-kubeshare"
    command.symlink_to(tmp_path / "store" / "kubectl-kubeshare")
    environment = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path)}

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [command, *arguments], env=environment, capture_output=True, text=True, check=False
        )

    assert run("--version").stdout.split()[-1] == __version__
    dry = run("install", "--dry-run", "--image", "i")
    assert (dry.returncode, dry.stderr) == (0, "")
    away = run("doctor", "--kubeconfig", str(tmp_path / "none"))
    assert away.returncode == 3
    assert "internal error" not in away.stderr


@pytest.mark.slow
def test_the_bill_of_materials_has_each_package_and_each_source() -> None:
    requirements = (ROOT / "requirements" / "runtime.txt").read_text()
    pins = [line.split()[0] for line in requirements.splitlines() if "==" in line]
    found = sbom.packages(requirements)
    read = json.loads(sbom.document("1.2.3", found, ROOT / "native"))
    assert read["bomFormat"] == "CycloneDX"
    assert read["metadata"]["component"]["version"] == "1.2.3"
    packages = {each["purl"] for each in read["components"] if "purl" in each}
    assert packages == {f"pkg:pypi/{pin.replace('==', '@')}" for pin in pins}
    [native] = [each for each in read["components"] if "components" in each]
    hashes = {each["name"]: each["hashes"][0]["content"] for each in native["components"]}
    wire = "native/include/kubeshare_wire.h"
    assert hashes[wire] == hashlib.sha256((ROOT / wire).read_bytes()).hexdigest()
    assert not [name for name in hashes if "tests" in name or "fakegpu" in name]


def test_each_package_has_a_licence_or_is_refused() -> None:
    requirements = (ROOT / "requirements" / "runtime.txt").read_text()
    listed = sbom.licence_list("1.2.3", sbom.packages(requirements)).splitlines()
    assert len(listed) == 1 + sum("==" in line for line in requirements.splitlines())
    assert all(len(line.split(maxsplit=2)) == 3 for line in listed)
    with pytest.raises(sbom.LicenceError, match="no-such-package"):
        sbom.packages("no-such-package==1.0 \\\n    --hash=sha256:0\n")
