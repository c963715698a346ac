"""Fixtures: the page of a small cluster, and a browser."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from fakes.web import Served, served, small_cluster
from fakes.web.browser import ARGUMENTS, CHROMIUM, new_tab
from fakes.web.network import loopback_alone


@pytest.fixture(scope="module")
def network() -> Iterator[None]:
    """One that no lab changes: without, what the browser loads just then is lost."""
    with loopback_alone():
        yield


@pytest.fixture(scope="module")
def page(network: None) -> Iterator[Served]:
    """The page of the small cluster, which no test changes, for who may see everything."""
    with served(small_cluster()) as found:
        yield found


@pytest.fixture
def changing(network: None) -> Iterator[Served]:
    """The same, of a cluster of the test's own."""
    with served(small_cluster()) as found:
        yield found


@pytest.fixture(scope="module")
def browser(network: None) -> Iterator[Browser]:
    """Debian's Chromium."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture
def tab(browser: Browser) -> Iterator[Page]:
    """A tab that fails the test if a script throws, or breaks the page's security policy."""
    opened = new_tab(browser, viewport={"width": 1200, "height": 760})
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("console", lambda told: problems.append(told.text) if told.type == "error" else None)
    yield opened
    before = len(problems)
    opened.context.close()
    # By now a server of the test's own has ended, and the page may have asked it again.
    late = [each for each in problems[before:] if "ERR_CONNECTION_REFUSED" not in each]
    assert not problems[:before] + late
