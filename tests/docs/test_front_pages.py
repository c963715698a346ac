"""README.md and CONTRIBUTING.md name what there is: targets, folders, layers."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
TARGETS = set(re.findall(r"^([a-z0-9-]+):.* ## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXPLAINS_ITSELF = {"help", "clean"}


def made(text: str) -> set[str]:
    """The targets that a page names."""
    return set(re.findall(r"(?:`|^)make ([a-z0-9-]+)", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_tells_to_make_is_a_target(page: Path) -> None:
    assert made(page.read_text()) <= TARGETS


def test_every_target_is_told_of() -> None:
    assert made(README) | made(CONTRIBUTING) >= TARGETS - EXPLAINS_ITSELF


def test_the_table_of_folders_has_every_package_and_names_only_what_there_is() -> None:
    table = CONTRIBUTING.partition("## How to run what")[0]
    listed = {
        name
        for row in re.findall(r"^\| (`[^|]+`) \|", table, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", row)
    }
    packages = {
        str(path.relative_to(ROOT)) for path in (ROOT / "src/kubeshare").iterdir() if path.is_dir()
    }
    assert listed >= {package for package in packages if not package.endswith("__pycache__")}
    assert all((ROOT / name).is_dir() for name in listed)


def test_the_layers_are_those_that_are_enforced() -> None:
    enforced = (ROOT / "pyproject.toml").read_text().partition('type = "layers"')[2]
    layers = re.findall(r'^    "([^"]+)",$', enforced.partition("]")[0], re.MULTILINE)
    assert " > ".join(layers).replace("kubeshare.", "") in CONTRIBUTING
