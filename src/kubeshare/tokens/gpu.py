"""One GPU: feeds its arbiter and carries out what the arbiter says on the claims' pages.

Carrying out an action may itself bring an event about (a process does not read
what it is told and is dropped, and with it the last of its claim), so events
are fed one after another, never within each other.
"""

from collections import deque
from collections.abc import Callable

from kubeshare.core.token import Action, Arbiter, Close, Extend, MemberView, Open, Shut, Watch
from kubeshare.tokens.claim import Claim

Event = Callable[[int], list[Action]]


class Gpu:
    """The token of one GPU.

    Args:
        quota_ns: the longest time between two decisions.
        clock: ns on CLOCK_MONOTONIC.
        on_bypass: told the name of a member that did not drain in time.
    """

    def __init__(
        self, quota_ns: int, clock: Callable[[], int], on_bypass: Callable[[str], None]
    ) -> None:
        self._arbiter = Arbiter(quota_ns)
        self._clock = clock
        self._on_bypass = on_bypass
        self._members: dict[str, tuple[Claim, int]] = {}  # name -> claim and its cell
        self._events: deque[Event] = deque()
        self._is_feeding = False

    @property
    def is_empty(self) -> bool:
        """Whether it has no member."""
        return not self._members

    def deadline(self) -> int | None:
        """When `tick` is due, in ns; None: not at all."""
        return self._arbiter.deadline()

    def add(self, claim: Claim, cell: int) -> None:
        """A new member: this cell of the claim."""
        part, quota_ns = claim.grant.gpus[cell], claim.grant.quota_ns
        self._members[claim.name] = (claim, cell)
        self._feed(
            lambda now: self._arbiter.add(
                claim.name, part.request, part.limit, now, quota_ns=quota_ns
            )
        )

    def remove(self, name: str) -> None:
        """The member's grant is over."""
        self._feed_about(name, lambda now: self._arbiter.remove(name, now))
        self._feed_about(name, lambda _: self._forget(name))

    def want(self, name: str) -> None:
        """A launch of the member waits."""
        self._feed_about(name, lambda now: self._arbiter.want(name, now))

    def idle(self, name: str) -> None:
        """The member holds the token and has nothing queued."""
        self._feed_about(name, lambda now: self._arbiter.idle(name, now))

    def drained(self, name: str, idle_ns: int) -> None:
        """The GPU was done with the member at `idle_ns`."""
        self._feed_about(name, lambda now: self._arbiter.drained(name, idle_ns, now))

    def gone(self, name: str) -> None:
        """No process of the member is left."""
        self._feed_about(name, lambda now: self._arbiter.gone(name, now))

    def tick(self) -> None:
        """Time has passed."""
        self._feed(self._arbiter.tick)

    def views(self) -> dict[str, MemberView]:
        """What the members hold and got, by name."""
        return {view.name: view for view in self._arbiter.views(self._clock())}

    def _forget(self, name: str) -> list[Action]:
        del self._members[name]
        return []

    def _feed_about(self, name: str, event: Event) -> None:
        """Feed an event unless the member has been removed when its turn comes."""
        self._feed(lambda now: event(now) if name in self._members else [])

    def _feed(self, event: Event) -> None:
        self._events.append(event)
        if self._is_feeding:
            return
        self._is_feeding = True
        try:
            while self._events:
                for action in self._events.popleft()(self._clock()):
                    self._carry_out(action)
        finally:
            self._is_feeding = False

    def _carry_out(self, action: Action) -> None:
        claim, cell = self._members[action.member]
        match action:
            case Open(lease_end_ns=end):
                claim.open(cell, end)
            case Extend(lease_end_ns=end):
                claim.extend(cell, end)
            case Watch():
                claim.watch(cell)
            case Close():
                claim.close_gate(cell)
            case Shut(bypassed=bypassed):
                claim.shut(cell)
                if bypassed:
                    self._on_bypass(action.member)
