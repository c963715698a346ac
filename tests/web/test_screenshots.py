"""The screenshots of docs/web.md can be taken anew."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tools import screenshots

MOST_BYTES = 200_000


@pytest.mark.slow
@pytest.mark.xdist_group("chromium")
def test_each_screenshot_is_taken_and_small(tmp_path: Path, browser: Browser) -> None:
    taken = screenshots.take(tmp_path, browser)
    assert [file.name for file in taken] == sorted(each.name for each in _committed())
    for file in [*taken, *_committed()]:
        assert 10_000 < file.stat().st_size < MOST_BYTES, file


def _committed() -> list[Path]:
    return list(screenshots.IMAGES.glob("web-*.png"))
