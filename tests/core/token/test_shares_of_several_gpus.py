"""What a part of a GPU may and is owed, to the last nanosecond."""

import pytest

from core.token.simulation import GPU, MS, SECOND
from kubeshare.core.token import QUOTA_NS
from kubeshare.core.token.entitlement import Allowance, Guarantee, paced_grant_ns
from kubeshare.core.token.gpu_token import GpuToken
from kubeshare.core.token.member import Member
from kubeshare.core.token.share import BEHIND, SERVED, MemberShare
from kubeshare.core.token.share_spec import ShareSpec
from kubeshare.core.token.usage import DECAYED_AVERAGE, SLIDING_WINDOW
from kubeshare.core.token.waits import Waits

MICROS = 1_000_000


def a_share(
    name: str, request: int, limit: int = MICROS, token: GpuToken | None = None
) -> MemberShare:
    return MemberShare(
        name, token or GpuToken(GPU), ShareSpec(request, limit, SECOND), DECAYED_AVERAGE, 0
    )


@pytest.mark.parametrize(
    ("others", "grant_ms"),
    [
        ([], 1000),
        # Three tenths, and half of the four tenths that no member has requested.
        ([300_000], 500),
        ([200_000, 200_000], 400),
        ([700_000], 300),
        ([400_000, 400_000], 300),
    ],
)
def test_a_grant_is_as_long_as_the_share_that_is_left(others: list[int], grant_ms: int) -> None:
    grant_ns = a_share("a", 300_000).grant_ns(others)
    assert grant_ns == grant_ms * MS
    assert isinstance(grant_ns, int)


def test_a_grant_is_no_longer_than_a_limit_allows() -> None:
    assert a_share("a", 300_000, 400_000).grant_ns([300_000]) == 400 * MS
    assert a_share("a", 300_000, 400_000).grant_ns([]) == 400 * MS


def test_who_is_further_behind_stands_first() -> None:
    token = GpuToken(GPU)
    little, much, nothing = (
        a_share(name, request, token=token)
        for name, request in (("little", 100_000), ("much", 300_000), ("nothing", 0))
    )
    standings = [share.precedence(100 * MS) for share in (little, much, nothing)]
    assert standings[0] == (BEHIND, -10 * MS * MICROS)
    assert standings[1] == (BEHIND, -30 * MS * MICROS)
    assert standings[2][0] == SERVED
    assert sorted(standings) == [standings[1], standings[0], standings[2]]


def test_of_several_gpus_that_counts_on_which_a_member_has_most() -> None:
    behind, served = a_share("g", 300_000), a_share("g", 0)
    member = Member("g", SECOND, Waits())
    member.is_new = False
    for member.wanted in ([behind, served], [served, behind]):
        assert member.rank(100 * MS) == (served.precedence(100 * MS), "g")


def test_other_bounds_count_from_now_on() -> None:
    share = a_share("a", 300_000)
    share.change(ShareSpec(500_000, 200_000, SECOND), 0)
    assert share.precedence(100 * MS) == (BEHIND, -50 * MS * MICROS)
    assert share.grant_ns([]) == 200 * MS
    share.change(ShareSpec(100_000, 200_000, SECOND), 0)
    assert share.grant_ns([]) == 200 * MS
    share.change(ShareSpec(100_000, 200_000, QUOTA_NS), 0)
    assert share.grant_ns([]) == QUOTA_NS
    share.change(ShareSpec(100_000, MICROS, SECOND), 0)
    assert share.allowance is None


def test_time_that_is_lost_between_one_holder_and_the_next_is_owed_to_nobody() -> None:
    token = GpuToken(GPU)
    waiting = a_share("b", 300_000, token=token)
    lose_ten_milliseconds(token)
    assert waiting.precedence(100 * MS) == (BEHIND, -27 * MS * MICROS)
    newcomer = MemberShare(
        "c", token, ShareSpec(300_000, MICROS, SECOND), DECAYED_AVERAGE, 100 * MS
    )
    assert newcomer.precedence(200 * MS) == (BEHIND, -30 * MS * MICROS)


