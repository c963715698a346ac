"""However many members lie at once, and whatever they request, others keep their requests."""

import random
from collections.abc import Callable

import pytest

from core.token.liars import LIES, Liars, Lie
from core.token.simulation import GPU, MS, SECOND

HONEST = {"a": 0.5, "b": 0.3}

Patterns = Callable[[random.Random], list[Lie]]


def each(lie: Lie) -> Patterns:
    return lambda _: [lie]


def any_of_all(chance: random.Random) -> list[Lie]:
    return [chance.choice(LIES) for _ in range(5)]


def beside(count: int, request: float, patterns: Patterns, seed: int = 0) -> Liars:
    """Honest members, each with its request as its limit, and so many that lie."""
    simulation = Liars(seed, quota_ns=20 * MS)
    for name, share in HONEST.items():
        simulation.join(name, share, share)
    simulation.run(5 * SECOND)
    chance = random.Random(seed)
    for number in range(count):
        simulation.lie(f"liar-{number}", request, 1, patterns(chance))
    return simulation


def assert_requests_are_kept(shares: dict[str, float]) -> None:
    for name, request in HONEST.items():
        assert shares[name] >= request - 0.03, shares


@pytest.mark.slow
@pytest.mark.parametrize("lie", LIES)
def test_ten_members_with_one_lie_cost_three_points(lie: Lie) -> None:
    """The first minutes are those of the newcomers' longest drains; then all is paid back."""
    simulation = beside(10, 0.02, each(lie))
    simulation.run(120 * SECOND)

    shares = simulation.shares(180 * SECOND)

    assert_requests_are_kept(shares)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_ten_members_with_all_lies_cost_three_points_from_the_first_turn_on(seed: int) -> None:
    simulation = beside(10, 0.02, any_of_all, seed)

    shares = simulation.shares(400 * SECOND)

    assert_requests_are_kept(shares)


def test_what_ten_newcomers_hold_at_first_is_bounded() -> None:
    simulation = beside(10, 0.02, each("says it is busy"))

    shares = simulation.shares(60 * SECOND)

    # The longest drain, what the requests of all ten pay for in 80 s, and the end of each drain.
    most = 16 + 0.2 * 80 + 10 * 0.6
    assert sum(shares.values()) - shares["a"] - shares["b"] <= most / 60, shares


@pytest.mark.slow
@pytest.mark.parametrize("request_share", [0, 0.004])
def test_forty_members_that_lie_are_paid_for_in_the_long_run(request_share: float) -> None:
    simulation = beside(40, request_share, any_of_all)

    shares = simulation.shares(600 * SECOND)

    assert_requests_are_kept(shares)


@pytest.mark.parametrize("count", [3, 10])
@pytest.mark.parametrize(
    "lie", ["works, then says it was idle", "says it is idle, then done since long"]
)
def test_members_that_say_that_they_only_paused_are_charged(lie: Lie, count: int) -> None:
    """Also those that give the GPU on before a handover would be over."""
    simulation = beside(count, 0.02, each(lie))

    shares = simulation.shares(60 * SECOND)

    assert_requests_are_kept(shares)


def test_pauses_cost_no_request_while_others_use_what_nobody_requested() -> None:
    """Members whose short turns lie between those of the liar let it pause more often."""
    simulation = Liars()
    simulation.join("a", 0.5, 0.7, latency_sensitive=True)
    simulation.lie("liar", 0.5, 0.5, ("works, then says it was idle",))
    for name in ("b", "c", "d"):
        simulation.join(name, 0, 0.2, drain_ms=1)
    simulation.run(20 * SECOND)

    shares = simulation.shares(60 * SECOND)

    assert shares["a"] >= 0.495


def test_long_kernels_are_waited_for_beside_one_that_never_reports() -> None:
    """It waits, but is charged all the while, so it misses nothing."""
    simulation = Liars()
    simulation.join("a", 0.3, 1)
    simulation.join("kernels", 0.1, 1).overrun_ns = lambda: 12 * SECOND
    simulation.lie("liar", 0.4, 1, ("says nothing",))

    shares = simulation.shares(120 * SECOND)

    assert simulation.arbiter.tally("kernels", GPU).bypasses == 0
    assert shares["kernels"] > 0.4


def test_who_never_reports_is_served_less_and_less() -> None:
    simulation = Liars()
    for name, share in HONEST.items():
        simulation.join(name, share, 1)
    simulation.lie("liar", 0, 1, ("says nothing",))

    simulation.run(600 * SECOND)

    views = {view.name: view for view in simulation.arbiter.views(simulation.now)}
    # At once, and 30, 60, 120 and 240 s after the turn before.
    assert views["liar"].grants == 5
