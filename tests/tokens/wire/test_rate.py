"""How many messages a claim may send."""

from itertools import count

import pytest

from kubeshare.tokens.wire.rate import (
    ANSWERS_AT_ONCE,
    ANSWERS_PER_SECOND,
    MESSAGES_AT_ONCE,
    MESSAGES_PER_SECOND,
    SPARE_PER_SECOND,
    Flow,
    Rate,
    Spare,
)

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


def test_of_twice_the_rate_half_is_refused_once_the_burst_is_used_up(rate: Rate) -> None:
    answers = [rate.allows(SECOND_NS + tick * SECOND_NS // 20) for tick in range(140)]
    assert all(answers[:38])
    assert sum(answers[40:]) == 50


def first_pause(flow: Flow, now: int) -> tuple[int, float]:
    """How many messages are read at once until there is a pause, and how long it is."""
    return next((sent, pause) for sent in count() if (pause := flow.pause_after(now)))


def test_a_claim_that_sends_more_than_its_burst_is_paused_ever_longer() -> None:
    flow = Flow(Spare(0), 0)
    assert first_pause(flow, 0) == (MESSAGES_AT_ONCE, 0.05)
    now, pauses = 0, []
    for _ in range(6):
        now += SECOND_NS
        sent, pause = first_pause(flow, now)
        assert sent == MESSAGES_PER_SECOND
        pauses.append(pause)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert first_pause(flow, now + 11 * SECOND_NS) == (MESSAGES_AT_ONCE, 0.05)


def test_of_a_claim_that_floods_no_more_than_500_messages_a_second_are_read() -> None:
    flow, at_once = Flow(Spare(0), 0), 1024
    now, read = 0, 0
    while now < 60 * SECOND_NS:
        sent, pause = first_pause(flow, now)
        read += sent
        assert read <= at_once + 500 * now / SECOND_NS
        now += int(pause * SECOND_NS)
    assert read > 500 * 55, "nor are there fewer"


def test_a_claim_may_send_more_while_no_other_one_does() -> None:
    flow = Flow(Spare(), 0)
    assert first_pause(flow, 0)[0] == MESSAGES_AT_ONCE + SPARE_PER_SECOND
    assert first_pause(flow, SECOND_NS)[0] == MESSAGES_PER_SECOND + SPARE_PER_SECOND


def test_one_that_floods_leaves_the_others_their_parts() -> None:
    spare = Spare()
    hostile, honest = Flow(spare, 0), Flow(spare, 0)
    assert first_pause(hostile, 0)[0] == MESSAGES_AT_ONCE + SPARE_PER_SECOND
    assert first_pause(honest, 0)[0] == MESSAGES_AT_ONCE + SPARE_PER_SECOND // 2
    # It floods on, and the honest one sends all that it may over some seconds.
    sent = 0
    for tick in range(100, 601):
        now = tick * SECOND_NS // 100
        while not hostile.pause_after(now):
            pass
        while not honest.pause_after(now):
            sent += 1
    rate = MESSAGES_PER_SECOND + SPARE_PER_SECOND // 2
    assert abs(sent - 6 * rate) <= 20


def test_all_claims_together_send_no_more_beyond_their_rates_than_one_may() -> None:
    spare = Spare()
    flows = [Flow(spare, 0) for _ in range(10)]
    for flow in flows:
        first_pause(flow, 0)
    sent = 0
    for tick in range(1, 501):
        for flow in flows:
            while not flow.pause_after(tick * SECOND_NS // 100):
                sent += 1
    assert sent <= 5 * (10 * MESSAGES_PER_SECOND + SPARE_PER_SECOND)


def test_who_has_needed_no_more_for_a_second_takes_no_part() -> None:
    spare = Spare()
    once, now = Flow(spare, 0), Flow(spare, 0)
    first_pause(once, 0)
    first_pause(now, SECOND_NS)
    assert first_pause(now, 2 * SECOND_NS)[0] == MESSAGES_PER_SECOND + SPARE_PER_SECOND


def turns_without_pause(flow: Flow, processes: int, turns_per_second: int) -> bool:
    """Whether a minute of turns passes in which each process sends IDLE, DRAINED and WANT."""
    return not any(
        flow.pause_after(turn * SECOND_NS // turns_per_second, is_answer=True)
        for turn in range(60 * turns_per_second)
        for _ in range(3 * processes)
    )


@pytest.mark.parametrize(("processes", "turns_per_second"), [(64, 5), (64, 10), (16, 40)])
def test_the_answers_of_many_processes_need_nothing_of_what_all_claims_have(
    processes: int, turns_per_second: int
) -> None:
    assert turns_without_pause(Flow(Spare(0), 0), processes, turns_per_second)


def test_answers_beyond_their_rate_count_like_all_else() -> None:
    flow = Flow(Spare(0), 0)
    answered = next(sent for sent in count() if flow.pause_after(0, is_answer=True))
    assert answered == ANSWERS_AT_ONCE + MESSAGES_AT_ONCE
    answered = next(sent for sent in count() if flow.pause_after(SECOND_NS, is_answer=True))
    assert answered == ANSWERS_PER_SECOND + MESSAGES_PER_SECOND
