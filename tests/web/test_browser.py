"""The page of `kubeshare web` in Debian's Chromium."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Route, expect

from deadlines import DEADLINE_S
from fakes import manifests
from fakes.web import Served, large_cluster, served, small_cluster
from fakes.web.browser import new_tab
from fakes.web.cluster import add_share, add_vgpu
from fakes.web.rights import rights
from kubeshare.api.types.share_usage import SHARE_USAGES
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPUS
from kubeshare.kube.conditions import timestamp

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("chromium")]

expect.set_options(timeout=DEADLINE_S * 1000)

VIEWS = (
    *("nodes", "nodes/gpu-a", "pods", "waiting", "quotas", "events", "what-if"),
    *("pods/SharePod/serving/reranker", "pods/SharePod/research/train-bert"),
)


def open_page(tab: Page, page: Served, view: str = "nodes") -> None:
    """Open the page by the URL that is printed, then a view of it."""
    tab.goto(page.url)
    expect(tab.locator("h1")).to_have_text("GPUs")
    if view != "nodes":
        go(tab, view)


def go(tab: Page, view: str) -> None:
    tab.evaluate("view => { location.hash = `#/${view}`; }", view)
    expect(tab.locator("main")).to_have_attribute("data-view", f"#/{view}")
    expect(tab.locator("main")).not_to_contain_text(re.compile("Reading|Asking"))


def rows(tab: Page) -> list[str]:
    """The text of each row of a long table that is an element."""
    return tab.locator(".table .body [role=row]").all_inner_texts()


def wait_for(tab: Page, condition: Callable[[], bool]) -> None:
    for _ in range(int(DEADLINE_S * 50)):
        if condition():
            return
        tab.wait_for_timeout(20)
    raise AssertionError("not within the deadline")


def test_it_shows_nodes_gpus_and_shares(tab: Page, page: Served) -> None:
    open_page(tab, page)
    expect(tab.locator(".table .body [role=row]")).to_have_count(3)
    first = rows(tab)[0]
    for words in (
        "gpu-a",
        "Ready",
        "1 unhealthy",
        "Tesla V100-SXM2-16GB",
        "1.3 of 8",
        "4 shares",
    ):
        assert words in first
    expect(tab.locator("main")).to_contain_text("3 nodes, 20 GPUs, 2.4 GPUs requested")
    expect(tab.locator("#connection")).to_have_text("Live · demo")
    tab.get_by_role("link", name="gpu-a").click()
    expect(tab.locator("h1")).to_have_text("gpu-a")
    shares = tab.get_by_role("table", name="Shares of GPU0").get_by_role("row")
    expect(shares).to_have_count(3)
    expect(shares.nth(1)).to_contain_text("research/train-bert")
    expect(shares.nth(1)).to_contain_text("0.6 on average")
    expect(tab.locator("main")).to_contain_text("XID 79: GPU has fallen off the bus")
    expect(tab.get_by_role("img", name="access-cost tree")).to_contain_text("NV2")
    tab.get_by_role("link", name="serving/ranker").click()
    expect(tab.locator("h1")).to_have_text("serving/ranker")


def test_it_shows_who_waits_why_and_what_would_help(tab: Page, page: Served) -> None:
    open_page(tab, page, "waiting")
    expect(tab.locator("#waiting-count")).to_have_text("2")
    first, second = rows(tab)
    assert "research/huge" in first
    assert "vGPU gpu-a/vgpu-a0: compute 0.2 left, 0.6 asked" in second
    tab.get_by_role("link", name="serving/reranker").click()
    help_words = "What would help: it fits when train-bert leaves gpu-a/vgpu-a0."
    expect(tab.locator(".help")).to_have_text(help_words)
    expect(tab.get_by_role("table", name="Why not elsewhere")).to_contain_text(
        "compute 0.2 left, 0.6 asked"
    )
    expect(tab.get_by_role("table", name="Events")).to_contain_text("Unschedulable")


def test_quotas_and_events_are_shown(tab: Page, page: Served) -> None:
    open_page(tab, page, "quotas")
    expect(tab.locator("tbody tr")).to_have_text(
        [re.compile("research.*GPUQuota gpus.*2 Tesla"), re.compile("serving.*4 GPUs")]
    )
    go(tab, "events")
    expect(tab.locator("tbody tr")).to_have_count(3)


def test_a_what_if_is_answered_and_a_wrong_value_is_marked(tab: Page, page: Served) -> None:
    open_page(tab, page, "what-if")
    tab.get_by_label("Request").fill("0.6")
    tab.get_by_label("Memory", exact=True).fill("20Gi")
    tab.get_by_label("Memory", exact=True).press("Enter")
    expect(tab.locator(".outcome")).to_contain_text("It fits now, on gpu-c/vgpu-c")
    tab.get_by_label("Request").fill("lots")
    tab.get_by_role("button", name="Ask").click()
    expect(tab.locator(".outcome")).to_contain_text("It can never be placed (spec.gpu.request)")
    expect(tab.get_by_label("Request")).to_be_focused()
    expect(tab.get_by_label("Request")).to_have_attribute("aria-invalid", "true")


def test_changes_are_shown_without_loading_anything_again(tab: Page, changing: Served) -> None:
    open_page(tab, changing)
    loads: list[str] = []
    tab.on("request", lambda request: loads.append(request.url))

    def arrive(name: str = "new") -> None:
        held = add_share(changing.api, "vision", name, "0.9", 4, "gpu-c", "vgpu-c1")
        add_vgpu(changing.api, "gpu-c", 1, held)

    changing.do(arrive)
    row = tab.locator(".table .body [role=row]").nth(2)
    expect(row).to_contain_text("1.3 of 4")
    expect(row).to_contain_text("2 shares")
    assert loads == []
    go(tab, "waiting")
    changing.do(changing.api.remove, SHAREPODS, "huge", "research")
    expect(tab.locator("#waiting-count")).to_have_text("1")
    expect(tab.locator(".table .body [role=row]")).to_have_count(1)
    go(tab, "nodes/gpu-b")
    expect(tab.locator(".badge.unhealthy")).to_have_count(0)
    changing.do(changing.api.change, GPUNODES, "gpu-b", "", _fail_last)
    expect(tab.locator(".badge.unhealthy")).to_have_count(1)


def _fail_last(gpunode: dict[str, Any]) -> None:
    gpunode["spec"]["devices"][7] |= {"healthy": False, "message": "XID 48"}


def test_a_server_that_has_ended_is_said_so(browser: Browser) -> None:
    tab = new_tab(browser)
    with served(small_cluster()) as page:
        open_page(tab, page)
    expect(tab.locator("#connection")).to_contain_text("does not answer: has it ended?")
    expect(tab.locator(".table .body [role=row]")).to_have_count(3)
    tab.context.close()


@pytest.mark.parametrize("file", ["main.js", "style.css"])
def test_a_file_that_is_lost_on_its_way_is_loaded_again(
    browser: Browser, page: Served, file: str
) -> None:
    """As when a network of the machine changes: Chromium then gives up what it loads."""
    tab = new_tab(browser)
    lost: list[Route] = []

    def lose(route: Route) -> None:
        lost.append(route)
        route.abort("connectionreset")

    tab.route(f"**/{file}", lose, times=1)
    tab.goto(page.url)
    expect(tab.locator("h1")).to_have_text("GPUs")
    expect(tab.locator("#connection")).to_have_text("Live · demo")
    expect(tab.locator("body")).to_have_css("margin", "0px")  # the style sheet's
    assert len(lost) == 1
    tab.context.close()


def test_a_file_that_cannot_be_loaded_is_told_of(browser: Browser, page: Served) -> None:
    tab = new_tab(browser)
    tab.route("**/views/nodes.js", lambda route: route.abort("connectionreset"))
    tab.goto(page.url)
    words = "A file of this page could not be loaded: reload the page"
    expect(tab.locator("#connection")).to_have_text(words)
    tab.unroute_all()
    tab.reload()
    expect(tab.locator("h1")).to_have_text("GPUs")
    tab.context.close()


def test_without_the_token_it_says_what_to_open(browser: Browser, page: Served) -> None:
    tab = new_tab(browser)
    tab.goto(page.url.partition("#")[0])
    expect(tab.locator("main")).to_contain_text("open the whole URL that `kubeshare web` printed")
    tab.context.close()


def test_the_token_leaves_the_url_and_a_reload_needs_it_no_more(tab: Page, page: Served) -> None:
    open_page(tab, page, "pods")
    assert "token" not in tab.url
    tab.reload()
    expect(tab.locator("h1")).to_have_text("Pods")


def test_a_user_of_one_namespace_is_told_what_is_not_shown(tab: Page) -> None:
    with served(small_cluster(), rights=rights("research"), home="research") as page:
        open_page(tab, page)
        expect(tab.locator(".notice")).to_contain_text("You see namespace research.")
        expect(tab.locator(".table .body [role=row]")).to_have_count(1)
        go(tab, "nodes/gpu-a")
        expect(tab.locator("main")).to_contain_text("partly seen")


@pytest.mark.serial
def test_the_first_paint_takes_less_than_a_second(tab: Page) -> None:
    with served(large_cluster(5000)) as page:
        open_page(tab, page)
        paints = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        assert tab.evaluate(paints) < 1000


def test_of_5000_nodes_few_are_elements(tab: Page) -> None:
    with served(large_cluster(5000)) as page:
        open_page(tab, page)
        expect(tab.locator("main")).to_contain_text("5000 nodes, 40000 GPUs")
        assert len(rows(tab)) < 60
        tab.evaluate("scrollTo(0, document.body.scrollHeight)")
        wait_for(tab, lambda: any("node-4999" in row for row in rows(tab)))
        assert len(rows(tab)) < 60
        tab.evaluate("scrollTo(0, 2500 * 44)")
        wait_for(tab, lambda: any("node-2500\n" in row for row in rows(tab)))
        tab.get_by_label("Filter").fill("node-1234")
        wait_for(tab, lambda: len(rows(tab)) == 1)


@pytest.mark.parametrize("width", [400, 320])
def test_a_narrow_screen_has_no_horizontal_scroll(tab: Page, page: Served, width: int) -> None:
    tab.set_viewport_size({"width": width, "height": 800})
    open_page(tab, page)
    for view in VIEWS:
        go(tab, view)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, view


def test_the_keyboard_reaches_a_pod_s_page(tab: Page, page: Served) -> None:
    open_page(tab, page)
    tab.keyboard.press("Tab")
    expect(tab.locator(".skip")).to_be_focused()
    tab.keyboard.press("Enter")
    expect(tab.locator("main")).to_be_focused()
    tab.keyboard.press("Tab")
    expect(tab.get_by_label("Filter")).to_be_focused()
    tab.keyboard.press("Tab")
    expect(tab.get_by_role("link", name="gpu-a")).to_be_focused()
    tab.keyboard.press("Enter")
    expect(tab.locator("main")).to_be_focused()
    expect(tab.get_by_role("table", name="Shares of GPU0")).to_be_visible()
    tab.keyboard.press("Tab")  # the region of the table, which arrow keys scroll
    tab.keyboard.press("Tab")
    expect(tab.get_by_role("link", name="research/train-bert")).to_be_focused()
    tab.keyboard.press("Enter")
    expect(tab.locator("h1")).to_have_text("research/train-bert")


def test_the_focus_stays_where_it_is_when_a_row_changes(tab: Page, changing: Served) -> None:
    open_page(tab, changing)
    tab.get_by_role("link", name="gpu-b").focus()
    changing.do(changing.api.change, GPUNODES, "gpu-b", "", _fail_last)
    expect(tab.locator(".table .body [role=row]").nth(1)).to_contain_text("1 unhealthy")
    expect(tab.get_by_role("link", name="gpu-b")).to_be_focused()


def test_the_focus_stays_where_it_is_when_a_node_s_page_changes(
    tab: Page, changing: Served
) -> None:
    open_page(tab, changing, "nodes/gpu-b")
    link = tab.locator("main table").get_by_role("link").first
    link.focus()
    changing.do(changing.api.change, GPUNODES, "gpu-b", "", _fail_last)
    expect(tab.locator("main .badge.unhealthy")).to_have_count(1)
    expect(link).to_be_focused()


@pytest.mark.parametrize("view", ["events", "pods/SharePod/research/train-bert"])
def test_the_focus_stays_where_it_is_when_ages_are_shown_anew(
    tab: Page, page: Served, view: str
) -> None:
    tab.clock.install()
    open_page(tab, page, view)
    link = tab.locator("main").get_by_role("link").first
    link.focus()
    before = tab.locator("main").inner_text()
    tab.clock.fast_forward(timedelta(hours=12) // timedelta(milliseconds=1))
    expect(tab.locator("main")).not_to_have_text(before, use_inner_text=True)
    expect(link).to_be_focused()


def test_use_over_time_is_a_line_with_words(tab: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeshare.web.lookups._USAGE_SECONDS", 0)

    def use(minutes: int) -> Callable[[dict[str, Any]], None]:
        def change(usage: dict[str, Any]) -> None:
            before = datetime.fromisoformat(usage["status"]["observedAt"])
            usage["status"]["observedAt"] = timestamp(before + timedelta(minutes=minutes))
            usage["status"]["durationNs"] += minutes * 60 * 10**9
            usage["status"]["shares"][0]["usedNs"] += minutes * 54 * 10**9

        return change

    with served(small_cluster()) as page:
        open_page(tab, page, "pods/SharePod/research/train-bert")
        expect(tab.locator("main")).to_contain_text("0.6 on average")
        expect(tab.locator(".sparkline")).to_have_count(0)
        page.do(page.api.change, SHARE_USAGES, "g", "research", use(3))
        go(tab, "nodes/gpu-a")
        line = tab.get_by_role("img", name="Use over time: 0.6 to 0.9 in 89 min, at last 0.9")
        expect(line).to_have_count(1)
        go(tab, "pods/SharePod/research/train-bert")
        expect(line).to_be_visible()
        expect(tab.locator("dd", has=line)).to_contain_text("0.6 to 0.9 in 89 min, at last 0.9")
        assert Axe().run(tab).response["violations"] == []


def test_a_vgpu_whose_gpu_is_not_known_is_named_once(tab: Page) -> None:
    server = small_cluster()
    held = add_share(server, "vision", "x", "0.1", 1, "gpu-c", "mine")
    server.seed(VGPUS, manifests.vgpu("made", "gpu-c", held, phase="Creating", gpuid="mine"))
    with served(server) as page:
        open_page(tab, page, "nodes/gpu-c")
        card = tab.locator("section", has=tab.get_by_role("heading", name="mine"))
        expect(card.locator("h2")).to_contain_text("mine")
        expect(card.locator(".ids")).not_to_contain_text("mine")


def test_a_tab_that_is_open_for_a_day_does_not_grow(tab: Page, page: Served) -> None:
    """Three thousand changes and heartbeats, through the real code, leave nothing behind."""
    open_page(tab, page)
    script = """async (count) => {
      const { state } = await import("/static/js/state.js");
      const row = state.tables.nodes.get("gpu-b");
      for (let number = 0; number < count; number += 1) {
        const gone = number % 2 ? ["gpu-x"] : [];
        const rows = number % 2 ? [] : [row, { ...row, id: "gpu-x" }];
        const revision = state.revision + 1;
        state.onEvent("change", { revision, tables: { nodes: { rows, gone } } });
        state.onEvent("beat", { stale: [] });
        if (number % 500 === 0) await new Promise((done) => setTimeout(done));
      }
      return state.tables.nodes.size;
    }"""
    session = tab.context.new_cdp_session(tab)

    def heap_bytes() -> int:
        session.send("HeapProfiler.collectGarbage")
        return int(session.send("Runtime.getHeapUsage")["usedSize"])

    assert tab.evaluate(script, 500) == 3
    before = heap_bytes()
    assert tab.evaluate(script, 3_000) == 3
    # One that kept them would have grown by more.
    assert heap_bytes() - before < 1 << 18


def test_changes_are_bounded_while_everything_is_read(tab: Page, page: Served) -> None:
    open_page(tab, page)
    held: list[Route] = []

    def hold_the_first(route: Route) -> None:
        if held:
            route.continue_()
        held.append(route)

    tab.route("**/api/tables", hold_the_first)
    waits = """async (count) => {
      const { state } = await import("/static/js/state.js");
      state.refresh();
      const row = { ...state.tables.nodes.get("gpu-b"), state: "NotReady" };
      for (let number = 1; number <= count; number += 1) {
        const tables = { nodes: { rows: [row], gone: [] } };
        state.onEvent("change", { revision: state.revision + number, tables });
      }
      return state.pending.length;
    }"""
    assert tab.evaluate(waits, 10_000) <= 256
    wait_for(tab, lambda: len(held) == 1)
    held[0].continue_()
    wait_for(tab, lambda: len(held) == 2)
    expect(tab.locator(".table .body [role=row]").nth(1)).not_to_contain_text("NotReady")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault(tab: Page, page: Served, scheme: Literal["light", "dark"]) -> None:
    """Contrast, names, roles, landmarks and order, by WCAG 2.2 AA and axe's best practices."""
    colours = {"runOnly": {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}}
    options = colours if scheme == "dark" else {}  # the rest does not depend on it
    tab.emulate_media(color_scheme=scheme)
    open_page(tab, page)
    for view in VIEWS:
        go(tab, view)
        found = Axe().run(tab, options=options).response["violations"]
        faults = [(each["id"], [node["html"] for node in each["nodes"]]) for each in found]
        assert faults == [], view


def test_the_dark_page_is_dark(tab: Page, page: Served) -> None:
    def background() -> int:
        colour = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", colour)))

    open_page(tab, page)
    assert background() > 700
    tab.emulate_media(color_scheme="dark")
    assert background() < 100
