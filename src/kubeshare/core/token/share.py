"""One member's share of one GPU: bounds, usage and counters."""

from typing import TYPE_CHECKING, Final

from kubeshare.core.token.entitlement import (
    DEBT_MAX,
    PACE_NS,
    PROMPT_COST_NS,
    Allowance,
    Guarantee,
    paced_grant_ns,
)
from kubeshare.core.token.gpu_token import GpuToken
from kubeshare.core.token.pauses import Pauses
from kubeshare.core.token.share_spec import ShareSpec
from kubeshare.core.token.tally import Tally
from kubeshare.core.token.usage import Measure, SlidingWindow
from kubeshare.core.units import MICROS

if TYPE_CHECKING:
    from kubeshare.core.token.turn import Turn

Precedence = tuple[int, float]
"""The order of the shares of a GPU, the smallest served next: `OVERDUE`, `BEHIND`, `SERVED` or
`INDEBTED`, then by how much."""

OVERDUE, BEHIND, SERVED, INDEBTED = 0, 1, 2, 3

_EXCUSES_MAX = 8
"""So often in a row a member is excused; honest collectives need it up to four times."""

_OVERTIME_MAX_NS = 16_000_000_000
"""So much of what a bypassed member used while it waited counts: as long as a drain that waits for
nothing may take."""

_PAYS_FOR_NS = 80_000_000_000
"""A holder is waited for as long as its request of so much time lasts, whatever others miss: .2
pay for the longest drain."""

_MISSED_MAX_NS = 16_000_000_000
"""And longer, if those that wait miss no more than this of their requests, all together: what they
miss in one longest drain."""

ASKS_AGAIN_NS: Final = 300_000
"""Who asks for the GPU so soon after its turn loses nothing that it is owed by the pause."""

_OF_PAUSES = 5
"""Beside others, pauses that nobody pays for are a fifth of a member's request at most."""

_OVERTIME_DEBT = -PACE_NS * MICROS // 2
"""Who is further behind others for such use is served last, in millionths of a ns; honest
collectives owe less."""

_LEAST_REPAID = MICROS // 100
"""So much of such a debt at least is paid back each ns, whatever the request: without one it would
be served last for ever."""


