"""Takes the screenshots of docs/web.md, of a cluster in memory."""

from pathlib import Path
from typing import Final, Literal, NamedTuple

from playwright.sync_api import Browser, sync_playwright

from fakes.web import served, small_cluster
from fakes.web.browser import ARGUMENTS, CHROMIUM

IMAGES: Final = Path(__file__).parent.parent / "docs" / "images"


class Shot(NamedTuple):
    """A view of the page; ``ready`` is a selector of what is there when all is read."""

    name: str
    view: str
    ready: str
    scheme: Literal["light", "dark"] = "light"
    width: int = 1080
    height: int = 620


SHOTS: Final = (
    Shot("web-gpus", "nodes", ".strip", height=390),
    Shot("web-node", "nodes/gpu-a", "svg", height=1560),
    Shot("web-pod", "pods/SharePod/serving/reranker", ".help", "dark", height=880),
)


def take(folder: Path, browser: Browser) -> list[Path]:
    """Take all screenshots into a folder; returns the files."""
    taken = []
    with served(small_cluster()) as page:
        for shot in SHOTS:
            tab = browser.new_page(
                viewport={"width": shot.width, "height": shot.height}, color_scheme=shot.scheme
            )
            tab.goto(page.url)
            tab.locator(".strip").first.wait_for()
            tab.evaluate("view => { location.hash = `#/${view}`; }", shot.view)
            tab.locator(shot.ready).first.wait_for()
            tab.locator("main:not(:has-text('Reading'), :has-text('Asking'))").wait_for()
            taken.append(folder / f"{shot.name}.png")
            tab.screenshot(path=taken[-1], animations="disabled")
            tab.close()
    return taken


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        for file in take(IMAGES, chromium):
            print(f"{file.name}: {file.stat().st_size >> 10} KiB")
        chromium.close()
