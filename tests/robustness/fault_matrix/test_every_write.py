"""Every write of every life meets trouble: all comes right, and nothing is left.

``python -m robustness.fault_matrix`` plays all points: every trouble at every write of every life.
"""

import sys

import pytest

from robustness.fault_matrix.lives import LIVES
from robustness.fault_matrix.matrix import Point, Tally, play, points, tell
from robustness.fault_matrix.troubles import HARD

ENOUGH = 500
SIMPLE = "alone"
"""The life whose writes meet all troubles; those of the others meet the hard ones in turn."""
TURNS = 6
"""Each of their writes meets one or two of the hard troubles in turn; minutes are dear."""


def every_point(life: str) -> list[Point]:
    if life == SIMPLE:
        return list(points(life))
    every = points(life, HARD)
    return [one for one in every if (one.write + HARD.index(one.trouble)) % TURNS == 0]


@pytest.mark.slow
@pytest.mark.parametrize("life", LIVES)
def test_every_write_of_a_life_survives_troubles(
    life: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = Tally()
    for point in every_point(life):
        play(point, tally)
    with capsys.disabled():
        sys.stdout.write(f"\n{life}: {tally}\n")
    assert tally.wrong == []
    assert tally.converged == tally.tried


@pytest.mark.slow
def test_there_are_enough_points() -> None:
    assert sum(len(every_point(life)) for life in LIVES) >= ENOUGH


def test_one_life_survives_one_trouble_at_every_third_write() -> None:
    tally = Tally()
    for point in list(points(SIMPLE, ["writer killed after it"]))[::3]:
        play(point, tally)
    assert tally.wrong == []
    assert tally.tried > 5


def test_a_telling_can_be_repeated() -> None:
    once = told_with(seed=1)
    assert told_with(seed=1) == once
    assert told_with(seed=2) != once


def told_with(seed: int) -> list[tuple[float, str, str, str]]:
    """When who asked for what."""
    world = tell(Point("alone", "API server killed after it", 3, seed)).world
    return [(each.at, each.client, each.resource, each.path.name) for each in world.server.requests]
