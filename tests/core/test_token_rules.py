"""The rules of the arbiter, event by event, on one GPU."""

import pytest

from core.token_simulation import GPU, MS, SECOND
from kubeshare.core.token import Arbiter, Close, Extend, Open, Shut, UnknownMemberError, Watch

HALF = 500_000
MICROS = 1_000_000


def test_a_first_want_opens_at_once() -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: (HALF, MICROS)}, 0)

    assert arbiter.want("a", 10) == [Open("a", GPU, 10 + 100 * MS)]


def test_a_job_alone_is_extended_without_a_drain() -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: (HALF, MICROS)}, 0)
    arbiter.want("a", 0)

    assert arbiter.tick(100 * MS) == [Extend("a", GPU, 200 * MS), Watch("a", GPU)]
    assert arbiter.tick(200 * MS) == [Extend("a", GPU, 300 * MS)]


def test_a_lease_is_not_over_before_its_time() -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: (HALF, MICROS)}, 0)
    arbiter.want("a", 0)

    assert arbiter.deadline() == 100 * MS
    assert arbiter.tick(100 * MS - 1) == []


def contended() -> Arbiter:
    """`a` holds since 0, `b` waits."""
    arbiter = Arbiter()
    arbiter.add("a", {GPU: (HALF, MICROS)}, 0)
    arbiter.add("b", {GPU: (HALF, MICROS)}, 0)
    assert arbiter.want("a", 0) == [Open("a", GPU, 100 * MS), Watch("a", GPU)]
    assert arbiter.want("b", 1 * MS) == []
    return arbiter


def test_the_token_passes_on_when_the_holder_has_drained() -> None:
    arbiter = contended()

    assert arbiter.tick(100 * MS) == [Close("a", GPU)]
    assert arbiter.drained("a", GPU, 104 * MS, 105 * MS) == [
        Shut("a", GPU),
        Open("b", GPU, 205 * MS),
        Watch("b", GPU),
    ]


def test_the_overrun_is_charged_to_the_gpus_own_end() -> None:
    arbiter = contended()
    arbiter.tick(100 * MS)
    arbiter.drained("a", GPU, 104 * MS, 105 * MS)

    assert arbiter.views(105 * MS)[0].charged_ns == 104 * MS


def test_who_was_asked_to_say_that_it_is_idle_was_not_for_long_when_it_did_not() -> None:
    """Else a holder could keep the GPU for whole grants, and say afterwards that it was idle."""
    arbiter = contended()
    arbiter.tick(100 * MS)
    arbiter.drained("a", GPU, 0, 105 * MS)

    assert arbiter.views(105 * MS)[0].charged_ns == 80 * MS


@pytest.mark.parametrize(("reported", "charged"), [(-5, 0), (7 * MS, 7 * MS), (10**18, 105 * MS)])
def test_a_report_is_believed_only_within_the_grant(reported: int, charged: int) -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: (HALF, MICROS)}, 0)
    arbiter.want("a", 0)
    arbiter.idle("a", GPU, 100 * MS)
    arbiter.drained("a", GPU, reported, 105 * MS)

    assert arbiter.views(105 * MS)[0].charged_ns == charged


def test_a_report_cannot_undo_what_was_charged_at_an_extension() -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: (HALF, MICROS)}, 0)
    arbiter.want("a", 0)
    arbiter.tick(100 * MS)
    arbiter.idle("a", GPU, 110 * MS)
    arbiter.drained("a", GPU, 0, 111 * MS)

    assert arbiter.views(111 * MS)[0].charged_ns == 100 * MS


def test_an_idle_holder_gives_way_and_is_not_charged() -> None:
    arbiter = contended()

    assert arbiter.idle("a", GPU, 20 * MS) == [Close("a", GPU)]
    assert arbiter.drained("a", GPU, 15 * MS, 21 * MS)[:2] == [
        Shut("a", GPU),
        Open("b", GPU, 121 * MS),
    ]
    assert arbiter.views(21 * MS)[0].charged_ns == 15 * MS


def test_idle_of_one_who_holds_nothing_changes_nothing() -> None:
    arbiter = contended()

    assert arbiter.idle("b", GPU, 20 * MS) == []
    assert arbiter.holder(GPU) == "a"


def test_a_hung_holder_is_bypassed_at_the_deadline_and_charged() -> None:
    arbiter = contended()
    arbiter.tick(100 * MS)

    assert arbiter.deadline() == 300 * MS
    assert arbiter.tick(300 * MS) == [
        Shut("a", GPU, bypassed=True),
        Open("b", GPU, 400 * MS),
        Watch("b", GPU),
    ]
    assert arbiter.views(300 * MS)[0].state == "hung"
    assert arbiter.views(300 * MS)[0].charged_ns == 300 * MS


def test_a_bypassed_holder_that_reports_late_is_charged_what_it_used_meanwhile() -> None:
    arbiter = contended()
    arbiter.tick(100 * MS)
    arbiter.tick(300 * MS)
    share_before = arbiter.views(360 * MS)[0].share

    arbiter.drained("a", GPU, 350 * MS, 360 * MS)

    view = arbiter.views(360 * MS)[0]
    assert view.charged_ns == 350 * MS
    assert view.share > share_before
    assert view.state == "idle"


def test_a_holder_that_waits_for_its_own_launch_is_let_through_once_more() -> None:
    """Its drain may wait for something that only its own next launch brings about."""
    arbiter = contended()
    arbiter.tick(100 * MS)
    arbiter.want("a", 101 * MS)

    assert arbiter.tick(300 * MS) == [Open("a", GPU, 400 * MS, again=True)]
    assert arbiter.tick(400 * MS) == [Close("a", GPU)]
    assert arbiter.drained("a", GPU, 401 * MS, 402 * MS)[0] == Shut("a", GPU)
    assert arbiter.views(402 * MS)[0].charged_ns == 401 * MS
    assert arbiter.views(402 * MS)[0].bypasses == 0


