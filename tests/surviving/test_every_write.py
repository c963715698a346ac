"""Every write of every life meets every trouble: all comes right, and nothing is left."""

import sys

import pytest

from surviving.lives import LIVES
from surviving.matrix import Tally, play, points
from surviving.troubles import HARD, TROUBLES

ENOUGH = 500
SIMPLE = ("alone", "named")
"""The lives whose writes meet all troubles; those of the others meet the hard ones."""


@pytest.mark.slow
def test_every_write_of_every_life_survives_every_trouble(
    capsys: pytest.CaptureFixture[str],
) -> None:
    total = Tally()
    for life in LIVES:
        for point in points(life, TROUBLES if life in SIMPLE else HARD):
            play(point, total)
    with capsys.disabled():
        sys.stdout.write(f"\n{total}\n")
    assert total.wrong == []
    assert total.converged == total.tried
    assert total.tried >= ENOUGH


def test_one_life_survives_one_trouble_at_each_of_its_writes() -> None:
    total = Tally()
    for point in points("alone", ["writer killed after it"]):
        play(point, total)
    assert total.wrong == []
    assert total.tried > 10
