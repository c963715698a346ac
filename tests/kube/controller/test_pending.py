"""Timers of controllers: when they start, restart and end."""

import asyncio

import pytest

from kubeshare.kube.controller.pending import NotBefore, PendingSince
from kubeshare.simulator.control import run_virtual


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_state_begins_when_it_is_first_asked_for(clock: Clock) -> None:
    pending = PendingSince[str](clock)
    assert "a" not in pending
    assert pending.remaining("a", 10) == 10
    clock.now += 4
    assert pending.since("a") == 100
    assert pending.remaining("a", 10) == 6
    assert pending.remaining("b", 10) == 10


def test_nothing_remains_once_the_state_has_lasted_long_enough(clock: Clock) -> None:
    pending = PendingSince[str](clock)
    pending.since("a")
    clock.now += 10
    assert pending.remaining("a", 10) == 0
    clock.now += 1
    assert pending.remaining("a", 10) == 0


def test_another_object_of_the_same_key_begins_anew(clock: Clock) -> None:
    pending = PendingSince[str](clock)
    pending.since("a", "first")
    clock.now += 8
    assert pending.remaining("a", 10, "first") == 2
    assert pending.remaining("a", 10, "second") == 10
    assert pending.since("a", "second") == 108
    assert len(pending) == 1


def test_a_forgotten_or_restarted_state_begins_anew(clock: Clock) -> None:
    pending = PendingSince[str](clock)
    pending.since("a")
    clock.now += 8
    pending.forget("a")
    pending.forget("a")
    assert "a" not in pending
    assert pending.remaining("a", 10) == 10
    clock.now += 5
    assert pending.restart("a") == 113
    assert pending.remaining("a", 10) == 10


def test_only_retained_keys_stay(clock: Clock) -> None:
    pending = PendingSince[str](clock)
    for key in "abc":
        pending.since(key)
    clock.now += 1
    pending.retain("bx")
    assert list(pending) == ["b"]
    assert pending.since("b") == 100


def test_keys_may_be_forgotten_while_they_are_iterated(clock: Clock) -> None:
    pending = PendingSince[str](clock)
    for key in "abc":
        pending.since(key)
    for key in pending:
        pending.forget(key)
    assert not len(pending)


def test_an_attempt_is_allowed_unless_it_was_delayed(clock: Clock) -> None:
    waits = NotBefore[str](clock)
    assert waits.remaining("a") == 0
    waits.delay("a", 4)
    assert waits.remaining("a") == 4
    assert waits.remaining("b") == 0
    clock.now += 3
    assert waits.remaining("a") == 1
    clock.now += 3
    assert waits.remaining("a") == 0


def test_a_later_delay_replaces_an_earlier_one(clock: Clock) -> None:
    waits = NotBefore[str](clock)
    waits.delay("a", 4)
    waits.delay("a", 2)
    assert waits.remaining("a") == 2
    waits.forget("a")
    waits.forget("a")
    assert waits.remaining("a") == 0


def test_by_default_the_clock_is_the_event_loops() -> None:
    async def main() -> None:
        pending, waits = PendingSince[str](), NotBefore[str]()
        pending.since("a")
        waits.delay("a", 5)
        await asyncio.sleep(2)
        assert pending.remaining("a", 5) == pytest.approx(3)
        assert waits.remaining("a") == pytest.approx(3)

    run_virtual(main())
