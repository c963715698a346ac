"""How Debian's Chromium is started, as root and without a screen, and its tabs."""

from typing import Any

from playwright.sync_api import Browser, Page

from deadlines import DEADLINE_S

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--no-first-run"),
]


def new_tab(browser: Browser, **options: Any) -> Page:
    """A tab in a context of its own, which waits for clicks and pages on a busy machine too."""
    tab = browser.new_context(**options).new_page()
    tab.context.set_default_timeout(DEADLINE_S * 1000)
    return tab
