"""All figures by name: what each needs is made once."""

from pathlib import Path

import pytest

from kubeshare.simulator.experiment import Progress, no_progress
from kubeshare.simulator.figures import catalogue
from kubeshare.simulator.figures.catalogue import FIGURES, Entry, jobs_of, make
from kubeshare.simulator.figures.figure import Figure, Quoted
from kubeshare.simulator.figures.gaia import experiments
from kubeshare.simulator.figures.kubeshare import overhead

ROOT = Path(__file__).parents[3]


def test_each_entry_is_made_or_summarises_others_that_are_there() -> None:
    for entry in FIGURES.values():
        assert (entry.make is None) == (entry.summarise is not None) == bool(entry.needs)
        assert set(entry.needs) <= FIGURES.keys()


def test_a_summary_makes_what_it_needs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def part(seeds: int, progress: Progress) -> Figure:
        calls.append(seeds)
        progress(5)
        return Figure(name="part", title="", claims=[])

    entries = {
        "part": Entry(part, lambda seeds: 5 * seeds),
        "whole": Entry(needs=("part",), summarise=lambda found: found["part"]),
    }
    monkeypatch.setattr(catalogue, "FIGURES", entries)
    made: dict[str, Figure] = {}
    assert jobs_of("whole", 3, made) == 15
    assert make("whole", 3, no_progress, made).name == "part"
    assert make("part", 3, no_progress, made) is made["part"]
    assert calls == [3]
    assert jobs_of("whole", 3, made) == 0


@pytest.mark.parametrize(
    "kept",
    [overhead.LAB_RESULTS, experiments.SCHEDULING_RESULTS, experiments.TRAINING_RESULTS],
)
def test_what_is_said_of_a_kept_result_is_in_its_first_line(kept: Quoted) -> None:
    first = (ROOT / kept.file).read_text().splitlines()[0]
    assert all(words in first for words in (kept.date, kept.commit, kept.machine))


@pytest.mark.parametrize(
    ("name", "heading"),
    [("9", "Figure 9"), ("table-1", "Table 1"), ("gaia-figure-4", "Gaia figure 4")],
)
def test_a_heading_names_figure_or_table(name: str, heading: str) -> None:
    assert Figure(name=name, title="", claims=[]).heading == heading
