"""A request that is also the limit is kept beside kernels that are longer than any quota."""

from functools import partial

import pytest

from core.token.simulation import GPU, MS, SECOND, Simulation


@pytest.mark.parametrize("kernel_s", [1, 15])
@pytest.mark.parametrize("request_share", [0, 0.05, 0.2])
def test_others_catch_up_with_what_a_long_kernel_kept_them_from(
    request_share: float, kernel_s: int
) -> None:
    simulation = Simulation()
    simulation.join("a", 0.5, 0.5)
    simulation.join("b", 0.3, 0.3)
    long = simulation.join("long", request_share, 1)
    long.overrun_ns = lambda: kernel_s * SECOND
    simulation.run(60 * SECOND)

    shares = simulation.shares(300 * SECOND)

    assert shares["a"] >= 0.47
    assert shares["b"] >= 0.27
    assert shares["long"] == pytest.approx(0.2, abs=0.05)
    assert simulation.arbiter.views(simulation.now)[2].bypasses == 0


def test_what_a_member_catches_up_with_is_never_more_than_its_limit_in_all() -> None:
    simulation = Simulation()
    simulation.join("a", 0.5, 0.5, drain_ms=0)
    long = simulation.join("long", 0, 1)
    long.overrun_ns = lambda: 10 * SECOND

    used = [simulation.shares(SECOND)["a"] for _ in range(120)]

    for last in range(1, len(used) + 1):
        # One grant beyond it, of what it saved before it began.
        assert sum(used[:last]) <= 0.5 * last + 0.2
    assert max(used) > 0.9


def test_two_members_with_long_kernels_use_no_more_than_their_limits_in_all() -> None:
    """Also where their kernels run on beside others, who miss too much to wait."""
    simulation = Simulation()
    simulation.join("a", 0.5, 0.5)
    simulation.join("b", 0.3, 0.3)
    for name in ("long", "longer"):
        simulation.join(name, 0.1, 0.1).overrun_ns = lambda: 15 * SECOND

    simulation.run(1500 * SECOND)

    worked_ns = simulation.worked("long") + simulation.worked("longer")
    # Each has one kernel beyond it at most: the first.
    assert worked_ns <= (0.2 * 1500 + 2 * 2) * SECOND


def test_kernels_are_waited_for_though_others_miss_what_their_limits_keep_them_from() -> None:
    simulation = Simulation()
    for name in ("a", "b"):
        lengths = iter([15_500 * MS])
        simulation.join(name, 0.25, 0.25).overrun_ns = partial(next, lengths, 5 * MS)
        simulation.run(20 * SECOND)
    simulation.run(60 * SECOND)
    simulation.join("long", 0, 1).overrun_ns = lambda: SECOND

    simulation.run(120 * SECOND)

    assert simulation.arbiter.tally("long", GPU).grants > 20
    assert simulation.arbiter.tally("long", GPU).bypasses == 0


def after_a_kernel_alone(request: float, limit: float, idle_s: int) -> Simulation:
    """A share whose first kernel took 15 s, of which its limit keeps it for a while."""
    simulation = Simulation()
    lengths = iter([15 * SECOND])
    simulation.join("long", request, limit).overrun_ns = partial(next, lengths, 5 * MS)
    simulation.run(idle_s * SECOND)
    return simulation


def test_what_its_limit_kept_from_a_share_it_is_not_owed() -> None:
    simulation = after_a_kernel_alone(0.3, 0.5, 31)
    simulation.join("other", 0.7, 1)

    shares = simulation.shares(10 * SECOND)

    assert shares == pytest.approx({"long": 0.3, "other": 0.7}, abs=0.01)


def test_nobody_owes_a_share_what_its_limit_kept_from_it() -> None:
    simulation = after_a_kernel_alone(0.5, 0.5, 60)
    simulation.join("early", 0.3, 1)
    simulation.run(100 * SECOND)
    simulation.join("late", 0.2, 1)

    shares = simulation.shares(60 * SECOND)

    assert shares == pytest.approx({"long": 0.5, "early": 0.3, "late": 0.2}, abs=0.01)
