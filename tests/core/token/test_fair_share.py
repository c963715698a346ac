"""Where the token's rules lead when everybody is hungry."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeshare.core.token.fair_share import fair_shares
from kubeshare.core.units import MICROS

A, B, C = (300_000, 600_000), (400_000, 600_000), (300_000, 500_000)


@pytest.mark.parametrize(
    ("asks", "expected"),
    [
        ({"A": A}, {"A": 600_000}),
        ({"A": A, "B": B}, {"A": 500_000, "B": 500_000}),
        ({"A": A, "B": B, "C": C}, {"A": 300_000, "B": 400_000, "C": 300_000}),
        ({}, {}),
        ({"A": (0, MICROS)}, {"A": MICROS}),
    ],
    ids=["A alone", "A and B", "all three", "nobody", "no guarantee, alone"],
)
def test_the_stages_of_figure_6(asks: dict[str, tuple[int, int]], expected: dict[str, int]) -> None:
    assert fair_shares(asks) == expected


def test_more_than_one_gpu_of_requests_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^the requests are more than one GPU$"):
        fair_shares({"A": (600_000, MICROS), "B": (400_001, MICROS)})


def test_a_request_above_its_limit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^a request is above its limit$"):
        fair_shares({"A": (600_000, 500_000)})


asks_that_fit = st.lists(
    st.tuples(st.integers(0, MICROS), st.integers(0, MICROS)).map(lambda pair: tuple(sorted(pair))),
    max_size=12,
).filter(lambda asks: sum(request for request, _ in asks) <= MICROS)


@settings(deadline=None)
@given(asks_that_fit)
def test_requests_are_met_limits_kept_and_nothing_is_left_lying(
    asks: list[tuple[int, int]],
) -> None:
    shares = fair_shares(dict(enumerate(asks)))

    for job, (request, limit) in enumerate(asks):
        assert request <= shares[job] <= limit
    total = sum(shares.values())
    assert total <= MICROS
    everybody_at_limit = all(shares[job] == limit for job, (_, limit) in enumerate(asks))
    assert everybody_at_limit or total > MICROS - len(asks)


@pytest.mark.parametrize("jobs", range(1, 40))
def test_equal_jobs_get_the_same_to_the_last_micro(jobs: int) -> None:
    shares = fair_shares(dict.fromkeys(range(jobs), (0, MICROS)))
    assert set(shares.values()) == {MICROS // jobs}


def test_who_asks_for_nothing_gets_nothing_where_all_is_promised() -> None:
    assert fair_shares({"A": (MICROS, MICROS), "B": (0, MICROS)}) == {"A": MICROS, "B": 0}
