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
from kubeshare.scheduler.context import Context
from kubeshare.scheduler.gang.scheduling import Gangs
from kubeshare.scheduler.metrics import Metrics
from kubeshare.scheduler.preemption.preemption import Claim
from kubeshare.scheduler.requesters.base import Requester, RequesterKey
from kubeshare.scheduler.scheduling import bounded, change_that_helps, decide, explain

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
        parts: Context,
        gangs: Gangs,
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
                self._parts.kept.drop(str(key))
                self._gangs.forget()
                return None
            try:
                return await self._once(requester)
            except StaleDecisionError:
                self._metrics.decisions.labels("stale").inc()
            except (ConflictError, NotFoundError):
                await self._parts.binder.read_again(requester)
        raise ConflictError(f"{key}: others changed the cluster {ROUNDS} times")

    async def _once(self, requester: Requester) -> Outcome:
        if requester.over:
            return None
        try:
            demand = requester.demand()
            if demand is not None and not requester.decided:
                return await self._undecided(requester, demand)
        except InvalidValueError as error:
            await self._parts.binder.refuse(requester, error.field, error.message)
            demand = None
        if demand is not None:
            await requester.confirm()
        elif self._parts.pool.held_by(requester.uid):
            # Taken for what it asked for before it was changed, and not told.
            await self._parts.binder.read_again(requester)
        return None

    async def _undecided(self, requester: Requester, demand: Demand) -> Outcome:
        again = await requester.prepare()
        if requester.postponed:
            await requester.tell(Reason.POSTPONED, requester.postponed)
            return again
        gang = requester.standing().gang
        await self._parts.pool.settle()
        if gang is not None:
            together = await self._gangs.start(requester, gang)
            if together is not None:
                return together.again
        held = self._parts.pool.held_by(demand.uid)
        if held:
            return await self._tell(
                requester, partial(self._parts.binder.take_up, requester, demand, held)
            )
        return await self._decide(requester, demand)

    async def _decide(self, requester: Requester, demand: Demand) -> Outcome:
        where = self._parts.places.of(requester)
        ledger = self._parts.cluster_state.ledger()
        owner, priority = str(requester.key), requester.standing().priority
        now = asyncio.get_running_loop().time()
        policy = self._parts.kept.policy(self._parts.policy, [requester.uid], priority, now)
        decision = decide(policy, ledger, demand, where)
        self._metrics.decisions.labels(decision.outcome).inc()
        if decision.node is not None:
            await self._parts.pool.take(demand, decision, demand.attempt + 1)
            self._parts.kept.drop(owner)
            node, devices, new = decision.node, decision.devices, decision.created
            bind = partial(self._parts.binder.bind, requester, demand, node, devices, new=new)
            return await self._tell(requester, bind)
        if decision.outcome == "rejected":
            await self._parts.binder.wait(requester, Reason.NEVER_FITS, explain(decision))
            return self._parts.places.again([requester])
        helps = partial(change_that_helps, self._parts.policy, ledger, demand, where)
        beyond = decision.field == namespace.FIELD
        reason = Reason.QUOTA if beyond else Reason.NO_ROOM
        await self._parts.binder.wait(requester, reason, explain(decision), helps)
        claim = Claim(
            owner=owner, requesters=[requester], demands=[bounded(demand, where)], priority=priority
        )
        again = earliest(
            self._parts.places.again([requester]), await self._parts.preempt.make_room(claim)
        )
        kept = self._parts.kept.seconds_left([requester.uid], priority, now)
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
            await self._parts.binder.read_again(requester)
            raise ConflictError(str(error)) from error
