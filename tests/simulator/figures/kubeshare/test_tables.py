"""Tables 1 to 3 of the KubeShare paper: what they name is there."""

from pathlib import Path

import pytest

from kubeshare.simulator.experiment import no_progress
from kubeshare.simulator.figures.figure import NotReproducedError
from kubeshare.simulator.figures.kubeshare import tables


def test_each_feature_is_shown_by_a_test_that_exists() -> None:
    table = tables.table_1(1, no_progress)
    assert table.holds
    assert len(table.table) == 1 + 7


def test_a_test_that_is_gone_fails_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = ("Sharing", "tests/shares/test_shares.py", "test_of_nothing")
    monkeypatch.setattr(tables, "FEATURES", (gone,))
    assert not tables.table_1(1, no_progress).holds


def test_without_tests_it_says_what_is_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tables, "_CLONE", tmp_path)
    with pytest.raises(NotReproducedError, match="run it in a clone"):
        tables.table_1(1, no_progress)


def test_each_sign_of_the_algorithm_is_an_attribute() -> None:
    table = tables.table_2(1, no_progress)
    assert table.holds
    assert [row[0] for row in table.table[1:]][:2] == ["r.util", "r.mem"]
    assert len(table.table) == 1 + 11


def test_the_workloads_are_listed() -> None:
    assert [row[0] for row in tables.table_3(1, no_progress).table] == [
        "job",
        "training",
        "inference",
    ]
