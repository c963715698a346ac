"""The steps of a decision about one asker, in order.

One decision is made at a time, and the next sees what the last one has taken:
that is what keeps two demands of .6 off the same GPU without a refused write. To tell an
asker of its part takes two writes more, which the next decision need not wait for.

When a write is refused all the same, somebody else has changed something: it is read
again and decided again, a bounded number of times.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

from kubeshare.api.state.unschedulable import UnschedulableQueue
from kubeshare.api.state.vgpu_store import StaleDecisionError
from kubeshare.api.types.reasons import Reason
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.quota import namespace
from kubeshare.kube.client.errors import ConflictError, NotFoundError
from kubeshare.kube.controller.controller import InBackground, Outcome, RequeueAfter, earliest
from kubeshare.scheduler.context import SchedulingContext
from kubeshare.scheduler.gang.scheduling import GangScheduler
from kubeshare.scheduler.metrics import Metrics
from kubeshare.scheduler.preemption.preemption import RoomRequest
from kubeshare.scheduler.requesters.base import Requester, RequesterKey
from kubeshare.scheduler.scheduling import decide, explain, helpful_change, restrict_nodes

ROUNDS: Final = 5
"""How often one asker is decided about again at once before it goes back to the queue."""

Tell: TypeAlias = Callable[[], Awaitable[RequeueAfter | None]]


class Scheduler:
    """Decides about askers.

    Args:
        parts: what decisions are made by and carried out with.
        gangs: places those that start together.
        waiting: where those are noted for which nothing fits.
        metrics: counts.
    """

    def __init__(
        self,
        parts: SchedulingContext,
        gangs: GangScheduler,
        waiting: UnschedulableQueue[RequesterKey],
        metrics: Metrics,
    ) -> None:
        self._parts = parts
        self._gangs = gangs
        self._waiting = waiting
        self._metrics = metrics

    async def reconcile(self, key: RequesterKey) -> Outcome:
        """Decide about one asker, if there is anything to decide."""
        for _ in range(ROUNDS):
            self._waiting.discard(key)
            requester = self._parts.kinds[key.kind].get(key.key)
            if requester is None:
                self._parts.binder.forget(key)
                self._parts.nominations.remove(str(key))
                self._gangs.forget_gone()
                return None
            try:
                return await self._once(requester)
            except StaleDecisionError:
                self._metrics.decisions.labels("stale").inc()
            except (ConflictError, NotFoundError):
                await self._parts.binder.refresh(requester)
        raise ConflictError(f"{key}: others changed the cluster {ROUNDS} times")

    async def _once(self, requester: Requester) -> Outcome:
        if requester.finished:
            return None
        try:
            demand = requester.demand()
            if demand is not None and not requester.decided:
                return await self._undecided(requester, demand)
        except InvalidValueError as error:
            await self._parts.binder.reject(requester, error.field, error.message)
            demand = None
        if demand is not None:
            await requester.confirm()
        elif self._parts.pool.held_by(requester.uid):
            # Taken for what it asked for before it was changed, and not told.
            await self._parts.binder.refresh(requester)
        return None

    async def _undecided(self, requester: Requester, demand: Demand) -> Outcome:
        again = await requester.prepare()
        if requester.not_ready:
            await requester.set_condition(Reason.POSTPONED, requester.not_ready)
            return again
        gang = requester.standing().gang
        await self._parts.pool.settle()
        if gang is not None:
            together = await self._gangs.schedule(requester, gang)
            if together is not None:
                return together.retry
        held = self._parts.pool.held_by(demand.uid)
        if held:
            return await self._tell(
                requester, partial(self._parts.binder.resume, requester, demand, held)
            )
        return await self._decide(requester, demand)

    async def _decide(self, requester: Requester, demand: Demand) -> Outcome:
        where = self._parts.candidates.of(requester)
        ledger = self._parts.cluster_state.ledger()
        owner, priority = str(requester.key), requester.standing().priority
        now = asyncio.get_running_loop().time()
        policy = self._parts.nominations.policy(self._parts.policy, [requester.uid], priority, now)
        decision = decide(policy, ledger, demand, where)
        self._metrics.decisions.labels(decision.outcome).inc()
        if decision.node is not None:
            await self._parts.pool.reserve(demand, decision, demand.attempt + 1)
            self._parts.nominations.remove(owner)
            node, devices, new = decision.node, decision.devices, decision.created
            bind = partial(self._parts.binder.bind, requester, demand, node, devices, new=new)
            return await self._tell(requester, bind)
        if decision.outcome == "rejected":
            await self._parts.binder.mark_unschedulable(
                requester, Reason.NEVER_FITS, explain(decision)
            )
            return self._parts.candidates.next_retry([requester])
        helps = partial(helpful_change, self._parts.policy, ledger, demand, where)
        beyond = decision.field == namespace.FIELD
        reason = Reason.QUOTA if beyond else Reason.NO_ROOM
        await self._parts.binder.mark_unschedulable(requester, reason, explain(decision), helps)
        claim = RoomRequest(
            owner=owner,
            requesters=[requester],
            demands=[restrict_nodes(demand, where)],
            priority=priority,
        )
        again = earliest(
            self._parts.candidates.next_retry([requester]),
            await self._parts.preemptor.make_room(claim),
        )
        kept = self._parts.nominations.seconds_left([requester.uid], priority, now)
        return earliest(again, None if kept is None else RequeueAfter(kept))

    async def _tell(self, requester: Requester, tell: Tell) -> Outcome:
        """Have an asker told of its parts, which the next decision need not wait for."""
        if requester.standing().gang is not None:
            return await tell()  # its mates are told by each other's decisions too
        return InBackground(partial(self._told, requester, tell))

    async def _told(self, requester: Requester, tell: Tell) -> RequeueAfter | None:
        try:
            return await tell()
        except StaleDecisionError:
            self._metrics.decisions.labels("stale").inc()
            raise
        except (ConflictError, NotFoundError) as error:
            await self._parts.binder.refresh(requester)
            raise ConflictError(str(error)) from error