def test_lost_time_is_made_up_for_by_use_that_is_owed_to_nobody() -> None:
    token = GpuToken(GPU)
    waiting, without_request = a_share("b", 300_000, token=token), a_share("c", 0, token=token)
    lose_ten_milliseconds(token)
    without_request.settle(100 * MS)
    token.held = without_request
    without_request.charge(106 * MS, 106 * MS)
    assert waiting.precedence(106 * MS) == (BEHIND, -102 * MS * 300_000)


def test_a_quarter_of_a_second_of_lost_time_is_made_up_for_at_most() -> None:
    token = GpuToken(GPU)
    token.lose(3 * SECOND)
    token.make_up(2 * SECOND)
    assert token.clock(10 * SECOND) == 7250 * MS


@pytest.mark.parametrize(("pause_ns", "left_ns"), [(200_000, 950_100_000), (10 * MS, 940 * MS)])
def test_who_asks_again_at_once_loses_nothing_of_what_it_is_owed(
    pause_ns: int, left_ns: int
) -> None:
    share = a_share("a", 500_000)
    share.waits = True
    share.settle(2 * SECOND)
    share.waits, share.token.held = False, share
    share.charge(2100 * MS, 2100 * MS)
    share.settle(2100 * MS + pause_ns)
    assert share.precedence(2100 * MS + pause_ns) == (BEHIND, -left_ns * MICROS)


def lose_ten_milliseconds(token: GpuToken) -> None:
    """In a turn until 100 ms of a share that was behind its request."""
    holder = a_share("a", 500_000, token=token)
    holder.account(50 * MS, using=False)
    token.held = holder
    holder.charge(90 * MS, 100 * MS)


@pytest.mark.parametrize(
    ("rival", "waits", "overdue_s", "paid_back_ms"),
    [
        (500_000, ["rival"], None, 4333),
        (700_000, ["rival"], None, 4667),
        (500_000, [], None, 1000),
        (500_000, ["holder"], None, 1000),
        (500_000, ["rival"], 2, 1000),
        (500_000, ["rival"], 0, 4333),
        (0, ["rival"], None, 1000),
    ],
    ids=[
        "a rival was behind by 1 s: that, and one grant, is a debt",
        "a rival was behind by all that was too much",
        "nobody waited",
        "the holder itself wants it again",
        "the rival has booked it and could not have had it earlier",
        "the rival has booked it and waited for nothing else",
        "the rival had its request",
    ],
)
def test_use_is_a_debt_where_somebody_waited_who_was_behind(
    rival: int, waits: list[str], overdue_s: int | None, paid_back_ms: int
) -> None:
    """Two seconds beside a request of three tenths: 1.4 s too much, or one grant at most."""
    token = GpuToken(GPU)
    token.shares = {
        name: a_share(name, request, token=token)
        for name, request in (("holder", 300_000), ("rival", rival))
    }
    for name in waits:
        token.shares[name].waits = True
    if overdue_s is not None:
        token.booked, token.overdue_ns = "rival", overdue_s * SECOND
    token.held = token.shares["holder"]
    token.held.charge(2 * SECOND, 2 * SECOND)
    paid_back = 2 * SECOND + paid_back_ms * MS
    around = [token.shares["holder"].precedence(paid_back + step)[0] for step in (-MS, MS)]
    assert around == [SERVED, BEHIND]


def test_by_the_papers_window_a_use_that_goes_on_counts_and_who_has_its_request_is_served() -> None:
    share = MemberShare("a", GpuToken(GPU), ShareSpec(100_000, MICROS, SECOND), SLIDING_WINDOW, 0)
    share.token.held = share
    assert share.precedence(500 * MS) == (BEHIND, -0.05)
    assert share.precedence(SECOND) == (SERVED, 0.1)


def test_another_request_is_owed_and_saved_up() -> None:
    guarantee = Guarantee(300_000, 100 * MS, 0)
    guarantee.change(500_000, 20 * MS)
    assert guarantee.behind(100 * MS) == 50 * MS * MICROS
    guarantee.wait(60 * SECOND, wanting=False)
    assert guarantee.behind(60 * SECOND) == 20 * MS * MICROS


