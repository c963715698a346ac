"""Limits how often a claim may have the daemon do something."""

from typing import Final

MESSAGES_PER_SECOND: Final = 500
"""Of one claim, beyond its answers."""
MESSAGES_AT_ONCE: Final = 1024
"""A HELLO and some more of each of 256 processes."""
ANSWERS_PER_SECOND: Final = 2000
"""Of one claim, to what the daemon asked of its processes: 64 that have ten turns a second answer
about as often, or 16 that pause for some milliseconds forty times a second. 64
processes that drain for long send 1280 BUSY. A process can end its turns as fast as it likes, so
these have a limit too."""
ANSWERS_AT_ONCE: Final = 4096
"""What 256 processes answer when the gates of 16 GPUs close together."""
SPARE_PER_SECOND: Final = 1000
"""Of all claims together, beyond that: a claim of many processes needs more where nobody floods."""

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
_PAUSE_FORGOTTEN_NS: Final = 10_000_000_000
_SPARE_NEEDED_NS: Final = 1_000_000_000
"""For so long after a message beyond its own rate a claim counts as one that needs more."""


class Rate:
    """A token bucket: allows `per_second` events, and `burst` of them at once."""

    __slots__ = ("_at_ns", "_burst", "_left", "per_second")

    def __init__(self, per_second: int, burst: int, now: int) -> None:
        self.per_second = per_second
        self._burst = burst
        self._left = float(burst)
        self._at_ns = now

    def allows(self, now: int, cost: int = 1) -> bool:
        """Count `cost` events at `now` (ns); False, and none counts, if they exceed the rate."""
        left = min(self._burst, self._left + (now - self._at_ns) / 1e9 * self.per_second)
        self._at_ns = now
        allowed = left >= cost
        self._left = left - cost if allowed else left
        return allowed


class Spare:
    """What claims may send together beyond their own rates: those that do, equal parts of it.

    So one that floods takes no more than its part, and nothing of that of others.
    """

    __slots__ = ("_needed_ns", "per_second")

    def __init__(self, per_second: int = SPARE_PER_SECOND) -> None:
        self.per_second = per_second
        self._needed_ns: dict[Flow, int] = {}

    def parts(self, flow: "Flow", now: int) -> int:
        """How many claims need some of it at `now` (ns), among them this one."""
        needed = {other: at for other, at in self._needed_ns.items() if now - at < _SPARE_NEEDED_NS}
        needed[flow] = now
        self._needed_ns = needed
        return len(needed)


class Flow:
    """Limits the messages of one claim, and backs off from one that keeps sending more.

    Args:
        spare: what all claims may send together beyond their own rates.
        now: ns.
    """

    __slots__ = ("_answers", "_own", "_part", "_pause_s", "_paused_ns", "_spare")

    def __init__(self, spare: Spare, now: int) -> None:
        self._answers = Rate(ANSWERS_PER_SECOND, ANSWERS_AT_ONCE, now)
        self._own = Rate(MESSAGES_PER_SECOND, MESSAGES_AT_ONCE, now)
        self._spare = spare
        self._part = Rate(spare.per_second, spare.per_second, now)
        self._pause_s = _FIRST_PAUSE_S
        self._paused_ns = now

    def pause_after(self, now: int, *, is_answer: bool = False) -> float:
        """Count one message; for how many seconds to read no further one, mostly 0.

        An answer to what the daemon asked has a rate of its own, and counts like any other
        message beyond that. The pauses double, up to a second, until the claim has had none for
        ten.
        """
        if is_answer and self._answers.allows(now):
            return 0.0
        # One of n parts: a message takes as much as n would of the whole.
        if self._own.allows(now) or self._part.allows(now, self._spare.parts(self, now)):
            return 0.0
        if now - self._paused_ns > _PAUSE_FORGOTTEN_NS:
            self._pause_s = _FIRST_PAUSE_S
        pause, self._paused_ns = self._pause_s, now
        self._pause_s = min(_LONGEST_PAUSE_S, 2 * pause)
        return pause
