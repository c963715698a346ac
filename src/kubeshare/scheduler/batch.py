"""Reserves shares for several requesters, in one write for each vGPU.

Every write of a vGPU costs the API server more the more holders it has, and the next decision waits
for it. So while others are queued, decisions for them are made ahead, each in a ledger that holds
those before it. Then the holders of each vGPU are written together. The requesters are reconciled
one by one afterwards as always, find their shares and are bound to them, as after a restart.

Decisions made ahead end before the first requester that does not fit, has other vGPUs than one, or
belongs to a gang, because what is decided about it may concern those after it. After each write the
others are placed again: the cluster may have changed meanwhile. Then they are also beside holders
that come after them in the queue and share the vGPU that was written. If somebody else is next in
the queue by then, as one of higher priority is, it goes first. If a write is refused, or would have
one holder only, those that are left are decided one by one.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.api.predicates.node_resources import Mates
from kubeshare.api.state.vgpu_store import Reservation, StaleDecisionError
from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError, LedgerError
from kubeshare.kube.client.errors import ApiError
from kubeshare.scheduler.context import SchedulingContext
from kubeshare.scheduler.metrics import Metrics
from kubeshare.scheduler.requesters.base import Requester, RequesterKey
from kubeshare.scheduler.scheduling import decide

MAX_BATCH: Final = 16
"""The most requesters that are decided at once."""


class _Member(NamedTuple):
    requester: Requester
    demand: Demand
    eligible: Eligible


class _Placed(NamedTuple):
    member: _Member
    decision: Decision


class BatchScheduler:
    """Reserves shares for requesters that are queued.

    Args:
        context: the collaborators of a decision.
        metrics: counts decisions.
        upcoming: returns so many of the requesters that are reconciled next.
    """

    def __init__(
        self,
        context: SchedulingContext,
        metrics: Metrics,
        upcoming: Callable[[int], Sequence[RequesterKey]],
    ) -> None:
        self._context = context
        self._metrics = metrics
        self._upcoming = upcoming
        self._fits = True  # the last requester that was decided did fit
        self._alone = 0  # so many requesters are still decided one by one

    def note(self, *, fits: bool) -> None:
        """Note whether a requester that was decided alone fits.

        Where one does not, the next ones may not either: then a batch would only decide twice.
        """
        self._fits = fits

    async def reserve(self, first: RequesterKey, most: int = MAX_BATCH) -> None:
        """Reserve shares for a requester and for those after it that can be decided at once.

        Args:
            first: it is being reconciled.
            most: so many at most.
        """
        keys = [first, *self._upcoming(most - 1)]
        if not self._fits or len(keys) < 2:
            return
        if self._alone:
            self._alone -= 1
            return
        members = await self._members(keys)
        if len(members) < 2:
            return
        await self._context.pool.settle()
        placed = self._place(members)
        self._fits = bool(placed)
        while len(placed) > 1:
            group = [each for each in placed if each.decision.devices == placed[0].decision.devices]
            if len(group) < 2 or not await self._write(group):
                self._alone = len(placed)
                return
            if not set(self._upcoming(1)) <= set(keys):
                return
            written = {each.member.demand.uid for each in group}
            members = [each for each in members if each.demand.uid not in written]
            placed = self._place(members)

    async def _members(self, keys: Iterable[RequesterKey]) -> list[_Member]:
        """The requesters that are to be decided, up to one that has to be decided alone."""
        members: list[_Member] = []
        for key in keys:
            requester = self._context.kinds[key.kind].get(key.key)
            if requester is None or requester.finished or requester.decided:
                continue
            try:
                demand = requester.demand()
                alone = demand is None or requester.standing().gang is not None
            except InvalidValueError:
                continue
            if demand is None or alone or requester.is_for_extender:
                break
            if self._context.pool.held_by(demand.uid):
                continue
            try:
                await requester.prepare()
            except ApiError:
                break  # its own reconciliation reports it
            if requester.not_ready or self._context.upgrades.outdated_program(demand):
                break
            eligible = self._context.candidates.of(requester, demand)
            members.append(_Member(requester, demand, eligible))
            # Many nodes are looked at for each requester, and others have to have their turns.
            await asyncio.sleep(0)
        return members

    def _place(self, members: Iterable[_Member]) -> list[_Placed]:
        """Decide one after the other, up to the first that is not placed on a single vGPU."""
        context, now = self._context, asyncio.get_running_loop().time()
        ledger = context.cluster_state.ledger()
        placed: list[_Placed] = []
        mates = Mates()
        with ledger.what_if():
            for member in members:
                requester, demand, eligible = member
                uids = [requester.uid, *(each.member.requester.uid for each in placed)]
                priority = requester.standing().priority
                policy = context.nominations.policy(context.policy, uids, priority, now)
                nodes = requester.filter_beside(eligible, mates)
                decision = decide(policy, ledger, demand, nodes)
                if len({*decision.devices}) != 1:
                    break
                try:
                    commit(ledger, demand, decision)
                except LedgerError:
                    break  # another program has reserved shares for it meanwhile
                placed.append(_Placed(member, decision))
                requester.place_beside(decision.node or "", mates)
        return placed

    async def _write(self, group: Sequence[_Placed]) -> bool:
        """Reserve shares of one vGPU; False if that is refused.

        A refusal may concern one of them only. It is reported where that one is decided alone.
        """
        reservations = [
            Reservation(member.demand, decision, member.demand.attempt + 1)
            for member, decision in group
        ]
        try:
            await self._context.pool.reserve_all(reservations)
        except StaleDecisionError:
            self._metrics.decisions.labels("stale").inc()
            return False
        except ApiError:
            return False
        for member, decision in group:
            self._metrics.decisions.labels(decision.outcome).inc()
            self._context.nominations.remove(str(member.requester.key))
        return True
