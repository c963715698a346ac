"""How use is measured, and how requests and limits are kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.token_simulation import MS, SECOND
from kubeshare.core.token.entitlement import Allowance
from kubeshare.core.token.usage import DecayedAverage

HALF = 500_000
MICROS = 1_000_000


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
