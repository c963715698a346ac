"""Feeds the arbiter, and carries out what it says on the claims' pages.

Carrying out an action may itself bring an event about (a process does not read
what it is told and is dropped, and with it the last of its claim), so events
are fed one after another, never within each other.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import Final, NamedTuple

from kubeshare.core.token import (
    DECAYED_AVERAGE,
    QUOTA_NS,
    Action,
    Arbiter,
    Close,
    Extend,
    Measure,
    MemberView,
    Open,
    Shut,
    UnknownMemberError,
    Watch,
)
from kubeshare.tokens.files.grants import Grant
from kubeshare.tokens.session import Session

Event = Callable[[int], list[Action]]


class Rules(NamedTuple):
    """By what the tokens are handed out: the quota of grants without their own, the measure."""

    quota_ns: int = QUOTA_NS
    measure: Measure = DECAYED_AVERAGE


DEFAULT_RULES: Final = Rules()
_NONE_TOLD: Final = -1


class Arbitration:
    """The tokens of this machine's GPUs.

    Args:
        rules: by what they are handed out.
        clock: ns on CLOCK_MONOTONIC.
        on_deadline: told when `tick` is due in ns, None for not at all, when that has changed
            and after each tick.
        on_late: told of a drain that did not end in time, what was done about it.
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
        self._deadline: int | None = _NONE_TOLD
        self._on_late = on_late
        self._claims: dict[str, Session] = {}
        self._events: deque[tuple[str | None, Event]] = deque()
        self._is_feeding = False

    def add(self, claim: Session) -> None:
        """A new member; what was counted of it before is counted on."""
        grant = claim.grant
        add = partial(self._arbiter.add, quota_ns=grant.quota_ns, tallies=claim.tallies())
        self._claims[claim.name] = claim
        self._feed(claim.name, partial(add, claim.name, _parts(grant)))

    def change(self, grant: Grant) -> None:
        """A member's grant says other bounds; its GPUs are the same."""
        change = partial(self._arbiter.change, quota_ns=grant.quota_ns)
        self._feed(grant.claim, partial(change, grant.claim, _parts(grant)))

    def remove(self, name: str) -> None:
        """The member's grant is over."""
        self._feed(name, partial(self._arbiter.remove, name))
        self._feed(name, partial(self._forget, name))

    def want(self, name: str, gpus: Collection[str]) -> None:
        """A launch of the member waits; it wants these GPUs together."""
        self._feed(name, partial(self._arbiter.want, name, gpus=gpus))

    def idle(self, name: str, gpu: str) -> None:
        """The member holds the token and has nothing queued."""
        self._feed(name, partial(self._arbiter.idle, name, gpu))

    def drained(self, name: str, gpu: str, idle_ns: int) -> None:
        """The GPU was done with the member at `idle_ns`."""
        self._feed(name, partial(self._arbiter.drained, name, gpu, idle_ns))

    def busy(self, name: str, gpu: str) -> None:
        """The member drains, and says that it lives."""
        self._feed(name, partial(self._arbiter.busy, name, gpu))

    def gone(self, name: str) -> None:
        """No process of the member is left."""
        self._feed(name, partial(self._arbiter.gone, name))

    def tick(self) -> None:
        """The deadline that was told last has come."""
        self._deadline = _NONE_TOLD
        self._feed(None, self._arbiter.tick)

    def views(self) -> dict[tuple[str, str], MemberView]:
        """What the members hold and got, by name and GPU."""
        return {(view.name, view.gpu): view for view in self._arbiter.views(self._clock())}

    def _forget(self, name: str, _now: int) -> list[Action]:
        del self._claims[name]
        return []

    def _feed(self, about: str | None, event: Event) -> None:
        """Feed an event, unless the member that it is about has been removed by then."""
        self._events.append((about, event))
        if self._is_feeding:
            return
        self._is_feeding = True
        try:
            while self._events:
                about, event = self._events.popleft()
                if about is None or about in self._claims:
                    for action in event(self._clock()):
                        self._binder(action)
        finally:
            self._is_feeding = False
        deadline = self._arbiter.deadline()
        if deadline != self._deadline:
            self._deadline = deadline
            self._on_deadline(deadline)

    def _binder(self, action: Action) -> None:
        claim = self._claims[action.member]
        cell = claim.cell_of(action.gpu)
        match action:
            case Open(lease_end_ns=end, again=again):
                claim.open(cell, end)
                if again:
                    self._on_late(action)
            case Extend(lease_end_ns=end):
                claim.extend(cell, end)
                self._keep(claim, cell)
            case Watch():
                claim.watch(cell)
            case Close():
                claim.close_gate(cell)
            case Shut(bypassed=bypassed):
                claim.shut(cell)
                self._keep(claim, cell)
                if bypassed:
                    self._on_late(action)

    def _keep(self, claim: Session, cell: int) -> None:
        """Write down what is counted, unless the member is being removed."""
        with contextlib.suppress(UnknownMemberError):
            claim.keep(cell, self._arbiter.tally(claim.name, claim.grant.gpus[cell].uuid))


def _parts(grant: Grant) -> dict[str, tuple[int, int]]:
    return {gpu.uuid: (gpu.request_micros, gpu.limit_micros) for gpu in grant.gpus}
