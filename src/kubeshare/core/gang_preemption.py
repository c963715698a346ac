"""Preemption for a gang, in short steps.

Each member in turn gets the cheapest set that lets it fit beside those before it. Then holders
that need not leave are taken out again, those of the highest priority first: without any one of
the rest the gang would not start. If the members have to be near each other, this is done in each
of some places where they would fit without the holders, and the cheapest set is taken.

All is tried on the ledger itself, which others read between two steps. So each step undoes what it
did, and the next one does it again as decided. If the ledger changes between two steps, what holds
no more is decided anew: the answer is then one that was right for some member when it was decided.
"""

from collections.abc import Callable, Collection, Container, Generator, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.explain import Change, leave_clauses
from kubeshare.core.errors import LedgerError
from kubeshare.core.gang import GangPlacement, Nearness, fitting_scopes, placements
from kubeshare.core.gang.scopes import Scope
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy
from kubeshare.core.preemption import Preemption, cheapest_preemption

SCOPES: Final = 8
"""The places that are compared for a gang whose members have to be near each other."""
DECIDED_AT_ONCE: Final = 128
"""Members that are placed in a step, beside those of earlier steps that are placed again."""
LOOKED_AT_ONCE: Final = 512
"""GPUs that are looked at in a step for holders to evict; for one member, all are."""

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""A search that can be paused after each step, and returns its answer at the end."""


def finish(steps: Steps[T]) -> T:
    """The answer of a search that is not paused."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            answer: T = end.value
            return answer


def preempt_in_steps(  # noqa: PLR0913 - all are inputs of one question
    policy: Policy,
    ledger: Ledger,
    members: Sequence[Demand],
    *,
    needed: int,
    priority: int,
    preemptible: Mapping[str, int],
    near: Nearness | None = None,
) -> Steps[Preemption | None]:
    """Holders whose eviction lets enough members of a gang fit.

    Args:
        policy: decides whether a member fits.
        ledger: unchanged after each step.
        members: those that are not placed, and do not fit now.
        needed: how many of them have to fit.
        priority: the priority of the gang.
        preemptible: as in :func:`kubeshare.core.preemption.cheapest_preemption`.
        near: how near each other the members must be.

    Returns:
        None if no such set was found.
    """
    lower = {uid: value for uid, value in preemptible.items() if value < priority}
    if near is None or not near.binds:
        return (yield from _Search(policy, ledger, members, needed=needed, lower=lower).run())
    if not lower:
        return None
    scopes: list[Scope] = []
    looking = fitting_scopes(policy, ledger, members, needed, near)
    for scope in _without(ledger, lower, looking):
        scopes += [scope] if scope else []
        if len(scopes) == SCOPES:
            break
        yield
    sets: list[Preemption] = []
    for scope in scopes:
        inside = [scope.narrow(each) for each in members]
        search = _Search(policy, ledger, inside, needed=needed, lower=lower, scope=scope)
        chosen = yield from search.run()
        sets += [chosen] if chosen else []
    return min(sets, key=lambda each: (each.priority, len(each.leave), each.leave), default=None)


def cheapest_for_gang(  # noqa: PLR0913 - as above
    policy: Policy,
    ledger: Ledger,
    members: Sequence[Demand],
    *,
    needed: int,
    priority: int,
    preemptible: Mapping[str, int],
    near: Nearness | None = None,
) -> Preemption | None:
    """The answer of :func:`preempt_in_steps`."""
    return finish(
        preempt_in_steps(
            policy,
            ledger,
            members,
            needed=needed,
            priority=priority,
            preemptible=preemptible,
            near=near,
        )
    )


def change_for_gang(  # noqa: PLR0913 - as above
    policy: Policy,
    ledger: Ledger,
    members: Sequence[Demand],
    *,
    needed: int,
    stay: Container[str] = (),
    near: Nearness | None = None,
) -> Change | None:
    """Holders, of whatever priority, without which enough members of a gang would fit.

    Args:
        policy: decides whether a member fits.
        ledger: unchanged afterwards.
        members: those that are not placed, and do not fit now.
        needed: how many of them have to fit.
        stay: the uids of demands that must stay, such as the gang's own.
        near: how near each other the members must be.

    Returns:
        None if no such set was found.
    """
    holders = {holder.demand for device in ledger.devices.values() for holder in device.holders}
    mates = near.mates if near else ()
    others = dict.fromkeys((uid for uid in holders if uid not in stay and uid not in mates), 0)
    found = cheapest_for_gang(
        policy, ledger, members, needed=needed, priority=1, preemptible=others, near=near
    )
    if found is None:
        return None
    return Change(leave=found.leave, words=leave_clauses(ledger, found.leave))


