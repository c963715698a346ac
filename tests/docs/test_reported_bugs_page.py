"""The page about what went wrong elsewhere names tests that there are."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reported-bugs.md").read_text()
CASES = {*range(43, 54), *range(60, 63)} - {45}
REPORTS = {1, 3, 4, 5, 6, 9, 10, 11, 13, 14, 15, 18, 19, 20, 22, 23, 25, 26, 28, 29}


def rows(section: str) -> list[list[str]]:
    """The cells of a section's table, without its head."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("| ") and not line.startswith(("| case", "| report"))
    ]


def test_every_case_has_its_row() -> None:
    assert {int(row[0]) for row in rows("Cases of a SharePod's life")} == CASES


def test_every_report_has_its_row() -> None:
    named = "; ".join(row[0] for row in rows("Reports"))
    own = re.sub(r"(Gemini|alnair) \d+(, \d+)?", "", named)
    assert {int(number) for number in re.findall(r"\d+", own)} == REPORTS


@pytest.mark.parametrize("reference", sorted(set(re.findall(r"`(tests/[^`]+)`", PAGE))))
def test_what_shows_it_exists(reference: str) -> None:
    path, _, name = reference.partition("::")
    assert (ROOT / path).is_file()
    assert not name or f"def {name}(" in (ROOT / path).read_text()
