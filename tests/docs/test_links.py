"""Every page's links to files of this repository lead somewhere, to the heading they name."""

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLAYED_IN_A_LAB_OF_ITS_OWN = "uninstall"
RUN_BEFORE_AN_INSTALLATION = {"from-kubeshare": "tests/deploy/test_old_sharepods.py"}
"""Pages about a cluster that has not this version yet → the tests that run them."""
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])


def without_fences(text: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """What a link may name after ``#``: GitHub's and the site's names of the headings."""
    found: set[str] = set()
    for heading in re.findall(
        r"^#{1,6} +(.+?) *#*$", without_fences(page.read_text()), re.MULTILINE
    ):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.add(next(each for each in numbered(name) if each not in found))
    return found


def numbered(name: str) -> Iterator[str]:
    """The name of a heading, then those of later ones with the same words."""
    yield name
    for number in count(1):
        yield f"{name}-{number}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_links_to_exists(page: Path) -> None:
    missing = []
    # Code between backticks may look like a link.
    prose = re.sub(r"`[^`\n]*`", "", without_fences(page.read_text()))
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        other = (page.parent / path) if path else page
        if not other.exists() or (anchor and anchor not in anchors(other)):
            missing.append(target)
    assert missing == []


def test_an_anchor_is_found_by_its_heading_only(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n## `limit` & *more*\n\n```sh\n# no heading\n```\n\n## A page\n")
    assert anchors(page) == {"a-page", "limit--more", "a-page-1"}


def test_each_page_with_commands_is_run_by_the_tests_in_the_lab() -> None:
    tests = "\n".join(path.read_text() for path in sorted(ROOT.glob("tests/e2e/**/*.py")))
    with_commands = [path for path in ROOT.glob("docs/*.md") if "\n```sh\n" in path.read_text()]
    names = {path.stem for path in with_commands}
    names -= {PLAYED_IN_A_LAB_OF_ITS_OWN, *RUN_BEFORE_AN_INSTALLATION}
    assert names
    assert [name for name in names if f'"{name}"' not in tests] == []
    for page, path in RUN_BEFORE_AN_INSTALLATION.items():
        assert f"docs/{page}.md" in (ROOT / path).read_text()