def test_a_holder_that_does_not_drain_twice_is_bypassed() -> None:
    arbiter = contended()
    arbiter.tick(100 * MS)
    arbiter.want("a", 101 * MS)
    arbiter.tick(300 * MS)
    arbiter.want("a", 301 * MS)
    arbiter.tick(400 * MS)
    arbiter.want("a", 401 * MS)

    actions = arbiter.tick(800 * MS)

    assert actions[:2] == [Shut("a", GPU, bypassed=True), Open("b", GPU, 900 * MS)]
    assert arbiter.views(800 * MS)[0].bypasses == 1


def test_others_wait_while_a_holder_says_that_its_work_goes_on_and_it_pays_for_all_of_it() -> None:
    arbiter = contended()
    arbiter.tick(100 * MS)
    for now in range(150, 2000, 50):
        assert arbiter.busy("a", GPU, now * MS) == []
        assert arbiter.tick(now * MS) == []

    actions = arbiter.drained("a", GPU, 2000 * MS, 2001 * MS)

    assert Open("b", GPU, 2101 * MS) in actions
    assert arbiter.views(2001 * MS)[0].charged_ns == 2000 * MS
    assert arbiter.views(2001 * MS)[0].bypasses == 0


def test_a_holder_that_falls_silent_is_bypassed_and_one_that_goes_on_for_ever_is_too() -> None:
    silent = contended()
    silent.tick(100 * MS)
    silent.busy("a", GPU, 150 * MS)
    assert silent.tick(300 * MS) == []
    assert Shut("a", GPU, bypassed=True) in silent.tick(500 * MS)

    endless, now = contended(), 100
    actions = endless.tick(now * MS)
    while Shut("a", GPU, bypassed=True) not in actions:
        assert now < 12_000
        now += 50
        actions = endless.busy("a", GPU, now * MS)
    assert now > 10_000


def test_a_gate_is_opened_again_and_again_for_work_that_lives_and_waits_for_a_launch() -> None:
    arbiter = contended()
    arbiter.tick(100 * MS)
    reopened: list[int] = []
    for now in range(150, 3000, 50):
        actions = arbiter.want("a", now * MS) + arbiter.busy("a", GPU, now * MS)
        reopened += [now for action in actions if isinstance(action, Open)]

    assert reopened == [300, 800, 1700]


def test_a_bypassed_member_that_wants_is_served_again() -> None:
    arbiter = contended()
    arbiter.tick(100 * MS)
    arbiter.tick(300 * MS)
    arbiter.want("a", 301 * MS)
    now = 400 * MS
    actions = arbiter.tick(now)
    while Close("b", GPU) not in actions:
        assert now < 2 * SECOND
        now += 100 * MS
        actions = arbiter.tick(now)

    assert Open("a", GPU, now + 100 * MS) in arbiter.drained("b", GPU, now, now)


def test_a_member_that_is_gone_frees_the_token_at_once() -> None:
    arbiter = contended()

    assert arbiter.gone("a", 30 * MS)[:2] == [Shut("a", GPU), Open("b", GPU, 130 * MS)]


def test_a_member_that_is_gone_waits_no_more() -> None:
    arbiter = contended()
    arbiter.gone("b", 30 * MS)

    assert arbiter.tick(100 * MS) == [Extend("a", GPU, 200 * MS)]


def test_removing_the_holder_passes_the_token_on() -> None:
    arbiter = contended()

    assert arbiter.remove("a", 30 * MS)[:2] == [Shut("a", GPU), Open("b", GPU, 130 * MS)]
    assert [view.name for view in arbiter.views(30 * MS)] == ["b"]


def test_a_newcomer_has_the_lone_holder_watched() -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: (HALF, MICROS)}, 0)
    arbiter.want("a", 0)

    assert arbiter.add("b", {GPU: (HALF, MICROS)}, 5) == [Watch("a", GPU)]


def test_a_member_at_its_limit_waits_until_a_grant_is_worth_it() -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: (0, HALF)}, 0)
    assert arbiter.want("a", 0) == [Open("a", GPU, 100 * MS), Watch("a", GPU)]
    assert arbiter.tick(100 * MS) == [Close("a", GPU)]
    arbiter.drained("a", GPU, 100 * MS, 100 * MS)

    assert arbiter.want("a", 100 * MS) == []
    assert arbiter.views(100 * MS)[0].state == "held back"
    assert arbiter.deadline() == 200 * MS
    assert arbiter.tick(200 * MS)[0] == Open("a", GPU, 300 * MS)


def test_a_limit_of_zero_never_runs_and_never_wakes_anyone() -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: (0, 0)}, 0)

    assert arbiter.want("a", 0) == []
    assert arbiter.deadline() is None


def test_waits_are_counted() -> None:
    arbiter = contended()
    arbiter.tick(100 * MS)
    arbiter.drained("a", GPU, 101 * MS, 101 * MS)

    view = arbiter.views(101 * MS)[1]
    assert (view.waits, view.waited_ns, view.longest_wait_ns) == (1, 100 * MS, 100 * MS)


def test_two_members_of_one_name_are_refused() -> None:
    arbiter = contended()

    with pytest.raises(ValueError, match="a is a member already"):
        arbiter.add("a", {GPU: (0, MICROS)}, 1)


def test_an_unknown_member_is_named() -> None:
    with pytest.raises(UnknownMemberError, match="no member x"):
        Arbiter().want("x", 0)
