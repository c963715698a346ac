"""The arbiter of one GPU's token: shares over time, and the rules event by event."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.token_simulation import MS, SECOND, Simulation
from kubeshare.core.token import (
    Action,
    Arbiter,
    Close,
    Extend,
    Open,
    Shut,
    UnknownMemberError,
    Watch,
)
from kubeshare.core.token.usage import Allowance, DecayedAverage

HALF = 500_000
MICROS = 1_000_000


def windows(simulation: Simulation, number: int = 3) -> list[dict[str, float]]:
    simulation.run(5 * SECOND)
    return [simulation.shares(10 * SECOND) for _ in range(number)]


@pytest.mark.parametrize("seed", range(4))
def test_the_stages_of_figure_6_come_out_at_their_targets(seed: int) -> None:
    simulation = Simulation(seed)

    simulation.join("a", 0.3, 0.6)
    for shares in windows(simulation):
        assert shares == pytest.approx({"a": 0.6}, abs=0.01)
    simulation.join("b", 0.4, 0.6)
    for shares in windows(simulation):
        assert shares == pytest.approx({"a": 0.5, "b": 0.5}, abs=0.01)
    simulation.join("c", 0.3, 0.5)
    for shares in windows(simulation):
        assert shares == pytest.approx({"a": 0.3, "b": 0.4, "c": 0.3}, abs=0.01)
        assert sum(shares.values()) > 0.98
    simulation.leave("c")
    for shares in windows(simulation):
        assert shares == pytest.approx({"a": 0.5, "b": 0.5}, abs=0.01)


@pytest.mark.parametrize("limit", [0.001, 0.01, 0.05, 0.1, 0.3, 0.6, 0.9, 0.99])
def test_a_job_alone_gets_its_limit_exactly(limit: float) -> None:
    simulation = Simulation()
    simulation.join("a", 0, limit, drain_ms=0)
    simulation.run(5 * SECOND)

    assert simulation.shares(20 * SECOND)["a"] == pytest.approx(limit, abs=0.002)


def test_hard_partitions_get_their_parts() -> None:
    simulation = Simulation()
    for name, part in (("a", 0.3), ("b", 0.3), ("c", 0.4)):
        simulation.join(name, part, part)
    simulation.run(5 * SECOND)

    shares = simulation.shares(20 * SECOND)
    assert shares == pytest.approx({"a": 0.3, "b": 0.3, "c": 0.4}, abs=0.01)


def test_a_job_without_a_guarantee_takes_what_is_left() -> None:
    simulation = Simulation()
    simulation.join("guaranteed", 0.6, 0.6)
    simulation.join("scavenger", 0, 1)
    simulation.run(5 * SECOND)

    shares = simulation.shares(20 * SECOND)
    assert shares == pytest.approx({"guaranteed": 0.6, "scavenger": 0.4}, abs=0.01)


parts = st.lists(st.integers(5, 100), min_size=1, max_size=5).filter(lambda p: sum(p) <= 100)


@settings(max_examples=40, deadline=None)
@given(parts, st.lists(st.integers(0, 100), min_size=5, max_size=5), st.integers(0, 99))
def test_any_mix_is_served_within_its_bounds(
    requests: list[int], above: list[int], seed: int
) -> None:
    simulation = Simulation(seed)
    limits = {}
    for index, (request, more) in enumerate(zip(requests, above, strict=False)):
        limits[str(index)] = min(100, request + more) / 100
        simulation.join(str(index), request / 100, limits[str(index)])
    simulation.run(6 * SECOND)

    shares = simulation.shares(20 * SECOND)

    for index, request in enumerate(requests):
        assert shares[str(index)] >= request / 100 - 0.03
    for name, share in shares.items():
        assert share <= limits[name] + 0.01
    assert sum(shares.values()) >= min(1, sum(limits.values())) - 0.03
    assert max(job.longest_wait_ns for job in simulation.jobs.values()) < 8 * SECOND


# What may happen to an arbiter, as (what, which member, what the member reports, ns since).
event = st.tuples(
    st.sampled_from(["want", "idle", "drained", "gone", "tick", "remove", "add"]),
    st.sampled_from("abc"),
    st.integers(-SECOND, SECOND),
    st.integers(0, 300 * MS),
)


def feed(
    arbiter: Arbiter, members: set[str], happened: tuple[str, str, int], now: int
) -> list[Action]:
    """Feed one event; those that the daemon would never send are left out."""
    what, name, report = happened
    if what == "tick":
        return arbiter.tick(now)
    if (what == "add") == (name in members):
        return []
    if what == "add":
        members.add(name)
        return arbiter.add(name, 300_000, 600_000, now)
    if what == "drained":
        return arbiter.drained(name, now + report, now)
    if what == "remove":
        members.discard(name)
    actions: list[Action] = getattr(arbiter, what)(name, now)
    return actions


@settings(max_examples=300, deadline=None)
@given(st.lists(event, max_size=60))
def test_whatever_happens_one_gate_is_open_at_most(events: list[tuple[str, str, int, int]]) -> None:
    arbiter = Arbiter()
    now = 0
    members: set[str] = set()
    not_shut: set[str] = set()
    for what, name, report, elapsed in events:
        now += elapsed
        for action in feed(arbiter, members, (what, name, report), now):
            if isinstance(action, Open):
                assert not not_shut
                assert action.lease_end_ns > now
                not_shut.add(action.member)
            elif isinstance(action, Shut):
                not_shut.remove(action.member)
            else:
                assert action.member in not_shut
        assert not_shut == ({arbiter.holder} if arbiter.holder else set())
        for view in arbiter.views(now):
            assert 0 <= view.share <= 1
            assert 0 <= view.charged_ns <= now


def test_a_first_want_opens_at_once() -> None:
    arbiter = Arbiter()
    arbiter.add("a", HALF, MICROS, 0)

    assert arbiter.want("a", 10) == [Open("a", 10 + 100 * MS)]


def test_a_job_alone_is_extended_without_a_drain() -> None:
    arbiter = Arbiter()
    arbiter.add("a", HALF, MICROS, 0)
    arbiter.want("a", 0)

    assert arbiter.tick(100 * MS) == [Extend("a", 200 * MS), Watch("a")]
    assert arbiter.tick(200 * MS) == [Extend("a", 300 * MS)]


def test_a_lease_is_not_over_before_its_time() -> None:
    arbiter = Arbiter()
    arbiter.add("a", HALF, MICROS, 0)
    arbiter.want("a", 0)

    assert arbiter.deadline() == 100 * MS
    assert arbiter.tick(100 * MS - 1) == []


def contended() -> Arbiter:
    """`a` holds since 0, `b` waits."""
    arbiter = Arbiter()
    arbiter.add("a", HALF, MICROS, 0)
    arbiter.add("b", HALF, MICROS, 0)
    assert arbiter.want("a", 0) == [Open("a", 100 * MS), Watch("a")]
    assert arbiter.want("b", 1 * MS) == []
    return arbiter


def test_the_token_passes_on_when_the_holder_has_drained() -> None:
    arbiter = contended()

    assert arbiter.tick(100 * MS) == [Close("a")]
    assert arbiter.drained("a", 104 * MS, 105 * MS) == [
        Shut("a"),
        Open("b", 205 * MS),
        Watch("b"),
    ]


def test_the_overrun_is_charged_to_the_gpus_own_end() -> None:
    arbiter = contended()
    arbiter.tick(100 * MS)
    arbiter.drained("a", 104 * MS, 105 * MS)

    assert arbiter.views(105 * MS)[0].charged_ns == 104 * MS


@pytest.mark.parametrize(("reported", "charged"), [(-5, 0), (7 * MS, 7 * MS), (10**18, 105 * MS)])
def test_a_report_is_believed_only_within_the_grant(reported: int, charged: int) -> None:
    arbiter = contended()
    arbiter.tick(100 * MS)
    arbiter.drained("a", reported, 105 * MS)

    assert arbiter.views(105 * MS)[0].charged_ns == charged


def test_a_report_cannot_undo_what_was_charged_at_an_extension() -> None:
    arbiter = Arbiter()
    arbiter.add("a", HALF, MICROS, 0)
    arbiter.want("a", 0)
    arbiter.tick(100 * MS)
    arbiter.idle("a", 150 * MS)
    arbiter.drained("a", 0, 151 * MS)

    assert arbiter.views(151 * MS)[0].charged_ns == 100 * MS


def test_an_idle_holder_gives_way_and_is_not_charged() -> None:
    arbiter = contended()

    assert arbiter.idle("a", 20 * MS) == [Close("a")]
    assert arbiter.drained("a", 15 * MS, 21 * MS)[:2] == [Shut("a"), Open("b", 121 * MS)]
    assert arbiter.views(21 * MS)[0].charged_ns == 15 * MS


def test_idle_of_one_who_holds_nothing_changes_nothing() -> None:
    arbiter = contended()

    assert arbiter.idle("b", 20 * MS) == []
    assert arbiter.holder == "a"


def test_a_hung_holder_is_bypassed_at_the_deadline_and_charged() -> None:
    arbiter = contended()
    arbiter.tick(100 * MS)

    assert arbiter.deadline() == 300 * MS
    assert arbiter.tick(300 * MS) == [Shut("a", bypassed=True), Open("b", 400 * MS), Watch("b")]
    assert arbiter.views(300 * MS)[0].state == "hung"
    assert arbiter.views(300 * MS)[0].charged_ns == 300 * MS


def test_a_bypassed_holder_that_reports_late_is_charged_what_it_used_meanwhile() -> None:
    arbiter = contended()
    arbiter.tick(100 * MS)
    arbiter.tick(300 * MS)
    share_before = arbiter.views(360 * MS)[0].share

    arbiter.drained("a", 350 * MS, 360 * MS)

    view = arbiter.views(360 * MS)[0]
    assert view.charged_ns == 350 * MS
    assert view.share > share_before
    assert view.state == "idle"


def test_a_bypassed_member_that_wants_is_served_again() -> None:
    """Its drain may wait for something that only its own next launch brings about."""
    arbiter = contended()
    arbiter.tick(100 * MS)
    arbiter.want("a", 101 * MS)
    now = 300 * MS
    actions = arbiter.tick(now)
    while Close("b") not in actions:
        assert now < 2 * SECOND
        now += 100 * MS
        actions = arbiter.tick(now)

    assert Open("a", now + 100 * MS) in arbiter.drained("b", now, now)


def test_a_member_that_is_gone_frees_the_token_at_once() -> None:
    arbiter = contended()

    assert arbiter.gone("a", 30 * MS)[:2] == [Shut("a"), Open("b", 130 * MS)]


def test_a_member_that_is_gone_waits_no_more() -> None:
    arbiter = contended()
    arbiter.gone("b", 30 * MS)

    assert arbiter.tick(100 * MS) == [Extend("a", 200 * MS)]


def test_removing_the_holder_passes_the_token_on() -> None:
    arbiter = contended()

    assert arbiter.remove("a", 30 * MS)[:2] == [Shut("a"), Open("b", 130 * MS)]
    assert [view.name for view in arbiter.views(30 * MS)] == ["b"]


def test_a_newcomer_has_the_lone_holder_watched() -> None:
    arbiter = Arbiter()
    arbiter.add("a", HALF, MICROS, 0)
    arbiter.want("a", 0)

    assert arbiter.add("b", HALF, MICROS, 5) == [Watch("a")]


def test_a_member_at_its_limit_waits_until_a_grant_is_worth_it() -> None:
    arbiter = Arbiter()
    arbiter.add("a", 0, HALF, 0)
    assert arbiter.want("a", 0) == [Open("a", 100 * MS), Watch("a")]
    assert arbiter.tick(100 * MS) == [Close("a")]
    arbiter.drained("a", 100 * MS, 100 * MS)

    assert arbiter.want("a", 100 * MS) == []
    assert arbiter.views(100 * MS)[0].state == "held back"
    assert arbiter.deadline() == 200 * MS
    assert arbiter.tick(200 * MS)[0] == Open("a", 300 * MS)


def test_a_limit_of_zero_never_runs_and_never_wakes_anyone() -> None:
    arbiter = Arbiter()
    arbiter.add("a", 0, 0, 0)

    assert arbiter.want("a", 0) == []
    assert arbiter.deadline() is None


def test_waits_are_counted() -> None:
    arbiter = contended()
    arbiter.tick(100 * MS)
    arbiter.drained("a", 101 * MS, 101 * MS)

    view = arbiter.views(101 * MS)[1]
    assert (view.waits, view.waited_ns, view.longest_wait_ns) == (1, 100 * MS, 100 * MS)


def test_two_members_of_one_name_are_refused() -> None:
    arbiter = contended()

    with pytest.raises(ValueError, match="a is a member already"):
        arbiter.add("a", 0, MICROS, 1)


def test_an_unknown_member_is_named() -> None:
    with pytest.raises(UnknownMemberError, match="no member x"):
        Arbiter().want("x", 0)


@given(st.lists(st.tuples(st.integers(0, SECOND), st.booleans()), max_size=30))
def test_the_average_is_the_same_however_time_is_cut(pieces: list[tuple[int, bool]]) -> None:
    now = 0
    whole, cut = DecayedAverage(0.3, 0), DecayedAverage(0.3, 0)
    for elapsed, using in pieces:
        cut.advance(now + elapsed // 3, using=using)
        now += elapsed
        cut.advance(now, using=using)
        whole.advance(now, using=using)

    assert cut.at(now, using=False) == pytest.approx(whole.at(now, using=False))
    assert 0 <= whole.at(now, using=False) <= 1


def test_a_use_accounted_late_counts_as_if_in_time() -> None:
    late, in_time = DecayedAverage(0.3, 0), DecayedAverage(0.3, 0)
    late.advance(SECOND, using=False)
    late.add(200 * MS, 500 * MS)
    in_time.advance(200 * MS, using=False)
    in_time.advance(500 * MS, using=True)
    in_time.advance(SECOND, using=False)

    assert late.at(SECOND, using=False) == pytest.approx(in_time.at(SECOND, using=False))


def test_an_allowance_keeps_what_waiting_for_others_left_but_not_for_ever() -> None:
    allowance = Allowance(HALF, 100 * MS, 0)
    allowance.advance(100 * MS, using=False)
    assert allowance.runs_out_after() == 200 * MS
    allowance.advance(3600 * SECOND, using=False)
    assert allowance.runs_out_after() == 400 * MS
