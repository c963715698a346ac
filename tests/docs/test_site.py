"""The pages are a site: each is in its navigation, and it needs no other server."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools import site_hooks

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without calling what it names."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
CONFIG: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=Loader)


def pages(nav: Any) -> Iterator[str]:
    """The pages of a part of the navigation."""
    match nav:
        case str():
            yield nav
        case list():
            for each in nav:
                yield from pages(each)
        case dict():
            for each in nav.values():
                yield from pages(each)


def test_each_page_is_once_in_the_navigation() -> None:
    listed = list(pages(CONFIG["nav"]))
    assert sorted(listed) == sorted(path.name for path in DOCS.glob("*.md"))


def test_decisions_are_in_the_navigation_after_their_list() -> None:
    config: dict[str, Any] = {"docs_dir": str(DOCS), "nav": []}
    [decisions] = site_hooks.on_config(config)["nav"]
    assert decisions["Decisions"][:3] == [
        "designs/README.md",
        "designs/001-run-becomes-its-command.md",
        "designs/002-use-is-a-decayed-average.md",
    ]
    assert len(decisions["Decisions"]) == len(list(DOCS.glob("designs/*.md")))


@pytest.mark.parametrize(
    ("markdown", "page", "expected"),
    [
        ("see [install](install.md#try-it)", "a.md", "see [install](install.md#try-it)"),
        ("in [values](../deploy/values.yaml)", "a.md", "in values"),
        ("by [a record](../034-x.md)", "designs/a.md", "by [a record](../034-x.md)"),
        ("by [a test](../../tests/x.py)", "designs/a.md", "by a test"),
        ("[designs](designs)", "a.md", "designs"),
        ("[k8s](https://kubernetes.io)", "a.md", "[k8s](https://kubernetes.io)"),
        ("[above](#here)", "a.md", "[above](#here)"),
        ("![plot](plot.png)", "a.md", "![plot](plot.png)"),
        ("```\n[a](../b)\n```", "a.md", "```\n[a](../b)\n```"),
    ],
)
def test_a_link_that_leaves_the_site_is_its_text(markdown: str, page: str, expected: str) -> None:
    assert site_hooks.inside(markdown, page) == expected


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, as ``make docs`` builds it; a warning of mkdocs is an error.

    One worker of pytest-xdist has it: two would install the packages into one folder at a time.
    """
    folder = tmp_path_factory.mktemp("site")
    command = ["make", "--no-print-directory", "docs", f"SITE={folder}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_each_page_is_built_and_found_by_the_search(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    for page in [*DOCS.glob("*.md"), *DOCS.glob("designs/*.md")]:
        built = page.with_stem("index") if page.stem == "README" else page
        name = str(built.relative_to(DOCS).with_suffix(".html"))
        assert (site / name).is_file()
        assert name in found


@pytest.mark.slow
@pytest.mark.xdist_group("site")
def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loads = r"<(?:script|img|iframe)[^>]*src=([^ >]+)|<link[^>]*stylesheet[^>]*href=([^ >]+)"
    for page in site.rglob("*.html"):
        for groups in re.findall(loads, page.read_text()):
            assert "//" not in "".join(groups), page
    assert (site / "assets" / "iframe-worker.js").is_file()
    assert (site / "search" / "search_index.js").is_file()
