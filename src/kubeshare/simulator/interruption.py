"""An interruption from the keyboard, between two events of a simulation."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def stopped_by_interruption(stop: Callable[[], None]) -> Iterator[None]:
    """Within, the first interruption from the keyboard calls ``stop``; the next one raises.

    KeyboardInterrupt may be raised anywhere, also in the middle of a change of the ledger, which
    then cannot be undone. Only the main thread hears of signals: elsewhere nothing changes.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return

    def handle(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        stop()

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
