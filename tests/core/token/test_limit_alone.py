"""The limit of a member while it is alone on its GPU, and what remains of it afterwards."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.token.simulation import GPU, MS, SECOND, Simulation
from kubeshare.core.token import (
    DECAYED_AVERAGE,
    SLIDING_WINDOW,
    Arbiter,
    Close,
    Extend,
    Measure,
    Open,
    Shut,
    Watch,
)
from kubeshare.core.token.entitlement import Allowance, Guarantee
from kubeshare.core.token.gpu_token import GpuToken
from kubeshare.core.token.share import BEHIND, MemberShare
from kubeshare.core.token.share_spec import ShareSpec
from kubeshare.core.token.usage import DecayedAverage, SlidingWindow

MICROS = 1_000_000
OTHER_GPU = "gpu-1"
QUOTA = 100 * MS

UNLIMITED_ALONE = (300_000, 300_000, MICROS)
IDLE = (0, MICROS)


def share_of(simulation: Simulation, for_ns: int = 10 * SECOND) -> float:
    """Which part of the time `a` has the GPU from now on."""
    return simulation.shares(for_ns)["a"]


@pytest.mark.parametrize("measure", [DECAYED_AVERAGE, SLIDING_WINDOW], ids=["average", "window"])
@pytest.mark.parametrize("alone", [0.9, 1.0])
def test_a_second_member_even_an_idle_one_makes_the_limit_bind(
    alone: float, measure: Measure
) -> None:
    simulation = Simulation(measure=measure)
    simulation.join("a", 0.3, 0.3, alone=alone, drain_ms=0)
    for _ in range(2):
        simulation.run(2 * SECOND)
        assert share_of(simulation) == pytest.approx(alone, abs=0.005)
        simulation.join("b", 0.5, 1, is_idle=True)
        assert share_of(simulation) == pytest.approx(0.3, abs=0.012)
        simulation.leave("b")


def test_the_limit_binds_within_one_quota() -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: UNLIMITED_ALONE}, 0)
    # Without a limit a pause of a member that is alone costs no one.
    assert arbiter.want("a", 0) == [Open("a", GPU, 100 * MS)]
    for end in range(100, 1000, 100):
        assert arbiter.tick(end * MS)[0] == Extend("a", GPU, (end + 100) * MS)

    assert arbiter.add("b", {GPU: IDLE}, 950 * MS) == []
    assert arbiter.tick(1000 * MS) == [Extend("a", GPU, 1050 * MS)]
    assert arbiter.tick(1050 * MS) == [Close("a", GPU)]
    assert arbiter.drained("a", GPU, 1050 * MS, 1050 * MS) == [Shut("a", GPU)]
    assert arbiter.want("a", 1051 * MS) == []
    assert arbiter.views(1060 * MS)[0].state == "held back"


def test_who_is_held_back_runs_again_as_soon_as_it_is_alone() -> None:
    arbiter = Arbiter()
    arbiter.add("b", {GPU: IDLE}, 0)
    arbiter.add("a", {GPU: UNLIMITED_ALONE}, 0)
    assert arbiter.want("a", 0) == [Open("a", GPU, 100 * MS), Watch("a", GPU)]
    arbiter.tick(100 * MS)
    arbiter.drained("a", GPU, 120 * MS, 120 * MS)
    assert arbiter.want("a", 120 * MS) == []

    assert arbiter.remove("b", 120 * MS) == [Open("a", GPU, 220 * MS)]
    assert arbiter.tick(220 * MS)[0] == Extend("a", GPU, 320 * MS)
    # The overrun is paid back, and no credit of its limit is left: the lease ends at once.
    arbiter.add("b", {GPU: IDLE}, 230 * MS)
    assert arbiter.deadline() == 230 * MS
    assert arbiter.tick(230 * MS) == [Close("a", GPU)]


def test_who_holds_the_gpu_when_it_becomes_alone_goes_on() -> None:
    arbiter = Arbiter()
    arbiter.add("b", {GPU: IDLE}, 0)
    arbiter.add("a", {GPU: UNLIMITED_ALONE}, 0)
    arbiter.want("a", 0)
    arbiter.remove("b", 50 * MS)

    assert arbiter.tick(100 * MS) == [Extend("a", GPU, 200 * MS)]


def test_each_gpu_has_its_own_neighbours() -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: UNLIMITED_ALONE, OTHER_GPU: UNLIMITED_ALONE}, 0)
    arbiter.add("b", {GPU: IDLE}, 0)

    assert Watch("a", OTHER_GPU) not in arbiter.want("a", 0, [OTHER_GPU])
    arbiter.gone("a", 10 * MS)
    assert Watch("a", GPU) in arbiter.want("a", 10 * MS, [GPU])


def test_a_limit_while_alone_below_the_limit_is_the_limit() -> None:
    simulation = Simulation()
    simulation.join("a", 0.3, 0.6, alone=0.5, drain_ms=0)
    simulation.run(2 * SECOND)

    assert share_of(simulation) == pytest.approx(0.6, abs=0.005)


def test_a_changed_limit_while_alone_holds_from_then_on() -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: (300_000, 300_000)}, 0)
    arbiter.want("a", 0)
    arbiter.change("a", {GPU: UNLIMITED_ALONE}, 50 * MS)
    assert arbiter.tick(100 * MS) == [Extend("a", GPU, 200 * MS)]

    arbiter.change("a", {GPU: (300_000, 300_000, 600_000)}, 150 * MS)
    # 50 ms at a limit of .3 left 35 ms, in millionths of a ns, of 70: 87.5 ms under a limit of .6.
    end = 237_500_000
    assert arbiter.tick(200 * MS) == [Extend("a", GPU, end)]
    assert arbiter.tick(end) == [Close("a", GPU)]


@pytest.mark.parametrize("seed", range(3))
def test_beside_a_newcomer_it_stands_as_if_its_limit_had_always_been_in_force(seed: int) -> None:
    shares = []
    for alone in (0, 1):
        simulation = Simulation(seed)
        simulation.join("a", 0.3, 0.6, alone=alone)
        simulation.run(20 * SECOND)
        newcomer = simulation.join("b", 0.3, 1)
        shares.append(share_of(simulation, 2 * SECOND))
        assert newcomer.longest_wait_ns <= 120 * MS

    assert shares[1] == pytest.approx(shares[0], abs=0.03)


def share_on(token: GpuToken, name: str, spec: ShareSpec, now: int) -> MemberShare:
    share = MemberShare(name, token, spec, DECAYED_AVERAGE, now)
    token.add(share, now)
    return share


def use(share: MemberShare, end: int) -> None:
    """Use the GPU from the last account to ``end``."""
    share.token.held = share
    share.charge(end, end)


def test_what_it_used_while_alone_is_in_no_account_of_its_share() -> None:
    token = GpuToken(GPU)
    share = share_on(token, "a", ShareSpec(300_000, 400_000, QUOTA, 900_000), 0)
    use(share, 10 * SECOND)
    assert share.usage_now(10 * SECOND)[0] > 0.9

    now = 10_100 * MS
    share_on(token, "b", ShareSpec(*IDLE, QUOTA), now)

    assert share.usage_now(now) == (0.4, 0.99)
    assert share.precedence(now + MS) == (BEHIND, -MS * 300_000)
    assert share.tally.charged_ns == 10 * SECOND


@pytest.mark.parametrize("alone", [0, 400_000])
def test_without_a_larger_limit_while_alone_nothing_is_forgiven(alone: int) -> None:
    token = GpuToken(GPU)
    share = share_on(token, "a", ShareSpec(300_000, 400_000, QUOTA, alone), 0)
    now = 10 * SECOND
    use(share, now)
    before = share.usage_now(now), share.precedence(now + MS)
    allowance = share.allowance
    assert allowance is not None
    runs_out = allowance.runs_out_at()

    share_on(token, "b", ShareSpec(*IDLE, QUOTA), now)

    assert (share.usage_now(now), share.precedence(now + MS)) == before
    assert share.allowance is allowance
    assert allowance.runs_out_at() == runs_out


def test_what_it_used_beside_others_is_not_forgiven_when_one_of_them_leaves_or_all() -> None:
    token = GpuToken(GPU)
    share = share_on(token, "a", ShareSpec(*UNLIMITED_ALONE[:2], QUOTA, MICROS), 0)
    for name in "bc":
        share_on(token, name, ShareSpec(*IDLE, QUOTA), 0)
    use(share, SECOND)
    before = share.usage_now(SECOND), share.precedence(SECOND + MS)

    token.remove("c", SECOND)
    assert share.held_back
    share_on(token, "c", ShareSpec(*IDLE, QUOTA), SECOND)
    assert (share.usage_now(SECOND), share.precedence(SECOND + MS)) == before
    for name in "bc":
        token.remove(name, SECOND)
    assert not share.held_back
    assert (share.usage_now(SECOND), share.precedence(SECOND + MS)) == before


def test_credit_that_was_spent_beside_others_is_not_earned_by_use_without_a_limit() -> None:
    token = GpuToken(GPU)
    share = share_on(token, "a", ShareSpec(*UNLIMITED_ALONE[:2], QUOTA, MICROS), 0)
    share_on(token, "b", ShareSpec(*IDLE, QUOTA), 0)
    use(share, 100 * MS)
    assert share.held_back

    token.remove("b", 100 * MS)
    use(share, 10 * SECOND)
    share_on(token, "b", ShareSpec(*IDLE, QUOTA), 10 * SECOND)

    assert share.held_back


def test_a_lease_that_goes_on_is_charged_by_the_limit_of_each_of_its_parts() -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: (300_000, 300_000, 900_000)}, 0)
    arbiter.want("a", 0)
    arbiter.add("b", {GPU: IDLE}, 50 * MS)

    # Of 70 ms of credit it spent 5 alone, and spends 0.7 in each ms from then on.
    assert arbiter.tick(100 * MS) == [Extend("a", GPU, 142_857_143)]


def test_a_lease_ends_where_the_credit_of_the_limit_ends() -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: (300_000, 300_000, 900_000)}, 0)
    arbiter.want("a", 0)
    for end in (100, 200, 300):
        arbiter.tick(end * MS)
    assert arbiter.add("b", {GPU: IDLE}, 330 * MS) == []

    # Of 70 ms of credit it spent 33: the rest lasts for 53 ms, and the lease was for 70.
    assert arbiter.deadline() == 382_857_143
    assert arbiter.tick(382_857_143) == [Close("a", GPU)]


def test_a_lease_on_several_gpus_ends_where_one_of_its_limits_does() -> None:
    arbiter = Arbiter()
    limits = (300_000, 300_000, MICROS)
    arbiter.add("a", {GPU: limits, OTHER_GPU: limits}, 0, quota_ns=500 * MS)
    arbiter.want("a", 0)
    arbiter.add("b", {GPU: IDLE}, 300 * MS)

    # Its grants under a limit of .3 are of 300 ms; it has none beyond the lease.
    assert arbiter.deadline() == 500 * MS
    assert arbiter.tick(500 * MS)[0] == Extend("a", GPU, 600 * MS)
    arbiter.remove("b", 500 * MS)
    arbiter.add("b", {OTHER_GPU: IDLE}, 510 * MS)
    assert arbiter.deadline() == 600 * MS


def test_a_drain_and_a_lease_under_an_ordinary_limit_are_left_as_they_are() -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: (300_000, 300_000, 900_000)}, 0)
    arbiter.want("a", 0)
    assert arbiter.idle("a", GPU, 50 * MS) == [Close("a", GPU)]
    arbiter.add("b", {GPU: IDLE}, 60 * MS)
    assert arbiter.deadline() == 250 * MS

    arbiter = Arbiter()
    arbiter.add("a", {GPU: (300_000, 300_000)}, 0)
    arbiter.want("a", 5 * MS)
    assert arbiter.tick(105 * MS)[0] == Extend("a", GPU, 110 * MS)
    arbiter.add("b", {GPU: IDLE}, 106 * MS)
    assert arbiter.deadline() == 110 * MS


def test_neighbours_that_come_and_go_give_no_time_beyond_the_limits() -> None:
    simulation = Simulation()
    simulation.join("b0", 0, 1, is_idle=True)
    simulation.join("a", 0.3, 0.3, alone=1, drain_ms=0)
    used = 0.0
    for index in range(100):
        used += share_of(simulation, 50 * MS) * 0.05
        simulation.leave(f"b{index}")
        simulation.join(f"b{index + 1}", 0, 1, is_idle=True)

    assert used == pytest.approx(0.3 * 5, abs=0.1)


def test_an_allowance_earns_by_the_limit_that_is_in_force() -> None:
    allowance = Allowance(300_000, QUOTA, 0)
    allowance.advance(100 * MS, using=True)
    assert allowance.held_back

    allowance.change(900_000, 110 * MS, using=False)
    # 10 ms at .3 are 3 ms of credit; a grant under a limit of .9 needs 10 ms of it.
    assert allowance.ready_at() == 110 * MS + 7_777_778
    assert allowance.held_back
    allowance.advance(120 * MS, using=False)
    assert not allowance.held_back
    assert allowance.runs_out_after() == 120 * MS

    allowance.change(300_000, 180 * MS, using=True)
    # 60 ms at .9 cost 6 ms.
    assert allowance.runs_out_after() == 8_571_429
    assert not allowance.held_back


def test_a_lower_limit_keeps_enough_for_one_grant_and_a_higher_one_keeps_all() -> None:
    allowance = Allowance(900_000, QUOTA, 0)
    allowance.advance(SECOND, using=False)
    allowance.change(900_000, SECOND, using=False)
    assert allowance.runs_out_after() == 2 * SECOND

    allowance.change(300_000, SECOND, using=False)
    assert allowance.runs_out_after() == QUOTA
    allowance.change(900_000, SECOND, using=False)
    assert allowance.runs_out_after() == 700 * MS


def test_use_without_a_limit_costs_nothing_and_pays_debts_back() -> None:
    allowance = Allowance(500_000, QUOTA, 0)
    allowance.advance(400 * MS, using=True)  # 150 ms too long

    allowance.change(MICROS, 400 * MS, using=False)
    allowance.advance(500 * MS, using=True)
    allowance.change(500_000, 500 * MS, using=False)
    assert allowance.ready_at() == 500 * MS + 200 * MS
    allowance.change(MICROS, 500 * MS, using=False)
    allowance.change(500_000, 3600 * SECOND, using=True)
    assert allowance.held_back
    assert allowance.ready_at() == 3600 * SECOND + 100 * MS


def test_pauses_without_a_limit_save_one_grant() -> None:
    allowance = Allowance(500_000, QUOTA, 0)
    allowance.advance(100 * MS, using=True)
    allowance.change(MICROS, 100 * MS, using=False)
    allowance.change(500_000, SECOND, using=False)

    assert not allowance.held_back
    assert allowance.runs_out_after() == QUOTA


def test_a_limit_of_zero_beside_others_never_runs_and_runs_alone() -> None:
    allowance = Allowance(0, QUOTA, 0)
    allowance.change(500_000, 0, using=False)
    ready = allowance.ready_at()
    assert ready == 90 * MS
    allowance.advance(ready, using=False)
    assert not allowance.held_back

    allowance.change(0, ready, using=False)
    assert allowance.held_back
    assert allowance.ready_at() is None


def test_a_guarantee_forgives_debts_and_still_owes() -> None:
    guarantee = Guarantee(300_000, QUOTA, 0)
    guarantee.use(SECOND, SECOND, MICROS * SECOND)
    guarantee.forgive()
    assert guarantee.behind(SECOND) == 0

    guarantee.wait(2 * SECOND, wanting=True)
    guarantee.forgive()
    assert guarantee.behind(2 * SECOND) == 300 * MS * MICROS


def test_a_capped_average_decays_from_there() -> None:
    average = DecayedAverage(0, 0)
    average.use(0, 5 * SECOND)
    average.cap(0.4, 6 * SECOND)
    assert average.at(6 * SECOND) == 0.4
    assert average.at(8 * SECOND) == pytest.approx(0.4 * 0.36788, abs=1e-4)
    for now in (7, 8):
        average.cap(0.4, now * SECOND)
    assert average.at(8 * SECOND) == pytest.approx(0.4 * 0.36788, abs=1e-4)


def test_an_average_that_is_capped_late_stands_as_of_its_last_use() -> None:
    average = DecayedAverage(0, 0)
    average.use(0, 5 * SECOND)
    average.cap(0.4, 4 * SECOND)
    assert average.at(5 * SECOND) == 0.4


def test_a_capped_window_keeps_the_same_part_of_each_use() -> None:
    window = SlidingWindow(2 * SECOND)
    window.use(0, 1500 * MS)
    window.use(2500 * MS, 3 * SECOND)
    window.cap(0.25, 3 * SECOND)
    assert window.at(3 * SECOND) == 0.25
    # Of the first use half a second was in the window, of which half is kept.
    assert window.at(3_250 * MS) == 0.125
    window.cap(0.25, 3_250 * MS)
    assert window.at(3_250 * MS) == 0.125


phases = st.lists(
    st.tuples(st.sampled_from(["alone", "idle", "busy"]), st.integers(20, 4000)),
    min_size=1,
    max_size=12,
)
limits = st.tuples(st.integers(10, 90), st.integers(0, 100))
"""Of a member in hundredths: its limit, and how much larger the one while alone is."""


@settings(max_examples=60, deadline=None)
@given(phases, limits, st.integers(0, 90), st.integers(0, 20), st.integers(0, 99))
def test_no_one_uses_more_than_the_limits_that_were_in_force_and_waits_for_nothing(
    phases: list[tuple[str, int]], limits: tuple[int, int], request: int, drain_ms: int, seed: int
) -> None:
    """Over all phases together, however short they are, and in each long one by itself."""
    limit, more = limits
    bounds = {"alone": min(100, limit + more) / 100, "idle": limit / 100, "busy": limit / 100}
    simulation = Simulation(seed)
    simulation.join(
        "a", min(request, limit) / 100, limit / 100, alone=bounds["alone"], drain_ms=drain_ms
    )
    grant_s = 0.1 + drain_ms / 1000
    used, allowed, before = 0.0, 0.0, ""
    for index, (neighbour, duration_ms) in enumerate(phases):
        if neighbour != "alone":
            simulation.join(str(index), 1 - limit / 100, 1, is_idle=neighbour == "idle")
        duration_s = duration_ms / 1000
        used_s = share_of(simulation, duration_ms * MS) * duration_s
        used += used_s
        allowed += duration_s * bounds[neighbour]
        # A pause until there is enough for one grant again, which is paced to once a second.
        if neighbour != "busy":
            assert used_s >= duration_s * bounds[neighbour] - 1.1 - grant_s
        if neighbour != "alone":
            # Beside others it may save two quotas; of what it saved while alone one grant is left.
            saved_s = grant_s if before == "alone" and more else 0.2 + grant_s
            assert used_s <= duration_s * bounds[neighbour] + saved_s
            simulation.leave(str(index))
        before = neighbour
    # Each neighbour that leaves may begin a lease, which ends as soon as the next one comes.
    assert used <= allowed + 0.2 + grant_s + len(phases) * drain_ms / 1000
