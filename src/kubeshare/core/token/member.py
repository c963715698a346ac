"""One member of a GPU's arbiter: what it may, what it used, how it waited."""

import enum

import msgspec

from kubeshare.core.token.usage import SHORTEST_GRANT_NS, TAU_NS, Allowance, DecayedAverage
from kubeshare.core.units import MICROS


class MemberView(msgspec.Struct, frozen=True, kw_only=True):
    """What a member holds and got, for people.

    Attributes:
        request: micros.
        limit: micros.
        share: the decayed average of its use, 0 to 1.
        charged_ns: GPU time charged since it was added.
        waits: how often it waited for the token.
        waited_ns: how long in all, including a wait that is going on.
        longest_wait_ns: the longest one that ended.
        state: `open`, `closing`, `waiting`, `held back` (waiting at its limit), `hung` or `idle`.
    """

    name: str
    request: int
    limit: int
    share: float
    charged_ns: int
    waits: int
    waited_ns: int
    longest_wait_ns: int
    state: str


class Phase(enum.Enum):
    """Of the member's gate."""

    CLOSED = enum.auto()
    OPEN = enum.auto()
    CLOSING = enum.auto()


class Member:
    """One member's part of the state."""

    __slots__ = (
        "allowance",
        "average",
        "bypassed_ns",
        "charged_ns",
        "limit",
        "longest_wait_ns",
        "name",
        "phase",
        "quota_ns",
        "request",
        "since_ns",
        "target",
        "waited_ns",
        "waiting_since_ns",
        "waits",
        "watched",
    )

    def __init__(self, name: str, request: int, limit: int, quota_ns: int, now: int) -> None:
        self.name = name
        self.request = request
        self.limit = limit
        self.quota_ns = quota_ns
        # The average is looked at between grants, at the ends of its swings; a request
        # that were compared bare would be met at the peaks and missed on average.
        fraction = request / MICROS
        self.target = fraction + fraction * (1 - fraction) * quota_ns / TAU_NS
        self.average = DecayedAverage(request / MICROS, now)
        self.allowance = Allowance(limit, quota_ns, now) if limit < MICROS else None
        self.phase = Phase.CLOSED
        self.bypassed_ns: int | None = None  # since when it has not reported
        self.watched = False
        self.since_ns = now  # up to here its use is accounted for
        self.charged_ns = 0
        self.waiting_since_ns: int | None = None
        self.waits = self.waited_ns = self.longest_wait_ns = 0

    def account(self, until: int, *, using: bool) -> None:
        """Account for the time since the last account."""
        if until <= self.since_ns:
            return
        self.average.advance(until, using=using)
        if self.allowance is not None:
            self.allowance.advance(until, using=using)
        if using:
            self.charged_ns += until - self.since_ns
        self.since_ns = until

    def charge(self, idle_ns: int, now: int) -> None:
        """End a use: it lasted until `idle_ns`, believed only within the use itself."""
        self.account(min(idle_ns, now), using=True)
        self.account(now, using=False)

    def charge_late(self, idle_ns: int, now: int) -> None:
        """A bypassed member reports: what it used since then is charged after all."""
        if self.bypassed_ns is None:
            return
        start, self.bypassed_ns = self.bypassed_ns, None
        self.account(now, using=False)
        end = min(idle_ns, now)
        if end > start:
            self.average.add(start, end)
            if self.allowance is not None:
                self.allowance.add(end - start)
            self.charged_ns += end - start

    def start_waiting(self, now: int) -> None:
        """Note the first want of a wait; more of them change nothing."""
        if self.waiting_since_ns is None:
            self.waiting_since_ns = now
            self.waits += 1

    def stop_waiting(self, now: int) -> None:
        """It is served, or does not want any more."""
        if self.waiting_since_ns is not None:
            waited = now - self.waiting_since_ns
            self.waited_ns += waited
            self.longest_wait_ns = max(self.longest_wait_ns, waited)
            self.waiting_since_ns = None

    @property
    def held_back(self) -> bool:
        """Whether it is at its limit."""
        return self.allowance is not None and self.allowance.held_back

    def has_run_out(self, now: int) -> bool:
        """Whether a holder, using the GPU since the last account, is at its limit by now."""
        allowance = self.allowance
        return allowance is not None and now - self.since_ns >= allowance.runs_out_after()

    def rank(self, now: int, *, using: bool) -> tuple[bool, float, str]:
        """The smallest rank is served next: below the request first, then the least used."""
        share = self.average.at(now, using=using)
        below = share - self.target
        return (below >= 0, share if below >= 0 else below, self.name)

    def grant_ns(self) -> int:
        """How long it may run now: the quota, or until it reaches its limit."""
        if self.allowance is None:
            return self.quota_ns
        return max(SHORTEST_GRANT_NS, min(self.quota_ns, self.allowance.runs_out_after()))

    def view(self, now: int) -> MemberView:
        """What it holds and got so far."""
        using = self.phase is not Phase.CLOSED
        waiting = now - self.waiting_since_ns if self.waiting_since_ns is not None else 0
        return MemberView(
            name=self.name,
            request=self.request,
            limit=self.limit,
            share=self.average.at(now, using=using),
            charged_ns=self.charged_ns + (now - self.since_ns if using else 0),
            waits=self.waits,
            waited_ns=self.waited_ns + waiting,
            longest_wait_ns=self.longest_wait_ns,
            state=self._state(),
        )

    def _state(self) -> str:
        if self.phase is not Phase.CLOSED:
            return self.phase.name.lower()
        if self.bypassed_ns is not None:
            return "hung"
        if self.waiting_since_ns is None:
            return "idle"
        return "held back" if self.held_back else "waiting"
