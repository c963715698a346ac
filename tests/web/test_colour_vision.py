"""What the page says by colour is seen with any colour vision, or said in words too."""

import io
from collections.abc import Callable
from itertools import combinations
from typing import Final, Literal

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, expect

from fakes.web import Served

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("chromium")]

VISIONS: Final = ("none", "deuteranopia", "protanopia", "tritanopia", "achromatopsia")
"""What Chromium shows as people see it, of which the last see no colours at all."""
LEAST_DIFFERENCE: Final = 24
"""Of the 255 steps of a channel; a tenth of what is between black and white."""


@pytest.fixture
def see(tab: Page) -> Callable[[str], None]:
    """Draws the tab as somebody sees it."""
    session = tab.context.new_cdp_session(tab)

    def _see(vision: str) -> None:
        session.send("Emulation.setEmulatedVisionDeficiency", {"type": vision})

    return _see


def seen(part: Locator) -> np.ndarray:
    """What is drawn there: rows, columns and channels."""
    return np.asarray(Image.open(io.BytesIO(part.screenshot())).convert("RGB"), dtype=float)


def difference(one: np.ndarray, other: np.ndarray) -> float:
    """Of the channel that tells two drawings apart best, on average over their pixels."""
    height, width = min(len(one), len(other)), min(one.shape[1], other.shape[1])
    apart = np.abs(one[:height, :width] - other[:height, :width])
    return float(apart.mean(axis=(0, 1)).max())


def open_nodes(tab: Page, page: Served, scheme: Literal["light", "dark"]) -> None:
    tab.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    tab.goto(page.url)
    expect(tab.locator(".legend .gpu").first).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_states_of_gpus_and_the_shares_of_one_are_told_apart(
    tab: Page, page: Served, scheme: Literal["light", "dark"], see: Callable[[str], None]
) -> None:
    open_nodes(tab, page, scheme)
    states = tab.locator(".legend .gpu").all()
    words = tab.locator(".legend > span").all_inner_texts()
    assert len(words) == len(states) >= 4
    assert all(words), "a colour without a word"
    for vision in VISIONS:
        see(vision)
        assert alike(dict(zip(words, states, strict=True))) == {}, vision
    tab.get_by_role("link", name="gpu-a").click()
    shares = tab.locator(".meter").first.locator("span")
    expect(shares).to_have_count(2)
    for vision in VISIONS:
        see(vision)
        assert alike({"one": shares.nth(0), "the next": shares.nth(1)}) == {}, vision


def alike(parts: dict[str, Locator]) -> dict[tuple[str, str], int]:
    """Those that are hardly told apart, and how far they are."""
    drawn = {name: seen(part) for name, part in parts.items()}
    apart = {pair: difference(drawn[pair[0]], drawn[pair[1]]) for pair in combinations(drawn, 2)}
    return {pair: round(far) for pair, far in apart.items() if far < LEAST_DIFFERENCE}


def test_states_have_words_beside_their_colours(tab: Page, page: Served) -> None:
    open_nodes(tab, page, "light")
    assert all(text.strip() for text in tab.locator(".badge").all_inner_texts())
    assert tab.locator(".badge").count() >= 3
    expect(tab.locator("#connection")).to_have_text("Live · demo")
    for title in tab.locator(".strip .gpu").evaluate_all("all => all.map(gpu => gpu.title)"):
        assert ": " in title
    tab.get_by_role("link", name="gpu-a").click()
    expect(tab.locator(".badge.unhealthy").first).to_have_text("unhealthy")


def test_the_check_finds_colours_that_some_people_take_for_one(
    tab: Page, page: Served, see: Callable[[str], None]
) -> None:
    """Red and green of one lightness are far apart, but not with deuteranopia."""
    open_nodes(tab, page, "light")
    paint = "(swatch, colour) => { swatch.replaceChildren(); swatch.style.background = colour; }"
    red, green = (tab.locator(".legend .gpu").nth(number) for number in (0, 1))
    red.evaluate(paint, "rgb(176, 96, 64)")
    green.evaluate(paint, "rgb(110, 130, 64)")
    assert alike({"red": red, "green": green}) == {}
    see("deuteranopia")
    assert alike({"red": red, "green": green})
