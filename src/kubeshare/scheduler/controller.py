"""Reconciles requesters: schedules each one and binds it.

Decisions are made one at a time, or for several queued requesters at once (see ``batch``), and each
sees the shares that the one before reserved. So two demands of 0.6 are never placed on one GPU,
and no write is refused for that reason. Binding takes two more writes, which run in the background
while the next decision is made.

If a write is refused all the same, another writer changed the cluster: the state is read again
and the decision is made again, a bounded number of times.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.api.state.unschedulable import UnschedulableQueue
from kubeshare.api.state.vgpu_store import StaleDecisionError
from kubeshare.api.types.reasons import Reason
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.messages import explain
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.gang import near_to
from kubeshare.core.policies.guard import failure
from kubeshare.core.quota.rows import FIELDS
from kubeshare.kube.client.errors import ConflictError, NotFoundError
from kubeshare.kube.controller.controller import InBackground, Outcome, RequeueAfter, earliest
from kubeshare.scheduler.batch import MAX_BATCH, BatchScheduler
from kubeshare.scheduler.context import SchedulingContext
from kubeshare.scheduler.explanations import Explanation
from kubeshare.scheduler.gang.scheduling import GangScheduler
from kubeshare.scheduler.metrics import Metrics
from kubeshare.scheduler.preemption.preemption import RoomRequest
from kubeshare.scheduler.requesters.base import Requester, RequesterKey
from kubeshare.scheduler.scheduling import (
    decide,
    explain_pending,
    helpful_change,
    restrict_nodes,
)

MAX_ATTEMPTS: Final = 5
"""Decisions for one requester in a row before it goes back to the queue."""

Bind: TypeAlias = Callable[[], Awaitable[RequeueAfter | None]]


class Scheduler:
    """Schedules requesters.

    Args:
        context: the collaborators of a decision.
        gangs: schedules gangs.
        unschedulable: the requesters to try again when the cluster changes.
        metrics: counts decisions.
        upcoming: returns so many of the requesters that are reconciled next.
    """

    def __init__(
        self,
        context: SchedulingContext,
        gangs: GangScheduler,
        unschedulable: UnschedulableQueue[RequesterKey],
        metrics: Metrics,
        upcoming: Callable[[int], Sequence[RequesterKey]],
    ) -> None:
        self._context = context
        self._gangs = gangs
        self._batches = BatchScheduler(context, metrics, upcoming)
        self._unschedulable = unschedulable
        self._metrics = metrics

    async def reconcile(self, key: RequesterKey) -> Outcome:
        """Schedule one requester, if it is not scheduled."""
        with self._unschedulable.retrying(key):
            for _ in range(MAX_ATTEMPTS):
                requester = self._context.kinds[key.kind].get(key.key)
                if requester is None:
                    self._context.binder.forget(key)
                    self._context.nominations.remove(str(key))
                    self._gangs.forget_gone(key)
                    return None
                try:
                    return await self._reconcile_once(requester)
                except StaleDecisionError:
                    self._metrics.decisions.labels("stale").inc()
                except (ConflictError, NotFoundError):
                    await self._context.binder.refresh(requester)
            raise ConflictError(f"{key}: others changed the cluster {MAX_ATTEMPTS} times")

    async def _reconcile_once(self, requester: Requester) -> Outcome:
        if requester.finished:
            return None
        try:
            demand = requester.demand()
            if demand is not None:
                self._context.recent.add(demand)
            if demand is not None and not requester.decided:
                if requester.is_for_extender:
                    await requester.leave_to_extender()
                    return None
                return await self._schedule(requester, demand)
        except InvalidValueError as error:
            await self._context.binder.reject(requester, error.field, error.message)
            demand = None
        if demand is not None:
            return await requester.confirm()
        if self._context.pool.held_by(requester.uid):
            # Reserved for a demand that was edited before the decision was written.
            await self._context.binder.refresh(requester)
        return None

    async def _schedule(self, requester: Requester, demand: Demand) -> Outcome:
        retry = await requester.prepare()
        if requester.not_ready:
            if self._context.pool.held_by(demand.uid) and requester.standing().gang is None:
                # Reserved while it was ready: others may have the share until it is again.
                await self._context.binder.refresh(requester)
            await requester.set_condition(Reason.POSTPONED, requester.not_ready)
            return retry
        if outdated := self._context.upgrades.outdated_program(demand):
            await self._context.binder.mark_unschedulable(
                requester, Reason.UPGRADE_IN_PROGRESS, outdated
            )
            return retry
        gang = requester.standing().gang
        await self._context.pool.settle()
        if gang is not None:
            result = await self._gangs.schedule(requester, gang)
            if result is not None:
                return earliest(result.retry, retry)
        elif not self._context.pool.held_by(demand.uid):
            await self._batches.reserve(requester.key, MAX_BATCH)
        held = self._context.pool.held_by(demand.uid)
        if held:
            resume = partial(self._context.binder.resume, requester, demand, held)
            return await self._bind(requester, resume)
        outcome = await self._decide(requester, demand)
        return outcome if isinstance(outcome, InBackground) else earliest(outcome, retry)

    async def _decide(self, requester: Requester, demand: Demand) -> Outcome:
        context = self._context
        eligible = context.candidates.of(requester, demand)
        ledger = context.cluster_state.ledger()
        priority = requester.standing().priority
        now = asyncio.get_running_loop().time()
        near = self._gangs.nearness(requester)
        anyone = near_to(context.policy, near) if near else context.policy
        policy = context.nominations.policy(anyone, [requester.uid], priority, now)
        decision = decide(policy, ledger, demand, eligible)
        failed = failure(decision)
        self._metrics.decisions.labels("failed" if failed else decision.outcome).inc()
        self._batches.note(fits=decision.node is not None)
        if decision.node is not None:
            await context.pool.reserve(demand, decision, demand.attempt + 1)
            context.nominations.remove(str(requester.key))
            node, devices = decision.node, decision.devices
            bind = partial(context.binder.bind, requester, demand, node, devices)
            return await self._bind(requester, bind)
        if failed:
            return await self._wait_for_policy(requester, failed)
        if decision.outcome == "rejected" and not eligible.outdated:
            explanation = Explanation(ledger, partial(explain, ledger, demand, decision))
            renew = await context.binder.mark_unschedulable(
                requester, Reason.NEVER_FITS, explanation
            )
            return earliest(context.candidates.next_retry([requester]), renew)
        message = partial(explain_pending, policy, ledger, demand, eligible, decision)
        suggest = partial(
            helpful_change,
            anyone,
            ledger,
            demand,
            eligible,
            # Whoever may read the requester need not be allowed to read others.
            demand,
        )
        explanation = Explanation(ledger, message, suggest)
        return await self._wait_for_room(requester, demand, decision, eligible, explanation)

    async def _wait_for_policy(self, requester: Requester, failed: str) -> RequeueAfter | None:
        """Report a policy that failed, and try again when the cluster changes.

        Nobody is evicted and no change is suggested: only the policy could say whom, and which.
        The first message stays. A policy may raise other words each time, and a plain pod whose
        condition changes is scheduled again.
        """
        binder = self._context.binder
        if requester.shows(Reason.POLICY_FAILED):
            binder.await_room(requester)
        else:
            await binder.mark_unschedulable(requester, Reason.POLICY_FAILED, failed)
        return self._context.candidates.next_retry([requester])

    async def _wait_for_room(
        self,
        requester: Requester,
        demand: Demand,
        decision: Decision,
        eligible: Eligible,
        explanation: Explanation,
    ) -> RequeueAfter | None:
        """Report a pending decision, and preempt others if that is allowed."""
        context = self._context
        reason = Reason.UPGRADE_IN_PROGRESS if eligible.outdated else Reason.NO_ROOM
        if decision.field in FIELDS:
            reason = Reason.QUOTA
        renew = await context.binder.mark_unschedulable(requester, reason, explanation)
        priority = requester.standing().priority
        request = RoomRequest(
            owner=str(requester.key),
            requesters=[requester],
            demands=[restrict_nodes(demand, eligible)],
            priority=priority,
            near=self._gangs.nearness(requester),
        )
        retry = earliest(
            earliest(renew, context.candidates.next_retry([requester])),
            await context.preemptor.make_room(request),
        )
        now = asyncio.get_running_loop().time()
        reserved = context.nominations.seconds_left([requester.uid], priority, now)
        return earliest(retry, None if reserved is None else RequeueAfter(reserved))

    async def _bind(self, requester: Requester, bind: Bind) -> Outcome:
        """Bind in the background, except for a gang, whose members bind each other."""
        if requester.standing().gang is not None:
            return await bind()
        return InBackground(partial(self._bind_or_refresh, requester, bind))

    async def _bind_or_refresh(self, requester: Requester, bind: Bind) -> RequeueAfter | None:
        try:
            return await bind()
        except StaleDecisionError:
            self._metrics.decisions.labels("stale").inc()
            raise
        except (ConflictError, NotFoundError) as error:
            await self._context.binder.refresh(requester)
            raise ConflictError(str(error)) from error
