"""A sample of the fault matrix with real kubelets; ``make prove`` plays all of it."""

import sys

import pytest

from e2e.space import Space
from robustness.lab_faults.playing import WRITES_A_RUN, play, runs, troubled

pytestmark = pytest.mark.lab

SAMPLED = "writer killed after it"
WRITES, WRITES_OF_TWO = 60, 50
"""About as many as the life has: what is not reached is not counted."""


def test_a_life_survives_troubles_at_some_of_its_writes(
    space: Space, capsys: pytest.CaptureFixture[str]
) -> None:
    with troubled(space) as lab:
        chosen = [one for one in runs(WRITES, WRITES_OF_TWO, 1) if one.trouble == SAMPLED]
        tally = play(lab, chosen)
    with capsys.disabled():
        sys.stdout.write(f"\nin the lab: {tally}\n")
    assert tally.wrong == []
    assert tally.converged == tally.tried > len(chosen) * WRITES_A_RUN / 2
