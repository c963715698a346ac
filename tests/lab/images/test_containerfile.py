"""The released image has what the lab's has, at the same places, and needs nothing of its base."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kubeshare import compiled, native
from kubeshare.install import manifests
from kubeshare.lab.errors import LabError
from kubeshare.lab.images import images, python_packages
from tools import image_context

LINES = (image_context.ROOT / "Containerfile").read_text().splitlines()
DIGEST = f"registry.example/python@sha256:{'0' * 64}"
AARCH64 = 183
"""The machine in the header of an ELF file."""


def instructions(word: str) -> list[str]:
    return [line.removeprefix(f"{word} ") for line in LINES if line.startswith(f"{word} ")]


def environment(context: Path) -> dict[str, str]:
    """That of the image, as if the context's root were the root of this machine."""
    variables = (line.partition("=") for line in instructions("ENV"))
    root = context / "root"
    return {name: value.replace("/usr/", f"{root}/usr/") for name, _, value in variables}


def run_python(context: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a Python without packages of its own in the image's environment."""
    return subprocess.run(
        [sys.executable, "-S", *arguments],
        env=environment(context),
        cwd=context,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The context of the image for this machine."""
    folder = tmp_path_factory.mktemp("image")
    image_context.write_context(folder)
    return folder


def test_its_environment_is_that_of_the_labs_image() -> None:
    of_the_base = {line for line in images._CONFIG["Env"] if line.startswith("PATH=")}
    assert set(instructions("ENV")) == set(images._CONFIG["Env"]) - of_the_base
    assert instructions("ENTRYPOINT") == ['["python3"]']


def test_its_base_is_chosen_by_who_builds_it_and_nothing_runs_in_it() -> None:
    assert instructions("ARG") == ["BASE"]
    assert instructions("FROM") == ["${BASE}"]
    assert instructions("RUN") == []


@pytest.mark.parametrize("base", ["python:3.11-slim", "python"])
def test_a_base_without_a_digest_is_refused(tmp_path: Path, base: str) -> None:
    with pytest.raises(image_context.ImageError, match="NAME@sha256:"):
        image_context.build(tmp_path, base, "kubeshare:dev")


def test_without_buildah_the_command_of_another_builder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(image_context.ImageError, match=f"--build-arg BASE={DIGEST}"):
        image_context.build(tmp_path, DIGEST, "kubeshare:dev")


def test_the_image_has_the_architecture_of_its_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a base for several, the builder would take that of its own machine."""
    called: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        called.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(subprocess, "run", run)
    image_context.build(tmp_path, DIGEST, "kubeshare:arm64", "arm64")
    (command,) = called
    assert command[:2] == ["buildah", "build"]
    assert command[command.index("--arch") + 1] == "arm64"


@pytest.mark.slow
def test_what_is_not_built_is_named_with_what_builds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_packages, "install", lambda *_args, **_options: None)
    monkeypatch.setattr(native, "path", lambda name: image_context.ROOT / name)
    with pytest.raises(image_context.ImageError, match="is not built: run `make native`"):
        image_context.write_context(tmp_path / "image")


def test_packages_that_cannot_be_had_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise LabError("installing failed")

    monkeypatch.setattr(python_packages, "install", refuse)
    with pytest.raises(image_context.ImageError, match="installing failed"):
        image_context.write_context(tmp_path / "image")


@pytest.mark.slow
@pytest.mark.native
@pytest.mark.xdist_group("image-context")
def test_every_program_starts_with_what_is_in_the_image_alone(context: Path) -> None:
    """By a Python without packages of its own."""
    programs = {
        tuple(container["command"][:3])
        for manifest in manifests.load(manifests.Options())
        if manifest["kind"] in ("Deployment", "DaemonSet")
        for container in manifest["spec"]["template"]["spec"]["containers"]
    }
    assert len(programs) == 4
    for _, *module in sorted(programs | {("python3", "-m", "kubeshare.cli.main")}):
        started = run_python(context, *module, "--help")
        assert (started.returncode, started.stderr) == (0, "")
        assert "usage" in started.stdout.lower()


@pytest.mark.slow
@pytest.mark.native
@pytest.mark.xdist_group("image-context")
def test_its_token_daemon_runs_the_compiled_handover(context: Path) -> None:
    code = (
        "from kubeshare import compiled\n"
        "assert compiled.use() == compiled.Code(is_compiled=True), compiled.use()\n"
        "from kubeshare.core.token import arbiter\n"
        "print(arbiter.__file__)"
    )
    done = run_python(context, "-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    folder = context / "root" / image_context.INSTALLED / compiled.FOLDER
    assert done.stdout.strip() == str(compiled.library(folder))


@pytest.mark.slow
@pytest.mark.native
@pytest.mark.xdist_group("image-context")
def test_it_has_bytecode_and_nothing_of_the_lab(context: Path) -> None:
    code = context / "root" / image_context.INSTALLED / "src" / "kubeshare"
    assert list((code / "scheduler" / "__pycache__").glob("program.*.pyc"))
    assert not {each.name for each in code.iterdir()} & {"lab", "demo", "fakegpu"}


@pytest.mark.slow
def test_an_image_for_arm64_has_the_packages_of_arm64(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_context, "_native_files", lambda *_: {})
    image_context.write_context(tmp_path / "image", "arm64")
    libraries = list((tmp_path / "image" / "root").rglob("*.so"))
    assert libraries
    for library in libraries:
        assert int.from_bytes(library.read_bytes()[18:20], "little") == AARCH64, library
