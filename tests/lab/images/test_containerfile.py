"""The released image has what the lab's has, at the same places."""

import subprocess
import sys
from pathlib import Path

import pytest

from kubeshare.install import manifests
from kubeshare.lab.images import images

ROOT = Path(__file__).parents[3]
LINES = (ROOT / "Containerfile").read_text().splitlines()


def instructions(word: str) -> list[str]:
    return [line.removeprefix(f"{word} ") for line in LINES if line.startswith(f"{word} ")]


def test_its_environment_is_that_of_the_labs_image() -> None:
    of_the_base = {line for line in images._CONFIG["Env"] if line.startswith("PATH=")}
    assert set(instructions("ENV")) == set(images._CONFIG["Env"]) - of_the_base


def test_its_python_is_that_of_the_labs_image() -> None:
    (base,) = instructions("FROM")
    assert ":3.11-" in base
    assert base.endswith("-bookworm")


@pytest.mark.native
def test_all_that_it_copies_is_there() -> None:
    sources = [word for line in instructions("COPY") for word in line.split()[:-1]]
    assert len(sources) == 6
    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_it_has_the_bytecode_of_the_programs() -> None:
    (compiled,) = [line for line in instructions("RUN") if "compileall" in line]
    code = next(line.split()[-1] for line in instructions("COPY") if "src/kubeshare" in line)
    assert code.startswith(compiled.split()[-1])


@pytest.mark.slow
@pytest.mark.native
def test_every_program_starts_with_the_packages_of_the_image_alone(tmp_path: Path) -> None:
    """By their hashes, and without those that only tests and the lab need."""
    uv = str(Path(sys.executable).with_name("uv"))
    bare = tmp_path / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", f"--python={sys.executable}", tmp_path], check=True)
    install = instructions("RUN")[0]
    assert "--require-hashes" in install
    sync = [uv, "pip", "sync", "--quiet", "--require-hashes", f"--python={bare}"]
    subprocess.run([*sync, ROOT / "requirements" / "runtime.txt"], check=True)
    programs = {
        tuple(container["command"][:3])
        for manifest in manifests.load(manifests.Options())
        if manifest["kind"] in ("Deployment", "DaemonSet")
        for container in manifest["spec"]["template"]["spec"]["containers"]
    }
    assert len(programs) == 4
    (entry,) = instructions("ENTRYPOINT")
    for python, *module in sorted(programs | {("python3", "-m", "kubeshare.cli.main")}):
        assert entry == f'["{python}"]'
        started = subprocess.run(
            [bare, *module, "--help"],
            env={"PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (started.returncode, started.stderr) == (0, "")
        assert "usage" in started.stdout.lower()
