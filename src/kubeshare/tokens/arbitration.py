"""Feeds events to the arbiter and applies its actions to the sessions.

Applying an action may cause another event: a process that does not read its messages is
disconnected, and it may be the last one of its session. So events are queued and handled
one after another, never recursively.
"""

from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from kubeshare.core.token import (
    DECAYED_AVERAGE,
    QUOTA_NS,
    Action,
    Amounts,
    Arbiter,
    Close,
    Extend,
    Measure,
    MemberView,
    Open,
    Shut,
    UnknownMemberError,
    Waits,
    Watch,
)
from kubeshare.tokens.files.grants import Grant
from kubeshare.tokens.session import Session

Event: TypeAlias = Callable[[int], list[Action]]


class Rules(NamedTuple):
    """How tokens are handed out: the quota of grants that set none, and the measure of usage."""

    quota_ns: int = QUOTA_NS
    measure: Measure = DECAYED_AVERAGE


DEFAULT_RULES: Final = Rules()
_UNSET: Final = -1
"""No deadline has been announced since the last tick."""


class Arbitration:
    """The tokens of this machine's GPUs.

    Args:
        rules: how they are handed out.
        clock: ns on CLOCK_MONOTONIC.
        on_deadline: called with the time in ns at which `tick` is due, or None, whenever that
            changes and after each tick.
        on_late: called with the action that follows a drain that did not end in time.
    """

    def __init__(
        self,
        rules: Rules,
        clock: Callable[[], int],
        on_deadline: Callable[[int | None], None],
        on_late: Callable[[Open | Shut], None],
    ) -> None:
        self._arbiter = Arbiter(rules.quota_ns, rules.measure)
        self._clock = clock
        self._on_deadline = on_deadline
        self._deadline: int | None = _UNSET
        self._on_late = on_late
        self._sessions: dict[str, Session] = {}
        self._events: deque[tuple[str | None, Event]] = deque()
        self._is_feeding = False

    def add(self, session: Session) -> None:
        """Add a session as a member, with the counts from before a restart of the daemon."""
        grant = session.grant
        add = partial(self._arbiter.add, quota_ns=grant.quota_ns, tallies=session.tallies())
        self._sessions[session.name] = session
        self._feed(session.name, partial(add, session.name, _shares(grant)))

    def change(self, grant: Grant) -> None:
        """Set the amounts that a member's changed grant allows on the same GPUs."""
        change = partial(self._arbiter.change, quota_ns=grant.quota_ns)
        self._feed(grant.claim, partial(change, grant.claim, _shares(grant)))

    def remove(self, name: str) -> None:
        """Remove the member: its grant has ended."""
        self._feed(name, partial(self._arbiter.remove, name))
        self._feed(name, partial(self._forget, name))

    def on_want(self, session: Session, gpus: Collection[str]) -> None:
        """Handle a launch that waits at a closed gate; the session wants these GPUs together."""
        self._feed(session.name, partial(self._arbiter.want, session.name, gpus=gpus))

    def on_drained(self, session: Session, cell: int, idle_ns: int) -> None:
        """Handle that the GPU finished the session's work at `idle_ns`."""
        self._feed(
            session.name, partial(self._arbiter.drained, session.name, session.gpus[cell], idle_ns)
        )

    def on_busy(self, session: Session, cell: int) -> None:
        """Handle that the session is alive and still drains."""
        self._feed(session.name, partial(self._arbiter.busy, session.name, session.gpus[cell]))

    def on_idle(self, session: Session, cell: int) -> None:
        """Handle that the session holds the token and has nothing queued."""
        self._feed(session.name, partial(self._arbiter.idle, session.name, session.gpus[cell]))

    def on_connected(self, session: Session) -> None:
        """Handle that the session has one more process."""
        self._feed(session.name, partial(self._arbiter.connected, session.name))

    def on_left(self, session: Session, cell: int) -> None:
        """Handle that no process is left of those that the session's drain waited for."""
        self._feed(session.name, partial(self._arbiter.left, session.name, session.gpus[cell]))

    def gone(self, name: str) -> None:
        """Handle that the member has no process any more."""
        self._feed(name, partial(self._arbiter.gone, name))

    def tick(self) -> None:
        """Handle that the last announced deadline has passed."""
        self._deadline = _UNSET
        self._feed(None, self._arbiter.tick)

    def save_tallies(self) -> None:
        """Save the counts of all members up to now, with the turns that go on."""
        self._arbiter.settle(self._clock())
        for session in self._sessions.values():
            for cell in range(len(session.gpus)):
                self._save_tally(session, cell)

    @property
    def waits(self) -> Waits:
        """How long the waits took that have ended."""
        return self._arbiter.waits

    def views(self) -> dict[tuple[str, str], MemberView]:
        """The members' states and counts, by name and GPU."""
        return {(view.name, view.gpu): view for view in self._arbiter.views(self._clock())}

    def _forget(self, name: str, _now: int) -> list[Action]:
        del self._sessions[name]
        return []

    def _feed(self, member: str | None, event: Event) -> None:
        """Queue an event; it is skipped if its member is removed before its turn."""
        self._events.append((member, event))
        if self._is_feeding:
            return
        self._is_feeding = True
        try:
            while self._events:
                member, event = self._events.popleft()
                if member is None or member in self._sessions:
                    for action in event(self._clock()):
                        self._apply(action)
        finally:
            self._is_feeding = False
        deadline = self._arbiter.deadline()
        if deadline != self._deadline:
            self._deadline = deadline
            self._on_deadline(deadline)

    def _apply(self, action: Action) -> None:
        session = self._sessions[action.member]
        cell = session.cell_of(action.gpu)
        match action:
            case Open(lease_end_ns=end, again=again):
                session.open(cell, end)
                if again:
                    self._on_late(action)
            case Extend(lease_end_ns=end):
                session.extend(cell, end)
                self._save_tally(session, cell)
            case Watch():
                session.watch(cell)
            case Close():
                session.close_gate(cell)
            case Shut(bypassed=bypassed):
                session.shut(cell)
                self._save_tally(session, cell)
                if bypassed:
                    self._on_late(action)

    def _save_tally(self, session: Session, cell: int) -> None:
        """Save the member's counts, unless it is being removed."""
        try:
            tally = self._arbiter.tally(session.name, session.gpus[cell])
        except UnknownMemberError:
            return
        session.save_tally(cell, tally)


def _shares(grant: Grant) -> dict[str, Amounts]:
    return {
        gpu.uuid: (
            gpu.request_micros,
            gpu.limit_micros,
            gpu.limit_alone_micros,
            gpu.latency_sensitive,
        )
        for gpu in grant.gpus
    }
