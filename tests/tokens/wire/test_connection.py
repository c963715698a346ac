"""How many messages a process may send."""

import pytest

from kubeshare.tokens.wire.connection import Rate

SECOND_NS = 1_000_000_000


@pytest.fixture
def rate() -> Rate:
    """Ten a second, twenty at once."""
    return Rate(10, 20, SECOND_NS)


def allowed(rate: Rate, now: int, tried: int = 100) -> int:
    return sum(rate.allows(now) for _ in range(tried))


def test_a_burst_is_allowed_at_once(rate: Rate) -> None:
    assert allowed(rate, SECOND_NS) == 20


def test_who_was_quiet_for_long_saves_up_no_more_than_a_burst(rate: Rate) -> None:
    assert allowed(rate, 1000 * SECOND_NS) == 20


def test_what_is_sent_at_the_rate_is_always_allowed(rate: Rate) -> None:
    assert all(rate.allows(SECOND_NS + tick * SECOND_NS // 10) for tick in range(1000))


def test_twice_the_rate_is_refused_once_the_burst_is_used_up(rate: Rate) -> None:
    answers = [rate.allows(SECOND_NS + tick * SECOND_NS // 20) for tick in range(100)]
    assert all(answers[:39])
    assert not any(answers[40:])
