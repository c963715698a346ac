"""Every page's links to files of this repository lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLAYED_IN_A_LAB_OF_ITS_OWN = "uninstall"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_links_to_exist(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    ours = [link for link in links if "://" not in link]
    assert [link for link in ours if not (page.parent / link).exists()] == []


def test_each_page_with_commands_is_run_by_the_tests_in_the_lab() -> None:
    tests = "\n".join(path.read_text() for path in sorted(ROOT.glob("tests/e2e/**/*.py")))
    with_commands = [path for path in ROOT.glob("docs/*.md") if "\n```sh\n" in path.read_text()]
    names = {path.stem for path in with_commands} - {PLAYED_IN_A_LAB_OF_ITS_OWN}
    assert names
    assert [name for name in names if f'"{name}"' not in tests] == []
