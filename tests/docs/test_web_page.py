"""What the page about `kubeshare web` says is what the program does."""

import re
import shlex
from pathlib import Path

import pytest

from kubeshare.cli.web import web
from kubeshare.web.access import HOSTS
from kubeshare.web.decisions import MOST_WAITING
from kubeshare.web.feed import MAX_CLIENTS
from kubeshare.web.in_cluster.program import Settings
from kubeshare.web.in_cluster.session import (
    CHECK_SECONDS,
    IDLE_SECONDS,
    MOST_STREAMS,
    UNCHECKED_SECONDS,
)
from kubeshare.web.in_cluster.sessions import MOST_OF_USER
from kubeshare.web.lookups import KINDS, MOST_EVENTS
from kubeshare.web.sources import STALE_SECONDS
from kubeshare.web.stream import STALLED_SECONDS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "web.md").read_text()
STATIC = Path(__file__).parents[2] / "src" / "kubeshare" / "web" / "static"


def test_each_command_is_one() -> None:
    lines = re.findall(r"^kubeshare web.*$", PAGE, flags=re.MULTILINE)
    assert lines
    for line in lines:
        web.make_context("web", shlex.split(line)[2:])
    options = {name for option in web.params for name in option.opts}
    assert set(re.findall(r"`(--[a-z]+)", PAGE)) <= options


def test_each_view_is_explained() -> None:
    views = re.findall(r'<a href="#/[\w-]+">([\w ]+?)(?: <span.*)?</a>', _html())
    table = re.findall(r"^\| ([\w ]+) \|", PAGE, flags=re.MULTILINE)
    assert len(views) == 6
    assert views == table[1:7]


@pytest.mark.parametrize(
    "words",
    [
        f"the latest {MOST_EVENTS} events",
        f"{MAX_CLIENTS} pages are open already",
        f"nothing of these kinds for {STALE_SECONDS:.0f} seconds",
        {8: "and eight wait already"}[MOST_WAITING],
        {60: "one that reads nothing is cut off after a minute"}[int(STALLED_SECONDS)],
        f"| {Settings(hosts=()).viewers} viewers at once (`web.viewers`) |",
        f"| {MOST_OF_USER} sessions of one user |",
        f"| {MOST_STREAMS} pages of one session |",
        f"| {CHECK_SECONDS:.0f} seconds | token and rights",
        f"| {IDLE_SECONDS / 60:.0f} minutes | without a page",
        f"| {UNCHECKED_SECONDS / 60:.0f} minutes | without an answer",
    ],
)
def test_its_bounds_are_those_of_the_program(words: str) -> None:
    assert words in PAGE


def test_the_kinds_of_events_are_named() -> None:
    assert all(f"{kind}s" in PAGE for kind in KINDS)
    assert "127.0.0.1" in HOSTS


def test_every_module_is_loaded_with_the_page_and_not_after_it() -> None:
    """Without that, a browser would find one module after the other."""
    scripts = {f"/static/{file.relative_to(STATIC)}" for file in (STATIC / "js").rglob("*.js")}
    modules = scripts - {"/static/js/main.js", "/static/js/loading.js"}
    assert set(re.findall(r'modulepreload" href="([^"]+)"', _html())) == modules


def test_what_sees_that_a_file_is_lost_comes_before_all_files() -> None:
    first = re.search(r'(?:src|rel="(?:stylesheet|modulepreload)" href)="([^"]+)"', _html())
    assert first
    assert first[1] == "/static/js/loading.js"


def test_no_script_sets_html_or_evaluates_text() -> None:
    for file in STATIC.rglob("*.js"):
        text = file.read_text()
        for dangerous in ("innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "new Function"):
            assert dangerous not in text, file


def _html() -> str:
    return (STATIC / "index.html").read_text()
