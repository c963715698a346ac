"""Figures 4 and 5 and tables I to IV of the Gaia paper, with fewer runs."""

from collections import Counter

import pytest

from kubeshare.simulator.figures.gaia import tables


@pytest.mark.parametrize("name", ["gaia-figure-4", "gaia-figure-5"])
def test_the_examples_get_the_papers_gpus(name: str) -> None:
    assert tables.figure(name).holds


@pytest.mark.parametrize("number", ["1", "2", "3", "4"])
def test_each_table_holds_and_counts_its_runs(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "RUNS", 5)
    done: list[int] = []
    table = tables.table(number, done.append)
    assert sum(done) == tables.runs_of(number)
    assert table.holds
    assert len(table.claims) == len(done) > 0


def test_a_gpu_that_the_paper_does_not_name_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "play", lambda *_: [Counter({"0": 5})])
    assert not tables.table("3", lambda _: None).holds
