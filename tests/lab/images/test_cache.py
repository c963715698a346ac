"""What is built once and kept."""

from pathlib import Path

import pytest

from kubeshare.lab.images.cache import cache_folder, cached, digest


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_a_folder_is_built_once() -> None:
    calls: list[Path] = []

    def build(folder: Path) -> None:
        calls.append(folder)
        (folder / "result").write_text("done")

    first = cached("thing", "1", build)
    second = cached("thing", "1", build)

    assert first == second == cache_folder() / "thing-1"
    assert (first / "result").read_text() == "done"
    assert len(calls) == 1


def test_another_recipe_makes_another_folder() -> None:
    def build(folder: Path) -> None:
        (folder / "result").touch()

    assert cached("thing", "1", build) != cached("thing", "2", build)


def test_a_build_that_fails_leaves_nothing_to_be_taken_for_a_result() -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        cached("thing", "1", fail)

    assert not [path for path in cache_folder().iterdir() if path.is_dir()]


def test_what_an_interrupted_build_left_is_built_anew() -> None:
    partial = cache_folder() / ".thing-1.partial-x"
    partial.mkdir(parents=True)
    (partial / "half").touch()

    def build(folder: Path) -> None:
        assert not any(folder.iterdir())
        (folder / "result").touch()

    folder = cached("thing", "1", build)

    assert [path.name for path in folder.iterdir()] == ["result"]
    assert not partial.exists()


def test_the_hash_knows_a_file_by_its_contents(tmp_path: Path) -> None:
    file = tmp_path / "go.mod"
    file.write_text("one")
    before = digest([file])
    file.write_text("two")

    assert digest([file]) != before
    assert digest(["ab", "c"]) != digest(["a", "bc"])