def test_a_debt_is_what_others_are_owed_and_one_grant_at_most() -> None:
    guarantee = Guarantee(300_000, 100 * MS, 0)
    guarantee.use(40 * MS, 40 * MS, 15 * SECOND * MICROS)
    assert guarantee.behind(40 * MS) == -28 * MS * MICROS
    guarantee.use(60 * SECOND, 60 * SECOND, 15 * SECOND * MICROS)
    assert guarantee.behind(60 * SECOND) == -15_100 * MS * MICROS


def test_an_allowance_stands_still_with_the_clock_and_is_never_less_than_nothing() -> None:
    allowance = Allowance(300_000, 100 * MS, 0)
    allowance.advance(0, using=False)
    assert allowance.runs_out_after() == 100 * MS
    allowance.advance(150 * MS, using=True)
    assert allowance.runs_out_after() == 0


def test_an_allowance_is_counted_to_the_nanosecond_and_rounded_up() -> None:
    allowance = Allowance(300_000, 100 * MS, 0)
    assert allowance.runs_out_after() == 100 * MS
    allowance.advance(1, using=False)
    assert allowance.runs_out_after() == 100 * MS + 1
    assert isinstance(allowance.runs_out_after(), int)


def test_what_counts_later_costs_as_much_then_as_it_had_at_once() -> None:
    allowance = Allowance(300_000, 100 * MS, 0)
    allowance.run_over(50 * MS, 50 * MS)
    # 15 ms of the whole GPU are 15 / 0.7 ms of running beside a limit of 0.3.
    assert allowance.runs_out_after() == 121_428_572
    allowance.count_overtime()
    assert allowance.runs_out_after() == 50 * MS
    allowance.run_over(2 * SECOND, 0)
    allowance.count_overtime()
    assert allowance.runs_out_after() == 50 * MS


def test_who_is_held_back_may_run_when_there_is_enough_for_a_grant() -> None:
    allowance = Allowance(300_000, 100 * MS, 0)
    allowance.advance(100 * MS, using=True)
    assert allowance.held_back
    ready = allowance.ready_at()
    assert ready == 100 * MS + 233_333_334
    allowance.advance(ready - 1, using=False)
    assert allowance.held_back
    allowance.advance(ready, using=False)
    assert not allowance.held_back
    assert allowance.ready_at() == ready


def test_a_limit_of_a_millionth_is_one_and_a_limit_of_nothing_is_none() -> None:
    tiny, nothing = Allowance(1, 100 * MS, 0), Allowance(0, 100 * MS, 0)
    assert not tiny.held_back
    tiny.advance(5 * MS, using=True)
    assert tiny.held_back
    ready = tiny.ready_at()
    assert ready is not None
    tiny.advance(ready, using=False)
    assert not tiny.held_back
    assert nothing.held_back
    nothing.advance(3600 * SECOND, using=False)
    assert nothing.held_back
    assert nothing.ready_at() is None


def test_a_grant_is_whole_nanoseconds() -> None:
    assert paced_grant_ns(123_457, SECOND) == 123_457_000
    assert isinstance(paced_grant_ns(123_457, SECOND), int)


def test_what_is_reported_late_is_charged_late_to_all_accounts() -> None:
    share = a_share("a", 300_000, 400_000)
    share.settle(100 * MS)
    share.token.held = share
    share.bypass(100 * MS, waits_elsewhere=False)
    before = share.usage_now(100 * MS)
    share.end_bypass(150 * MS, 200 * MS)
    assert not share.is_bypassed
    assert share.tally.charged_ns == 50 * MS
    # Since then it was owed 60 ms, and allowed 80 ms beside the 240 ms of its first grant.
    assert share.precedence(200 * MS) == (BEHIND, -10 * MS * MICROS)
    assert share.allowance is not None
    assert share.allowance.runs_out_after() == 450 * MS
    assert share.usage_now(200 * MS)[0] > before[0]
    assert share.usage_now(200 * MS)[1] == pytest.approx(0.005)
    share.end_bypass(190 * MS, 200 * MS)
    assert share.tally.charged_ns == 50 * MS


def test_a_use_that_goes_on_counts_in_what_is_shown() -> None:
    share = a_share("a", 0)
    assert share.usage_now(100 * MS) == (0, 0)
    share.token.held = share
    used, recently = share.usage_now(100 * MS)
    assert used == pytest.approx(0.0488, abs=1e-4)
    assert recently == pytest.approx(0.01)