class MemberShare:
    """A member's share of one GPU.

    Args:
        member: its name.
        token: of the GPU.
        spec: what it may.
        measure: how use is measured.
        now: ns.

    Attributes:
        usage: the measure that shares are compared by.
        recent: usage in the last seconds, for display.
        allowance: what is left of its present limit; None without one.
        waits: whether its member waits for this GPU.
        since_ns: its use is accounted for up to this time.
        closed_ns: when its gate last went to CLOSING.
        last_drain_ns: how long its last drain took.
        idle_ns: when the holder reported that it is idle; None if it has not.
        owes_report: whether a turn of it ended without a report that its work had, and no later
            one had such a report.
        reporter_left: whether all who could report that have disconnected; then it is not charged.
        kept_out: whether it waits, and its member is at its limit on another GPU only.
        excuses: how often in a row it was excused.
        bypasses: how many turns in a row ended without a report, in time or later.
        tally: its counters.
    """

    __slots__ = (
        "_account",
        "_guarantee",
        "_has_run_over",
        "_is_alone",
        "_is_excused",
        "_overtime_left_ns",
        "_paid_ns",
        "_pauses",
        "_prompt",
        "allowance",
        "bypasses",
        "closed_ns",
        "excuses",
        "idle_ns",
        "kept_out",
        "last_drain_ns",
        "member",
        "owes_report",
        "recent",
        "reporter_left",
        "since_ns",
        "spec",
        "tally",
        "token",
        "usage",
        "waits",
    )

    def __init__(
        self, member: str, token: GpuToken, spec: ShareSpec, measure: Measure, now: int
    ) -> None:
        self.member = member
        self.token = token
        self.spec = spec
        self.usage = measure.usage(spec.request_micros, now)
        self.recent = SlidingWindow()
        self._guarantee: Guarantee | None = None
        self._prompt: Guarantee | None = None
        if measure.exact_requests:
            self._guarantee = Guarantee(spec.request_micros, spec.quota_ns, token.clock(now))
            self._set_prompt(now)
        self._account = self.allowance = _allowance(spec, now)
        self._is_alone = False
        self.waits = self.kept_out = False
        self.since_ns = now
        self.closed_ns = now - PACE_NS
        self.last_drain_ns = 0
        self.idle_ns: int | None = None
        self.owes_report = self.reporter_left = False
        self._is_excused = self._has_run_over = False
        self.excuses = self.bypasses = 0
        self._overtime_left_ns = self._paid_ns = 0
        self._pauses = Pauses(now)
        self.tally = Tally()

    @property
    def is_held(self) -> bool:
        """Whether its gate is not closed."""
        return self.token.held is self

    @property
    def is_bypassed(self) -> bool:
        """Whether it may be working though its gate is closed, so it is charged by the clock."""
        return self.owes_report and not self.reporter_left and self.token.held is not self

    @property
    def _is_using(self) -> bool:
        return self.token.held is self or self.is_bypassed

    @property
    def is_excused(self) -> bool:
        """Whether its work may wait for a launch on another GPU, for which it is served next."""
        return self._is_excused and self.is_bypassed

    @property
    def turn(self) -> "Turn | None":
        """The turn in which its member holds this GPU; None if it does not."""
        return self.token.turn if self.token.held is self else None

    @property
    def is_open(self) -> bool:
        """Whether its gate is open."""
        turn = self.turn
        return turn is not None and turn.is_open

    @property
    def has_whole_gpu(self) -> bool:
        """Whether it is the GPU's only share and no limit binds: nobody waits for this GPU."""
        return self._is_alone and self.allowance is None

    @property
    def has_limit_alone(self) -> bool:
        """Whether its limit is larger while it is the only share of the GPU."""
        return self.spec.limit_alone_micros > self.spec.limit_micros

    def change(self, spec: ShareSpec, now: int) -> None:
        """Set another request and limit; what it used, owes and is owed stays."""
        self.settle(now)
        before, self.spec = self.spec, spec
        if _limits(before) != _limits(spec):
            if self._account is None:
                self._account = _allowance(spec, now)
            else:
                self._account.set_quota(spec.quota_ns)
            self._set_limit(now)
        if self._guarantee is not None:
            self._guarantee.change(spec.request_micros, spec.quota_ns)
            self._set_prompt(now)

    def set_alone(self, now: int, *, is_alone: bool) -> None:
        """Hold it to its limit while alone, or to its limit again.

        What it used beyond its limit while alone was taken from no one, so from then on it counts
        nowhere: its request is not behind, its usage is at the limit at most, and its credit
        is that of the limit which was in force. Only the use since its last account counts.
        """
        if is_alone is self._is_alone:
            return
        self._is_alone = is_alone
        if not self.has_limit_alone:
            return
        self.settle(now)
        if not is_alone:
            self.usage.cap(self.spec.limit_micros / MICROS, now)
            if self._guarantee is not None:
                self._guarantee.forgive()
        self._set_limit(now)

    def _set_limit(self, now: int) -> None:
        """Put the limit in force that holds now."""
        limit = self.spec.limit_micros
        if self._is_alone:
            limit = max(limit, self.spec.limit_alone_micros)
        if self._account is not None:
            self._account.change(limit, now, using=self.is_held)
        self.allowance = self._account if limit < MICROS else None

    def _set_prompt(self, now: int) -> None:
        """Begin, or change, the account of how promptly it is served."""
        spec = self.spec
        if not spec.latency_sensitive:
            self._prompt = None
        elif self._prompt is None:
            clock_ns = self.token.clock(now)
            self._prompt = Guarantee(spec.request_micros, spec.quota_ns, clock_ns)
        else:
            self._prompt.change(spec.request_micros, spec.quota_ns)

    def settle(self, now: int) -> None:
        """Account for the time up to now; a use that goes on is accounted for at its end."""
        if self.token.held is not self:
            self.account(now, using=False)

    def refresh(self, now: int) -> None:
        """Bring up to date whether it is held back, and what it owes for use beside others."""
        if self.allowance is not None or self._has_run_over:
            self.settle(now)

    def account(self, until: int, *, using: bool) -> None:
        """Account for the time since the last account; a bypassed share uses all of it."""
        if until <= self.since_ns:
            return
        clock_ns = self.token.clock(until)
        is_using = using or self._is_using
        if is_using:
            self._account_for_use(until, clock_ns)
        elif self._guarantee is not None:
            asks_again = until - self.since_ns <= ASKS_AGAIN_NS
            wanting = not self.kept_out if self.waits else asks_again
            self._guarantee.wait(clock_ns, wanting=wanting)
            if self._has_run_over:
                more = max(0, _LEAST_REPAID - self.spec.request_micros)
                self._guarantee.repay((until - self.since_ns) * more)
                self._has_run_over = self.behind(clock_ns) < _OVERTIME_DEBT
        if not is_using and self._prompt is not None:
            self._prompt.wait(clock_ns, wanting=False)
        if self._account is not None:
            # A limit must not keep it for ever from a launch that its work may wait for.
            at_limit = using or (is_using and not self.waits)
            if is_using and not at_limit and self._overtime_left_ns and self.allowance is not None:
                overtime_ns = min(until - self.since_ns, self._overtime_left_ns)
                self._overtime_left_ns -= overtime_ns
                self._account.run_over(until, overtime_ns)
            else:
                most = self.behind(clock_ns + self.token.to_make_up_ns)
                self._account.advance(until, using=at_limit, bypassed=self.is_bypassed, behind=most)
                if not is_using and self._guarantee is not None and self.allowance is not None:
                    self._guarantee.bound(self._account.credit)
        self.since_ns = until

    def _account_for_use(self, until: int, clock_ns: int) -> None:
        used_ns = until - self.since_ns
        self.usage.use(self.since_ns, until)
        self.recent.use(self.since_ns, until)
        self.tally.charged_ns += used_ns
        if self._guarantee is not None:
            is_spare = self.is_held and not self._guarantee.was_behind
            self._guarantee.use(clock_ns, used_ns, self._owed(until))
            if is_spare:
                self.token.make_up(used_ns)
        if self._prompt is not None:
            self._prompt.use(clock_ns, used_ns, 0)

    def charge(self, idle_ns: int, now: int) -> None:
        """End a use: it lasted until `idle_ns`, believed only within the use itself.

        The time after that is lost to all members, but for what this one has paid.
        """
        self.account(min(idle_ns, now), using=True)
        self._is_excused = False  # one turn for each excuse
        self.token.held = self.token.turn = None
        self.token.lose(max(0, now - self.since_ns - self._paid_ns))
        self._paid_ns = 0
        self.account(now, using=False)

    def believe_pause(self, idle_ns: int, now: int) -> int:
        """When its work ended, of which its processes say that it did at `idle_ns`.

        Nobody misses what a share pauses that is alone: its limit bounds that.
        """
        end = max(idle_ns, self.since_ns)
        paid_ns = min(self._paid_ns, max(0, now - end))
        is_alone = not self.contending(now)
        free = self.spec.limit_micros if is_alone else self.spec.request_micros // _OF_PAUSES
        held_ns = now - self.since_ns
        return self._pauses.believed_end(end + paid_ns, now, free, held_ns) - paid_ns

    def bypass(self, now: int, *, waits_elsewhere: bool) -> None:
        """End a use whose end was not reported; it is charged by the clock until it is.

        Work that may wait for a launch on another GPU is excused: its member is served next, but
        not again and again. What it uses while it waits counts for its limit when the end is
        reported, but not again after each bypass.
        """
        self.charge(now, now)
        self.last_drain_ns = now - self.closed_ns
        if (waits_elsewhere and self.excuses == 0) or self.bypasses == 0:
            self._overtime_left_ns = _OVERTIME_MAX_NS
        self._has_run_over |= waits_elsewhere
        self.owes_report = True
        self.bypasses += 1
        self._is_excused = waits_elsewhere and self.excuses < _EXCUSES_MAX
        self.excuses += self._is_excused

    def end_bypass(self, idle_ns: int, now: int) -> None:
        """End the charge by the clock: the work ended at `idle_ns`."""
        if self.is_bypassed:
            self.account(min(idle_ns, now), using=False)
            self.reported()
            self.settle(now)

    def reported(self) -> None:
        """Nothing is owed any more: the end of its work was reported."""
        if self._account is not None:
            self._account.count_overtime()
        self._overtime_left_ns = 0
        self.owes_report = self.reporter_left = self._is_excused = False
        self.excuses = self.bypasses = 0

    def caught_up(self) -> None:
        """The end of work from before the present turn was reported, perhaps by a liar.

        Processes are believed to be busy again; excuses go on until the turn itself ends so.
        """
        self.owes_report = self.reporter_left = False

    def leave_unreported(self, now: int) -> None:
        """Nobody is left who could report the end of its work; who connects next owes it."""
        self.settle(now)
        self.reporter_left = self.owes_report

    def return_to_report(self, now: int) -> None:
        """Somebody has connected who owes the report; from now on it is charged again."""
        self.settle(now)
        self.reporter_left = False

    @property
    def held_back(self) -> bool:
        """Whether it is at its limit."""
        return self.allowance is not None and self.allowance.held_back

    def has_run_out(self, now: int) -> bool:
        """Whether a holder, using the GPU since the last account, is at its limit by now."""
        allowance = self.allowance
        return allowance is not None and now >= allowance.runs_out_at()

    def precedence(self, now: int) -> Precedence:
        """How far it is below its request, else how much it used (paper, section 4.5)."""
        if self._guarantee is None:
            share = self.usage.at(now, self._using_since(now))
            below = share - self.spec.request_micros / MICROS
            return (BEHIND, below) if below < 0 else (SERVED, share)
        since = self._using_since(now)
        behind = self.behind(now - self.token.lost_ns, now - since if since is not None else 0)
        if behind > 0:
            return BEHIND, -behind
        if self._has_run_over and behind < _OVERTIME_DEBT:
            return INDEBTED, -behind
        return SERVED, self.usage.at(now, since)

    def behind(self, clock_ns: int, used_ns: int = 0) -> int:
        """How far it is below its request, in millionths of a ns; 0 by the paper's measure."""
        return self._guarantee.behind(clock_ns, used_ns) if self._guarantee is not None else 0

    def outstays(self, now: int) -> bool:
        """Whether a holder used more than its request pays for, and others wait for too long.

        One long kernel is paid for later. But many members that each begin one would keep the
        others from their requests all the while.
        """
        debt = -self.behind(self.token.clock(now), now - self.since_ns)
        is_paid_for = debt <= _PAYS_FOR_NS * self.spec.request_micros
        return not is_paid_for and self._missed(now) > _MISSED_MAX_NS * MICROS

    def _missed(self, now: int) -> int:
        """How far waiting others are behind, all together, in millionths of a ns."""
        for share in self._others_waiting(now):
            share.refresh(now)
        return self._owed(now)

    def is_prompt(self, now: int, cost_ns: int = 0) -> bool:
        """Whether it is latency-sensitive, and its request has more than the cost left.

        What it is owed for a long wait is no part of that: it would be served for seconds without
        a pause. So it saves up one grant at most, as if it did not wait.
        """
        if self._prompt is None or self.is_bypassed:
            return False
        since = self._using_since(now)
        used_ns = now - since if since is not None else 0
        clock_ns = self.token.clock(now)
        left = min(self._prompt.behind(clock_ns, used_ns), self.behind(clock_ns, used_ns))
        return left > cost_ns * MICROS

    def pay_for_promptness(self) -> None:
        """Pay for the end of another's lease: for the time that its own turn then wastes."""
        self._paid_ns = PROMPT_COST_NS
        for account in (self._guarantee, self._prompt):
            if account is not None:
                account.pay(PROMPT_COST_NS)

    def charged_now(self, now: int) -> int:
        """The GPU time charged, with a use that goes on, in ns."""
        since = self._using_since(now)
        return self.tally.charged_ns + (now - since if since is not None else 0)

    def usage_now(self, now: int) -> tuple[float, float]:
        """Usage by the measure, and in the last seconds; each from 0 to 1."""
        since = self._using_since(now)
        return self.usage.at(now, since), self.recent.at(now, since)

    def _using_since(self, now: int) -> int | None:
        """The start of a use that goes on and is not accounted for; None without one."""
        return self.since_ns if self._is_using and self.since_ns < now else None

    def contending(self, now: int) -> list[int]:
        """The requests, in micros, of others that want this GPU, or had it recently."""
        return [
            other.spec.request_micros
            for other in self.token.shares.values()
            if other is not self and (other.waits or now - other.closed_ns < PACE_NS)
        ]

    def grant_ns(self, contending: list[int]) -> int:
        """How long it may run now, in ns.

        Args:
            contending: the requests, in micros, of others that want this GPU. With any, a grant
                lasts as long as the least share left to this member lasts in each second.
        """
        request, limit = self.spec.request_micros, self.spec.limit_micros
        quota_ns = self.spec.quota_ns
        if contending:
            left = MICROS - request - sum(contending)
            share = request + max(0, left) // (len(contending) + 1)
            quota_ns = paced_grant_ns(min(share, limit), quota_ns)
        if self.allowance is None:
            return quota_ns
        return min(quota_ns, max(paced_grant_ns(0, quota_ns), self.allowance.runs_out_after()))

    def _owed(self, now: int) -> int:
        """What it can owe beyond one grant, in millionths of a ns.

        A bypassed share takes from whoever holds the GPU, and nobody is behind for that. Any other
        owes what others that wait are behind.

        A gang that waits for another GPU, or is at its limit there, does not count: it could not
        have run earlier.
        """
        if self.is_bypassed:
            return _OVERTIME_MAX_NS * MICROS if self._has_run_over else DEBT_MAX
        clock_ns = self.token.clock(now)
        return sum([max(0, share.behind(clock_ns)) for share in self._others_waiting(now)])

    def _others_waiting(self, now: int) -> list["MemberShare"]:
        booked = self.token.booked if now <= self.token.overdue_ns else None
        return [
            share
            for name, share in self.token.shares.items()
            if share.waits and share is not self and name != booked
            if not share.kept_out and not share.is_bypassed
        ]


def _allowance(spec: ShareSpec, now: int) -> Allowance | None:
    return Allowance(spec.limit_micros, spec.quota_ns, now) if spec.limit_micros < MICROS else None


def _limits(spec: ShareSpec) -> tuple[int, int, int]:
    """All of it that an allowance depends on."""
    return spec.limit_micros, spec.limit_alone_micros, spec.quota_ns