def placements_without(  # noqa: PLR0913 - as above
    leavers: Collection[str],
    policy: Policy,
    ledger: Ledger,
    members: Sequence[Demand],
    *,
    needed: int,
    near: Nearness | None = None,
) -> Iterator[GangPlacement]:
    """The answers of :func:`kubeshare.core.gang.placements` once some holders have left."""
    yield from _without(ledger, leavers, placements(policy, ledger, members, needed, near))


class _Turn(NamedTuple):
    """A placed member, and the holders that leave for it."""

    leave: tuple[str, ...]
    demand: Demand
    decision: Decision


class _Search:
    """The cheapest set of holders in a scope, or wherever the policy places the members."""

    def __init__(  # noqa: PLR0913 - as above
        self,
        policy: Policy,
        ledger: Ledger,
        members: Sequence[Demand],
        *,
        needed: int,
        lower: Mapping[str, int],
        scope: Scope | None = None,
    ) -> None:
        self._policy = policy
        self._ledger = ledger
        self._members = members
        self._needed = needed
        self._lower = lower
        self._scope = scope
        self._turns: list[_Turn] = []
        self._tried = 0
        self._misses = 0

    def run(self) -> Steps[Preemption | None]:
        """See :func:`preempt_in_steps`."""
        leavers = yield from self._one_by_one()
        for uid in sorted(leavers, key=lambda uid: (-self._lower[uid], uid)):
            if (yield from self._fits_without(leavers - {uid})):
                leavers.discard(uid)
        leavers = set(filter(self._ledger.held_by, leavers))
        if not leavers:
            return None
        return Preemption(
            leave=tuple(sorted(leavers)),
            priority=max(self._lower[uid] for uid in leavers),
            words=leave_clauses(self._ledger, leavers, self._members[0]),
        )

    def _one_by_one(self) -> Steps[set[str]]:
        """The holders evicted for one member after another; none if too few members fit."""
        while not self._decided:
            if self._tried:
                yield
            with self._ledger.what_if():
                self._confine()
                self._step()
        if len(self._turns) < self._needed:
            return set()
        return {uid for turn in self._turns for uid in turn.leave}

    @property
    def _decided(self) -> bool:
        """Whether enough members are placed, or too few can be."""
        spare = len(self._members) - self._needed
        return len(self._turns) >= self._needed or self._misses > spare

    def _step(self) -> None:
        """Place the members of earlier steps again, and decide the next ones."""
        earlier, self._turns = self._turns, []
        for turn in earlier:
            self._again(turn)
        looks = max(1, LOOKED_AT_ONCE // max(1, len(self._ledger.devices)))
        for demand in self._members[self._tried : self._tried + DECIDED_AT_ONCE]:
            looks -= self._decide(demand)
            self._tried += 1
            if not looks or self._decided:
                break

    def _again(self, turn: _Turn) -> None:
        _release(self._ledger, turn.leave)
        try:
            commit(self._ledger, turn.demand, turn.decision)
        except LedgerError:  # the ledger has changed since
            self._decide(turn.demand, turn.leave)
        else:
            self._turns.append(turn)

    def _decide(self, demand: Demand, leave: tuple[str, ...] = ()) -> bool:
        """Place a member; whether holders to evict were looked for."""
        decision = self._policy(self._ledger, demand)
        looked = decision.outcome != "bound"
        if looked:
            # All in the mapping are of a lower priority.
            above = max(self._lower.values(), default=0) + 1
            found = cheapest_preemption(
                self._policy, self._ledger, demand, priority=above, preemptible=self._lower
            )
            if found is None:
                self._misses += 1
                return looked
            _release(self._ledger, found.leave)
            leave += found.leave
            decision = self._policy(self._ledger, demand)
        commit(self._ledger, demand, decision)
        self._turns.append(_Turn(leave, demand, decision))
        return looked

    def _fits_without(self, leavers: Collection[str]) -> Steps[bool]:
        tried = placements(self._policy, self._ledger, self._members, self._needed)
        for placement in _without(self._ledger, leavers, tried, self._confine):
            if placement.whole:
                return True
            yield
        return False

    def _confine(self) -> None:
        if self._scope is not None:
            self._scope.confine(self._ledger)


def _without(
    ledger: Ledger,
    leavers: Collection[str],
    steps: Iterator[T],
    prepare: Callable[[], object] = lambda: None,
) -> Iterator[T]:
    """What each step of a search finds once some holders have left."""
    while True:
        with ledger.what_if():
            prepare()
            _release(ledger, leavers)
            try:
                found = next(steps)
            except StopIteration:
                return
        yield found


def _release(ledger: Ledger, uids: Collection[str]) -> None:
    """Release those that still hold something."""
    for uid in filter(ledger.held_by, uids):
        ledger.release(uid)
