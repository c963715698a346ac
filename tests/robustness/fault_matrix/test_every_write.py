"""Sampled writes of every life meet trouble: the programs converge and leave nothing behind.

``make fault-matrix`` plays all points: every trouble at every write of every life.
"""

import sys

import pytest

from robustness.fault_matrix.lives import LIVES
from robustness.fault_matrix.matrix import Point, Tally, play, points, run_point
from robustness.fault_matrix.sample import SIMPLE, sample
from robustness.fault_matrix.troubles import TROUBLES

FEWEST = 3
"""Sampled points of the shortest life."""


@pytest.mark.slow
@pytest.mark.parametrize("life", LIVES)
def test_every_write_of_a_life_survives_troubles(
    life: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = Tally()
    for point in sample(life):
        play(point, tally)
    with capsys.disabled():
        sys.stdout.write(f"\n{life}: {tally}\n")
    assert tally.wrong == []
    assert tally.converged == tally.tried == tally.struck.total() >= FEWEST
    assert tally.showed.total() > tally.tried / 2
    assert tally.unseen == [] or life != SIMPLE


@pytest.mark.slow
def test_the_sample_has_every_trouble() -> None:
    assert {point.trouble for point in sample(SIMPLE)} == set(TROUBLES)


@pytest.mark.slow
def test_one_life_survives_one_trouble_at_every_third_write() -> None:
    tally = Tally()
    for point in list(points(SIMPLE, ["writer killed after it"]))[::3]:
        play(point, tally)
    assert tally.wrong == []
    assert tally.converged == tally.tried > FEWEST


def test_a_run_can_be_repeated() -> None:
    once = requests_with(seed=1)
    assert requests_with(seed=1) == once
    assert requests_with(seed=2) != once


def requests_with(seed: int) -> list[tuple[float, str, str, str]]:
    """When which client asked for what."""
    outcome, _ = run_point(Point(SIMPLE, "API server killed after it", 3, seed))
    return [
        (each.at, each.client, each.resource, each.path.name)
        for each in outcome.cluster.server.requests
    ]
