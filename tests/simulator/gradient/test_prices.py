"""Prices of parts of a GPU, against programs small enough to solve by hand."""

from itertools import pairwise

import pytest

from kubeshare.simulator.gradient.prices import find_prices


def percent(part: int) -> int:
    return part * 10_000


def test_a_part_that_no_share_can_use_is_worth_nothing() -> None:
    prices = find_prices({percent(80): 2.0})
    assert prices.bound == pytest.approx(0.8, abs=0.001)
    assert prices.lost(percent(20), percent(20)) == pytest.approx(0, abs=0.001)
    assert prices.lost(percent(100), percent(80)) == pytest.approx(0.8, abs=0.001)


def test_a_part_for_scarce_shares_is_worth_less_than_they_are() -> None:
    # Every GPU gets a share of .8; a tenth of them get one of .2 too: .8 + .1 * .2.
    prices = find_prices({percent(80): 2.0, percent(20): 0.1})
    assert prices.bound == pytest.approx(0.82, abs=0.002)
    assert prices.of_steps[20] < 0.05


def test_what_is_not_offered_is_not_given_away() -> None:
    assert find_prices({percent(50): 0.5}).bound == pytest.approx(0.25, abs=0.001)
    assert find_prices({}).bound == 0


def test_a_bound_is_one_whatever_the_size_of_shares() -> None:
    # Two fit into a GPU, though 50.9 hundredths are rounded down.
    assert find_prices({percent(50) + 9_000: 5.0}).bound >= 0.509
    # Shares below a step.
    assert find_prices({1_000: 400.0}).bound == pytest.approx(0.4, abs=0.001)


def test_more_is_worth_no_less() -> None:
    prices = find_prices({percent(81): 1.0, percent(47): 0.7, percent(32): 0.3, percent(16): 0.1})
    assert all(less <= more for less, more in pairwise(prices.of_steps))
