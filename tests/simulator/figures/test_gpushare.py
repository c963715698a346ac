"""The worked examples of gpushare."""

import pytest

from kubeshare.simulator.experiment import no_progress
from kubeshare.simulator.figures import gpushare


def test_both_examples_come_out_as_in_the_design() -> None:
    figure = gpushare.examples(1, no_progress)
    assert [row[2] for row in figure.table[1:]] == [row[3] for row in figure.table[1:]]
    assert figure.holds
    assert len(figure.claims) == 2


def test_other_room_is_another_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpushare, "_FILTER", {"N1": (8138, 0), "N2": (0, 0), "N3": (0, 0)})
    assert [claim.holds for claim in gpushare.examples(1, no_progress).claims] == [False, True]
