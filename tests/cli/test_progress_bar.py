"""Long steps show how far they are, on a terminal only."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from deadlines import eventually
from kubeshare.cli.main import main
from kubeshare.cli.reproduce import command
from kubeshare.cli.simulate import bar
from kubeshare.simulator.experiment import Progress, no_progress
from kubeshare.simulator.figures.catalogue import FIGURES, Entry
from kubeshare.simulator.figures.figure import Figure


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


def test_a_step_of_about_so_many_seconds_shows_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(bar, "PERIOD_S", 0.001)
    with bar.progress_bar(0, "figure 7", seconds=240):
        eventually(lambda: "figure 7: 0 s of about 240 s" in terminal.getvalue(), "it is shown")


def test_what_a_summary_needs_has_bars_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[int, str, float]] = []

    @contextmanager
    def noted(jobs: int, step: str, seconds: float) -> Iterator[Progress]:
        steps.append((jobs, step, seconds))
        yield no_progress

    def figure(name: str) -> Figure:
        return Figure(name=name, title="", x="", y="", lines={}, claims=[], chosen=[])

    made = {
        "8a": Entry(lambda _seeds, _progress: figure("8a"), jobs=lambda seeds: 100 * seeds),
        "7": Entry(lambda _seeds, _progress: figure("7"), seconds=240),
        "claims": Entry(needs=("8a", "7"), summarise=lambda _: figure("claims")),
    }
    for name, entry in made.items():
        monkeypatch.setitem(FIGURES, name, entry)
    monkeypatch.setattr(command, "progress_bar", noted)
    assert main(["reproduce", "claims", "--seeds", "2"]) == 0
    assert steps == [(200, "8a", 0), (0, "7", 240), (0, "claims", 0)]


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
