"""Long steps show how far they are, on a terminal only."""

import io
import sys

import pytest

from deadlines import eventually
from kubeshare.cli.simulate import bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_step_that_counts_nothing_shows_its_name_and_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(bar, "PERIOD_S", 0.001)
    with bar.progress_bar(0, "figure 5") as progress:
        eventually(lambda: "figure 5: 0 s" in terminal.getvalue(), "the time is shown")
        progress(1)
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_step_of_jobs_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with bar.progress_bar(2, "figure 9") as progress:
        progress(2)
    assert "figure 9" in terminal.getvalue()
    assert "100%" in terminal.getvalue()


def test_nothing_is_shown_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    monkeypatch.setattr(bar, "PERIOD_S", 0.001)
    with bar.progress_bar(0, "figure 5"), bar.progress_bar(2) as progress:
        progress(2)
    assert file.getvalue() == ""
