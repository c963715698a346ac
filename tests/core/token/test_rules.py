"""The rules of the arbiter, event by event, on one GPU."""

import pytest

from core.token.simulation import GPU, HALF, MS, contended
from kubeshare.core.token import Arbiter, Close, Extend, Open, Shut, UnknownMemberError, Watch

MICROS = 1_000_000


def test_a_first_want_opens_at_once() -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: HALF}, 0)

    assert arbiter.want("a", 10) == [Open("a", GPU, 10 + 100 * MS, again=False)]


def test_a_job_alone_is_extended_without_a_drain() -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: HALF}, 0)
    arbiter.want("a", 0)

    assert arbiter.tick(100 * MS) == [Extend("a", GPU, 200 * MS), Watch("a", GPU)]
    assert arbiter.tick(200 * MS) == [Extend("a", GPU, 300 * MS)]


def test_a_lease_is_not_over_before_its_time() -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: HALF}, 0)
    arbiter.want("a", 0)

    assert arbiter.deadline() == 100 * MS
    assert arbiter.tick(100 * MS - 1) == []


def test_the_token_passes_on_when_the_holder_has_drained() -> None:
    arbiter = contended()

    assert arbiter.tick(100 * MS) == [Close("a", GPU)]
    assert arbiter.drained("a", GPU, 104 * MS, 105 * MS) == [
        Shut("a", GPU, bypassed=False),
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

    assert arbiter.views(105 * MS)[0].charged_ns == 87_500_000


@pytest.mark.parametrize(("reported", "charged"), [(-5, 0), (7 * MS, 7 * MS), (10**18, 105 * MS)])
def test_a_report_is_believed_only_within_the_grant(reported: int, charged: int) -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: HALF}, 0)
    arbiter.want("a", 0)
    arbiter.idle("a", GPU, 100 * MS)
    arbiter.drained("a", GPU, reported, 105 * MS)

    assert arbiter.views(105 * MS)[0].charged_ns == charged


def test_a_report_cannot_undo_what_was_charged_at_an_extension() -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: HALF}, 0)
    arbiter.want("a", 0)
    arbiter.tick(100 * MS)
    arbiter.idle("a", GPU, 110 * MS)
    arbiter.drained("a", GPU, 0, 111 * MS)

    assert arbiter.views(111 * MS)[0].charged_ns == 105 * MS


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


def test_idle_of_one_whose_gate_closes_already_changes_nothing() -> None:
    arbiter = contended()
    arbiter.tick(100 * MS)

    assert arbiter.idle("a", GPU, 101 * MS) == []


def test_a_report_of_one_who_was_not_asked_to_drain_changes_nothing() -> None:
    arbiter = contended()

    assert arbiter.drained("a", GPU, 20 * MS, 20 * MS) == []
    assert arbiter.holder(GPU) == "a"


def test_a_newcomer_goes_before_who_is_further_behind() -> None:
    arbiter = Arbiter()
    for name in "abc":
        arbiter.add(name, {GPU: HALF}, 30 * MS if name == "c" else 0)
    arbiter.want("b", 0)
    arbiter.gone("b", 5 * MS)
    arbiter.want("a", 10 * MS)
    arbiter.want("b", 20 * MS)
    arbiter.want("c", 40 * MS)
    arbiter.tick(110 * MS)

    assert Open("c", GPU, 210 * MS) in arbiter.drained("a", GPU, 110 * MS, 110 * MS)


def test_a_grant_is_shorter_only_for_those_who_want_the_gpu_or_had_it_a_moment_ago() -> None:
    arbiter = Arbiter()
    arbiter.add("small", {GPU: (20_000, MICROS)}, 0)
    arbiter.add("large", {GPU: (980_000, MICROS)}, 0)

    def small_opens(now: int) -> int:
        (end,) = (a.lease_end_ns for a in arbiter.want("small", now) if isinstance(a, Open))
        arbiter.gone("small", now + MS)
        return end - now

    assert small_opens(0) == 100 * MS
    arbiter.want("large", 10 * MS)
    arbiter.idle("large", GPU, 30 * MS)
    arbiter.drained("large", GPU, 30 * MS, 30 * MS)
    assert small_opens(40 * MS) == 20 * MS
    assert small_opens(1029 * MS) == 20 * MS
    assert small_opens(1030 * MS) == 100 * MS


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
    arbiter.add("a", {GPU: HALF}, 0)
    arbiter.want("a", 0)

    assert arbiter.add("b", {GPU: HALF}, 5) == [Watch("a", GPU)]


def test_a_member_at_its_limit_waits_until_a_grant_is_worth_it() -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: (0, MICROS // 2)}, 0)
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

    with pytest.raises(ValueError, match=r"^there is a member a already$"):
        arbiter.add("a", {GPU: (0, MICROS)}, 1)


def test_an_unknown_member_is_named() -> None:
    with pytest.raises(UnknownMemberError, match="no member x"):
        Arbiter().want("x", 0)
