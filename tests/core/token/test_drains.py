"""What becomes of a holder whose drain takes long: patience, one more launch, and no more."""

import pytest

from core.token.simulation import GPU, HALF, MS, SECOND, contended
from kubeshare.core.token import Arbiter, Close, Open, Shut, Watch


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
    assert view.share < share_before, "the 10 ms since then are not charged"
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
    start = 60 * SECOND
    arbiter = contended(start)
    arbiter.tick(start + 100 * MS)
    for now in range(start + 150 * MS, start + 2000 * MS, 50 * MS):
        assert arbiter.busy("a", GPU, now) == []
        assert arbiter.tick(now) == []

    end = start + 2000 * MS
    actions = arbiter.drained("a", GPU, end, end + MS)

    assert Open("b", GPU, end + 101 * MS) in actions
    assert arbiter.views(end + MS)[0].charged_ns == 2000 * MS
    assert arbiter.views(end + MS)[0].bypasses == 0


def test_a_holder_that_falls_silent_is_bypassed_and_one_that_goes_on_for_ever_is_too() -> None:
    silent = contended()
    silent.tick(100 * MS)
    silent.busy("a", GPU, 150 * MS)
    assert silent.tick(300 * MS) == []
    assert silent.deadline() == 500 * MS
    assert Shut("a", GPU, bypassed=True) in silent.tick(500 * MS)

    endless, now = contended(), 100
    actions = endless.tick(now * MS)
    while Shut("a", GPU, bypassed=True) not in actions:
        assert now < 17_000
        now += 50
        actions = endless.busy("a", GPU, now * MS)
    assert now > 16_000


def test_a_gate_is_opened_again_and_again_for_work_that_lives_and_waits_for_a_launch() -> None:
    arbiter = contended()
    arbiter.tick(100 * MS)
    reopened: list[int] = []
    for now in range(150, 3000, 50):
        actions = arbiter.want("a", now * MS) + arbiter.busy("a", GPU, now * MS)
        reopened += [now for action in actions if isinstance(action, Open)]

    assert reopened == [300, 800, 1700]


def served_again_after(arbiter: Arbiter, now: int) -> int:
    """When `a`, which was bypassed and wants again, is served beside `b`, which always wants."""
    start = now
    arbiter.want("a", now)
    while arbiter.holder(GPU) != "a":
        assert now < start + 60 * SECOND
        now += 50 * MS
        arbiter.tick(now)
        arbiter.drained("b", GPU, now, now)
        arbiter.want("b", now)
    return now - start


def test_a_bypassed_member_that_has_reported_since_is_served_again() -> None:
    arbiter = contended()
    arbiter.tick(100 * MS)
    arbiter.tick(300 * MS)
    arbiter.drained("a", GPU, 300 * MS, 301 * MS)

    assert served_again_after(arbiter, 301 * MS) < 2 * SECOND


def test_a_bypassed_member_is_charged_by_the_clock_and_served_again_after_thirty_seconds() -> None:
    """Its work may wait for the launch that waits, so it is not kept from it for ever."""
    arbiter = contended()
    arbiter.tick(100 * MS)
    arbiter.tick(300 * MS)
    assert arbiter.views(20 * SECOND)[0].charged_ns == 20 * SECOND

    assert 30 * SECOND <= served_again_after(arbiter, 20 * SECOND) <= 31 * SECOND


@pytest.mark.parametrize(("reports", "patience_ms"), [(True, 16_000), (False, 200)])
def test_who_has_not_reported_since_it_was_bypassed_is_not_believed_to_be_busy(
    patience_ms: int, *, reports: bool
) -> None:
    arbiter = contended()
    arbiter.tick(100 * MS)
    arbiter.tick(300 * MS)
    if reports:
        arbiter.drained("a", GPU, 300 * MS, 301 * MS)
    arbiter.gone("b", 302 * MS)
    arbiter.want("a", 303 * MS)
    arbiter.want("b", 304 * MS)
    now = arbiter.deadline() or 0
    assert Close("a", GPU) in arbiter.tick(now)
    closed = now
    while arbiter.holder(GPU) == "a":
        now += 50 * MS
        arbiter.busy("a", GPU, now)

    assert patience_ms * MS <= now - closed <= (patience_ms + 200) * MS


def test_the_limit_of_a_bypassed_member_that_waits_does_not_keep_it_from_its_next_launch() -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: (100_000, 100_000)}, 0)
    arbiter.want("a", 0)
    arbiter.tick(100 * MS)
    arbiter.tick(arbiter.deadline() or 0)
    assert arbiter.views(5 * SECOND)[0].state == "hung"
    arbiter.want("a", 5 * SECOND)

    ready = arbiter.deadline()
    assert ready is not None
    assert Open in {type(action) for action in arbiter.tick(ready)}


def test_where_two_quotas_are_longer_than_the_shortest_patience_they_are_waited_for() -> None:
    arbiter = contended(quota_ns=300 * MS)
    arbiter.tick(300 * MS)

    assert arbiter.deadline() == 900 * MS


def test_a_gate_that_was_opened_once_more_closes_though_nobody_else_waits() -> None:
    arbiter = contended()
    arbiter.tick(100 * MS)
    arbiter.want("a", 101 * MS)
    arbiter.gone("b", 150 * MS)

    assert arbiter.tick(300 * MS) == [Open("a", GPU, 400 * MS, again=True)]
    assert arbiter.tick(400 * MS) == [Close("a", GPU)]


def test_work_on_a_gpu_that_is_given_back_already_is_no_reason_to_wait_for_another() -> None:
    arbiter = Arbiter()
    arbiter.add("g", {GPU: HALF, "gpu-1": HALF}, 0)
    arbiter.add("b", {"gpu-1": HALF}, 0)
    arbiter.want("g", 0)
    arbiter.want("b", MS)
    arbiter.tick(100 * MS)
    arbiter.drained("g", GPU, 101 * MS, 101 * MS)
    arbiter.busy("g", GPU, 250 * MS)

    assert Shut("g", "gpu-1", bypassed=True) in arbiter.tick(300 * MS)


def test_each_drain_that_takes_long_and_each_that_does_not_end_is_counted() -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: HALF}, 0)
    now = 0
    for took in (20 * MS, None, 6 * MS, 5 * MS, None):
        arbiter.want("a", now)
        arbiter.idle("a", GPU, now)
        if took is None:
            now = arbiter.deadline() or now
            assert arbiter.tick(now) == [Shut("a", GPU, bypassed=True)]
        else:
            now += took
            arbiter.drained("a", GPU, now, now)

    tally = arbiter.tally("a", GPU)
    assert (tally.grants, tally.drains, tally.overruns, tally.bypasses) == (5, 3, 2, 2)
