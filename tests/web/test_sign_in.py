"""The page in the cluster in Debian's Chromium: a token is asked for, and used."""

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from deadlines import DEADLINE_S
from fakes.web import small_cluster
from fakes.web.browser import new_tab
from fakes.web.rights import rights
from fakes.web.tokens import InCluster, TokenApiServer, served_in_cluster

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("chromium")]

expect.set_options(timeout=DEADLINE_S * 1000)


@pytest.fixture
def page() -> Iterator[InCluster]:
    api = TokenApiServer(small_cluster(), {"all": "admin", "ann": "ann"})
    api.allow("ann", rights("research"))
    with served_in_cluster(api, hosts=("127.0.0.1",)) as found:
        yield found


def sign_in(tab: Page, token: str) -> None:
    tab.get_by_label("Token").fill(token)
    tab.get_by_role("button", name="Sign in").click()


def test_a_token_is_asked_for_and_forgotten(page: InCluster, browser: Browser) -> None:
    # A refused request is an error on the console of Chromium, so this has a tab of its own.
    tab = new_tab(browser)
    origin = str(page.http.base_url)
    tab.goto(origin)
    expect(tab.locator("h1")).to_have_text("Sign in")
    expect(tab.get_by_label("Token")).to_be_focused()
    assert Axe().run(tab).violations_count == 0
    sign_in(tab, "wrong")
    expect(tab.get_by_role("alert")).to_contain_text("unknown or has expired")
    sign_in(tab, "all")
    expect(tab.locator("h1")).to_have_text("GPUs")
    expect(tab.locator("#connection")).to_have_text("Live · admin")
    expect(tab.locator("main")).to_contain_text("3 nodes, 20 GPUs")
    assert "all" not in tab.url
    other = tab.context.new_page()
    other.goto(origin)
    expect(other.locator("h1")).to_have_text("Sign in")
    tab.get_by_role("button", name="Sign out").click()
    expect(tab.locator("h1")).to_have_text("Sign in")
    tab.context.close()


def test_a_viewer_of_one_namespace_names_it(page: InCluster, browser: Browser) -> None:
    tab = new_tab(browser, extra_http_headers={"authorization": "Bearer ann"})
    tab.goto(str(page.http.base_url))  # as through a proxy that adds the token
    expect(tab.locator(".notice")).to_contain_text("You see namespace default.")
    assert Axe().run(tab).violations_count == 0
    expect(tab.get_by_role("button", name="Sign out")).to_be_hidden()
    tab.get_by_label("Namespaces").fill("research serving")
    tab.get_by_role("button", name="Show").click()
    expect(tab.locator(".notice")).to_contain_text("You see namespace research, serving.")
    expect(tab.locator("main")).to_contain_text("gpu-a")
    tab.context.close()
