"""docs/designs/README.md is the list of the decision records."""

from pathlib import Path

import pytest

from tools import designs_page


def test_the_list_is_current() -> None:
    assert designs_page.PAGE.read_text() == designs_page.text(), "run tools/designs_page.py"


def test_a_number_is_given_once() -> None:
    numbers = [path.name[:3] for path in designs_page.records()]
    assert len(numbers) > 70
    assert len(numbers) == len(set(numbers))


def test_records_are_listed_by_number_and_title(tmp_path: Path) -> None:
    (tmp_path / "010-b.md").write_text("# 010: The `second`\n\nText.\n")
    (tmp_path / "002-a.md").write_text("# 002: The first\n")
    (tmp_path / "README.md").write_text("# Decision records\n")
    assert designs_page.text(tmp_path).endswith(
        "|---|---|\n| [002](002-a.md) | The first |\n| [010](010-b.md) | The `second` |\n"
    )


@pytest.mark.parametrize("first", ["# 003: Another number", "# No number", "Text", "# 002:", ""])
def test_a_record_without_its_number_is_named(tmp_path: Path, first: str) -> None:
    (tmp_path / "002-a.md").write_text(f"{first}\n")
    with pytest.raises(designs_page.TitleError, match=r"002-a\.md.*'# 002: TITLE'"):
        designs_page.text(tmp_path)
