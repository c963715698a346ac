"""A simulation ends between two events when the keyboard interrupts it."""

import signal
from collections.abc import Iterator

import pytest

from kubeshare.simulator.interruption import stopped_by_interruption


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """As on a terminal, also where the tests run in the background of a shell that ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_first_interruption_only_asks_for_the_end() -> None:
    asked: list[str] = []

    with stopped_by_interruption(lambda: asked.append("end")):
        signal.raise_signal(signal.SIGINT)
        asked.append("goes on")

    assert asked == ["end", "goes on"]


def test_the_second_one_interrupts_and_its_handler_is_back_afterwards() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stopped_by_interruption(lambda: None):
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
