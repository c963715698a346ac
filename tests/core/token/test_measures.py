"""How use is measured, and how requests and limits are kept."""

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.token.simulation import MS, SECOND
from kubeshare.core.token.entitlement import Allowance, Guarantee, paced_grant_ns
from kubeshare.core.token.usage import DecayedAverage, SlidingWindow

HALF = 500_000
MICROS = 1_000_000


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, SECOND), st.booleans()), max_size=30))
def test_the_average_is_the_same_however_time_is_cut(pieces: list[tuple[int, bool]]) -> None:
    now = 0
    whole, cut = DecayedAverage(0.3, 0), DecayedAverage(0.3, 0)
    for elapsed, using in pieces:
        if using:
            cut.use(now, now + elapsed // 3)
            cut.use(now + elapsed // 3, now + elapsed)
            whole.use(now, now + elapsed)
        now += elapsed

    assert cut.at(now) == pytest.approx(whole.at(now))
    assert 0 <= whole.at(now) <= 1


def test_a_use_accounted_late_counts_as_if_in_time() -> None:
    late, in_time = DecayedAverage(0.3, 0), DecayedAverage(0.3, 0)
    for average, uses in ((late, (2, 0)), (in_time, (0, 2))):
        for start in uses:
            average.use(start * 300 * MS, start * 300 * MS + 200 * MS)

    assert late.at(SECOND) == pytest.approx(in_time.at(SECOND))


def test_a_use_that_goes_on_counts() -> None:
    average = DecayedAverage(0.3, 0)
    going_on = average.at(SECOND, 400 * MS)
    average.use(400 * MS, SECOND)

    assert going_on == pytest.approx(average.at(SECOND))


def test_of_a_moment_before_the_last_account_the_average_is_that_of_then() -> None:
    average = DecayedAverage(0, 0)
    average.use(0, 500 * MS)

    assert average.at(100 * MS) == average.at(500 * MS)


def test_an_allowance_keeps_what_waiting_for_others_left_but_not_for_ever() -> None:
    allowance = Allowance(HALF, 100 * MS, 0)
    allowance.advance(100 * MS, using=False)
    assert allowance.runs_out_after() == 200 * MS
    allowance.advance(3600 * SECOND, using=False)
    assert allowance.runs_out_after() == 400 * MS


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, SECOND), st.booleans()), max_size=40))
def test_a_window_knows_exactly_what_was_used_within_it(pieces: list[tuple[int, bool]]) -> None:
    window, now, used = SlidingWindow(2 * SECOND), 0, []
    for elapsed, using in pieces:
        if using:
            used.append((now, now + elapsed))
            window.use(now, now + elapsed)
        now += elapsed

    within = sum(max(0, end - max(start, now - 2 * SECOND)) for start, end in used)
    assert window.at(now) == pytest.approx(within / (2 * SECOND))


def test_a_window_counts_a_use_that_goes_on_and_one_that_is_told_late() -> None:
    window = SlidingWindow(2 * SECOND)
    assert window.at(2 * SECOND, SECOND) == 0.5

    window.use(SECOND, 1_200 * MS)
    window.use(200 * MS, 600 * MS)

    assert window.at(2 * SECOND) == pytest.approx(0.3)
    assert window.at(2_400 * MS) == pytest.approx(0.2)


def test_a_use_that_is_told_piece_by_piece_is_remembered_as_one() -> None:
    window = SlidingWindow()
    window.use(0, MS)
    once = len(pickle.dumps(window))
    for piece in range(1, 1000):
        window.use(piece * MS, (piece + 1) * MS)

    assert window.at(SECOND) == 0.1
    assert len(pickle.dumps(window)) < 2 * once


@pytest.mark.parametrize(
    ("share", "grant_ms"), [(0, 5), (1_000, 5), (20_000, 20), (100_000, 100), (900_000, 100)]
)
def test_small_shares_have_short_grants_so_that_they_come_once_a_second(
    share: int, grant_ms: int
) -> None:
    assert paced_grant_ns(share, 100 * MS) == grant_ms * MS


def test_a_guarantee_falls_behind_while_others_are_served_and_catches_up() -> None:
    guarantee = Guarantee(300_000, 100 * MS, 0)
    guarantee.wait(100 * MS, wanting=True)
    assert guarantee.behind(100 * MS) == 30 * MS * MICROS

    guarantee.use(150 * MS, 50 * MS, MICROS * SECOND)

    assert guarantee.behind(150 * MS) == -5 * MS * MICROS


def test_a_guarantee_loses_nothing_while_the_clock_stands() -> None:
    guarantee = Guarantee(300_000, 100 * MS, 0)
    guarantee.wait(0, wanting=True)

    assert guarantee.behind(0) == 0


def test_who_does_not_want_the_gpu_saves_one_grant_up_at_most() -> None:
    guarantee = Guarantee(300_000, 100 * MS, 0)
    guarantee.wait(60 * SECOND, wanting=False)

    assert guarantee.behind(60 * SECOND) == 100 * MS * MICROS


def test_what_it_is_owed_is_lost_in_pauses_as_fast_as_it_could_have_been_used() -> None:
    guarantee = Guarantee(300_000, 100 * MS, 0)
    guarantee.wait(10 * SECOND, wanting=True)
    guarantee.wait(10 * SECOND + MS, wanting=False)
    assert guarantee.behind(10 * SECOND + MS) == 2_999 * MS * MICROS

    guarantee.wait(60 * SECOND, wanting=False)
    assert guarantee.behind(60 * SECOND) == 100 * MS * MICROS


def test_who_waits_is_owed_a_minute_at_most() -> None:
    guarantee = Guarantee(300_000, 100 * MS, 0)
    guarantee.wait(90 * SECOND, wanting=True)

    assert guarantee.behind(90 * SECOND) == 18 * SECOND * MICROS


def test_use_that_nobody_missed_counts_for_one_grant_at_most() -> None:
    guarantee = Guarantee(300_000, 100 * MS, 0)
    guarantee.use(60 * SECOND, 60 * SECOND, 0)

    assert guarantee.behind(60 * SECOND) == -100 * MS * MICROS


def test_use_that_others_missed_is_a_debt_and_is_paid_back() -> None:
    guarantee = Guarantee(300_000, 100 * MS, 0)
    guarantee.use(2 * SECOND, 2 * SECOND, 1_400 * MS * MICROS)
    assert guarantee.behind(2 * SECOND) == -1_400 * MS * MICROS

    guarantee.use(3 * SECOND, SECOND, 0)

    assert guarantee.behind(3 * SECOND) == -1_100 * MS * MICROS
