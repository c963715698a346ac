"""The check of names and folders finds what it is for."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECK = ROOT / "tools" / "check_layout.py"


def check(folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run the check on a tree that has a folder ``src``."""
    return subprocess.run(
        [sys.executable, CHECK], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture
def src(tmp_path: Path) -> Path:
    folder = tmp_path / "src" / "kubeshare"
    folder.mkdir(parents=True)
    return folder


def test_a_retired_name_is_reported_with_its_place_and_its_successor(src: Path) -> None:
    (src / "scheduling.py").write_text("import os\n\n\nclass MoveOn:\n    pass\n")
    result = check(src.parents[1])
    assert result.returncode == 1
    line = "src/kubeshare/scheduling.py:4: MoveOn is retired: it is Rescheduler now\n"
    assert result.stdout == line


def test_a_name_that_only_contains_a_retired_one_is_no_retired_name(src: Path) -> None:
    (src / "a.py").write_text("LatestVersion = UnWatched = None\n")
    assert check(src.parents[1]).returncode == 0


@pytest.mark.parametrize(("count", "code"), [(16, 0), (17, 1)])
def test_a_folder_of_more_than_sixteen_modules_is_reported(
    src: Path, count: int, code: int
) -> None:
    for number in range(count):
        (src / f"m{number}.py").touch()
    (src / "__init__.py").touch()
    (src / "__main__.py").touch()
    (src / "messages_pb2.py").touch()
    result = check(src.parents[1])
    assert result.returncode == code
    assert ("src/kubeshare: 17 modules, more than 16" in result.stdout) == bool(code)


@pytest.mark.parametrize(("lines", "code"), [(500, 0), (501, 1)])
def test_a_module_of_more_than_five_hundred_lines_is_reported(
    src: Path, lines: int, code: int
) -> None:
    (src / "a.py").write_text('"""A."""\n' + "a = 1\n" * (lines - 1))
    result = check(src.parents[1])
    assert result.returncode == code
    assert ("src/kubeshare/a.py: 501 lines, more than 500" in result.stdout) == bool(code)


def test_a_long_module_of_tests_is_reported(src: Path) -> None:
    tests = src.parents[1] / "tests"
    tests.mkdir()
    (tests / "test_a.py").write_text("a = 1\n" * 501)
    result = check(src.parents[1])
    assert result.returncode == 1
    assert result.stdout == (
        "tests/test_a.py: 501 lines, more than 500: divide it by what they do\n"
    )


@pytest.mark.parametrize(("words", "code"), [(12, 0), (13, 1)])
def test_a_first_line_of_more_than_twelve_words_is_reported(
    src: Path, words: int, code: int
) -> None:
    (src / "a.py").write_text(f'"""{"word " * words}.\n\nMore.\n"""\n'.replace(" .", "."))
    result = check(src.parents[1])
    assert result.returncode == code
    assert ("src/kubeshare/a.py:1: 13 words in the first line" in result.stdout) == bool(code)


@pytest.mark.slow
def test_the_project_itself_passes() -> None:
    result = check(ROOT)
    assert (result.stdout, result.returncode) == ("", 0)


def test_two_decision_records_with_one_number_are_reported(src: Path) -> None:
    root = src.parents[1]
    records = root / "docs" / "designs"
    records.mkdir(parents=True)
    for name in ("007-a.md", "008-b.md"):
        (records / name).touch()
    assert check(root).returncode == 0
    (records / "007-c.md").touch()
    result = check(root)
    assert result.returncode == 1
    assert result.stdout == (
        "docs/designs: 007 is the number of 007-a.md and 007-c.md: take the next one\n"
    )
