"""The pages about the device library name tests and functions that there are."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
USERS_PAGE = ROOT / "docs" / "device-library.md"
READERS_PAGE = ROOT / "docs" / "launch-path.md"
STATES = {"blocked", "detected", "documented"}
# Names of others, and of what is no function.
OF_OTHERS = {"exit", "cuLaunchKernel", "depth", "launches", "gated.def", "ks_thread_mark"}


def bypasses() -> list[list[str]]:
    """The rows of the last table: way, state, what happens, test."""
    _, _, section = USERS_PAGE.read_text().partition("## What gets past it")
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if "|" in line]
    return [[cell.strip("| ") for cell in row] for row in rows[2:]]


def test_each_way_past_the_library_is_blocked_detected_or_documented() -> None:
    rows = bypasses()
    assert len(rows) > 15
    assert {row[1] for row in rows} == STATES
    for row in rows:
        has_test = len(row) == 4
        assert has_test == (row[1] != "documented"), row


@pytest.mark.parametrize("row", bypasses(), ids=lambda row: row[0])
def test_the_test_that_shows_it_exists(row: list[str]) -> None:
    for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", " ".join(row)):
        assert f"def {name}(" in (ROOT / path).read_text()
    assert row[1] == "documented" or "::" in row[-1]


def functions_of_the_library() -> set[str]:
    """All that native/device_library defines, the generated hooks too."""
    files = (ROOT / "native" / "device_library").rglob("*.[ch]")
    text = "\n".join(re.sub(r"/\*.*?\*/", "", file.read_text(), flags=re.DOTALL) for file in files)
    defined = set(re.findall(r"\b(\w+)\([^;{}()]*\)\s*\{", text))
    macros = set(re.findall(r"#define (\w+)", text))
    in_assembler = set(re.findall(r'"(\w+):\\n"', text))
    return defined | macros | in_assembler


def test_the_functions_on_a_launchs_way_exist() -> None:
    named = set(re.findall(r"`(\w+)`", READERS_PAGE.read_text())) - OF_OTHERS
    named = {name for name in named if not name.isupper() or name.startswith(("KS_", "GATED"))}
    constants = {"KS_GATE_OPEN", "ks_fast_gate", "RTLD_NEXT", "RTLD_DEFAULT"}
    assert len(named) > 40
    assert named - constants - functions_of_the_library() == set()


@pytest.mark.parametrize("page", [USERS_PAGE, READERS_PAGE], ids=lambda page: page.name)
def test_files_that_are_linked_to_exist(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    assert links
    missing = [link for link in links if not (page.parent / link).exists()]
    assert missing == []


def test_each_function_is_in_the_file_that_is_named_with_it() -> None:
    pairs = re.findall(r"`(\w+)` in `(\w+\.[ch])`", READERS_PAGE.read_text())
    assert len(pairs) > 20
    for name, file in pairs:
        (path,) = (ROOT / "native" / "device_library").rglob(file)
        text = path.read_text()
        assert re.search(rf"\b{name}\b(\(|:\\n| )", text), f"{name} is not in {file}"
