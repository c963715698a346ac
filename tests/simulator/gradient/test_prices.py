"""Prices of parts of a GPU, against programs small enough to solve by hand."""

from collections import Counter
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from kubeshare.simulator.gradient import prices as module
from kubeshare.simulator.gradient.prices import can_fill, find_prices


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


def test_a_bound_just_below_all_gpus_takes_patience() -> None:
    offered = {percent(5): 0.37, percent(15): 1.5, percent(35): 1.47, percent(60): 0.53}
    assert find_prices(offered).bound == 1
    assert find_prices(offered, module.PATIENT).bound == pytest.approx(0.992, abs=0.001)


def test_more_is_worth_no_less() -> None:
    prices = find_prices({percent(81): 1.0, percent(47): 0.7, percent(32): 0.3, percent(16): 0.1})
    assert all(less <= more for less, more in pairwise(prices.of_steps))


def test_gpus_are_filled_with_what_is_offered() -> None:
    # Every GPU gets a share of .8; a tenth of them get one of .2 too, and a fifth two of .1.
    offered = {percent(80): 2.0, percent(20): 0.1, percent(10): 0.4}
    assert can_fill(offered, 0.859)
    assert not can_fill(offered, 0.861)
    # All there is.
    assert can_fill({percent(50): 0.5}, 0.249)
    assert not can_fill({percent(50): 0.5}, 0.251)
    assert not can_fill({}, 0.1)


def test_no_bound_is_less_than_what_can_be_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(2)
    for _ in range(40):
        sizes = random.sample(range(1, 101), random.randrange(1, 12))
        offered = {percent(size): random.random() * 3 / len(sizes) for size in sizes}
        bound = find_prices(offered).bound
        assert not can_fill(offered, bound + 1e-4)
    # It gives up where many patterns are needed.
    offered = {percent(size): 0.1 for size in range(1, 101)}
    assert can_fill(offered, 0.99)
    monkeypatch.setattr(module, "_PATTERNS", 2)
    assert not can_fill(offered, 0.99)


def plain_pattern(fines: dict[Any, float]) -> tuple[list[float], Counter[Any]]:
    """The best pattern, with the share that is chosen at each number of steps."""
    values, chosen = [0.0], [None]
    for steps in range(1, module.STEPS + 1):
        best, pick = values[-1], None
        for share, fine in fines.items():
            if share.steps <= steps:
                earned = values[steps - share.steps] + share.earns - fine
                if earned > best:
                    best, pick = earned, share
        values.append(best)
        chosen.append(pick)
    used: Counter[Any] = Counter()
    left = module.STEPS
    while left:
        share_there = chosen[left]
        used.update([share_there] if share_there else [])
        left -= share_there.steps if share_there else 1
    return values, used


def test_the_best_pattern_is_that_of_the_plain_program() -> None:
    random = Random(1)
    for _ in range(200):
        sizes = random.sample(range(1, 101), random.randrange(12))
        shares = module._shares({percent(size): random.random() for size in sizes})
        fines = {share: random.choice([0.0, 0.0, random.random() / 2]) for share in shares}
        assert module._best_pattern(fines) == plain_pattern(fines)


def test_it_stops_once_no_step_can_lower_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    best_pattern, patterns = module._best_pattern, 0

    def counted(fines: Any) -> Any:
        nonlocal patterns
        patterns += 1
        return best_pattern(fines)

    monkeypatch.setattr(module, "_best_pattern", counted)
    offered = {percent(size): 1.5 / (3 + size / 2) for size in (5, 10, 16, 25, 33, 47, 60, 81)}
    bound = find_prices(offered).bound
    assert patterns < module._ITERATIONS * module._PATIENCE
    # Never enough: it does not stop, and takes lesser gains for gains, too.
    monkeypatch.setattr(module, "_ENOUGH", 0.0)
    assert find_prices(offered).bound == pytest.approx(bound, abs=1e-4)
