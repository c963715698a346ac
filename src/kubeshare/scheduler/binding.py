"""Binds a scheduled requester, or marks it unschedulable or invalid.

A program that is killed after it reserved shares and before it wrote the decision finds the
shares again, and resumes from there if they still match the demand.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kubeshare.api.holder_codec import are_shares_of
from kubeshare.api.predicates.alternatives import STUCK_REASONS, StuckDemand, fit_elsewhere
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.unschedulable import UnschedulableQueue
from kubeshare.api.state.vgpu_store import StaleDecisionError
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU
from kubeshare.api.vgpu_readiness import Blocker, failure
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.explain import Change
from kubeshare.core.policies import Policy
from kubeshare.kube.client.errors import InvalidError
from kubeshare.kube.controller.controller import RequeueAfter, earliest
from kubeshare.kube.controller.pending import PendingSince
from kubeshare.scheduler.candidate_nodes import CandidateNodes
from kubeshare.scheduler.events import Events
from kubeshare.scheduler.explanations import Explanation, Explanations
from kubeshare.scheduler.metrics import Metrics
from kubeshare.scheduler.requesters.base import Requester, RequesterKey

RELEASING: Final = "its former pod has not been released by the node yet"

TRANSIENT_BLOCKER_SECONDS: Final = 5.0
"""Seconds before a transient blocker is reported in the condition."""
PLACEHOLDER_BIND_SECONDS: Final = 10.0
"""Seconds for kube-scheduler to bind a placeholder, and between two looks for another GPU."""


class BlockedRequester(NamedTuple):
    """A requester whose shares are reserved on vGPUs that are not ready."""

    requester: Requester
    demand: Demand
    blocker: Blocker


class Binder:
    """Carries decisions out.

    Args:
        policy: places demands.
        cluster_state: the vGPUs.
        candidates: the nodes that requesters may run on.
        unschedulable: the requesters to try again when the cluster changes.
        events: reports to people.
        metrics: counts decisions.
    """

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        policy: Policy,
        cluster_state: ClusterState,
        candidates: CandidateNodes,
        *,
        unschedulable: UnschedulableQueue[RequesterKey],
        events: Events,
        metrics: Metrics,
    ) -> None:
        self._policy = policy
        self._cluster_state = cluster_state
        self._pool = cluster_state.pool
        self._candidates = candidates
        self._blocked: PendingSince[RequesterKey] = PendingSince()
        self._unschedulable = unschedulable
        self._explanations = Explanations()
        self._events = events
        self._metrics = metrics

    def forget(self, key: RequesterKey) -> None:
        """Drop the timers of a requester that is gone or no longer blocked."""
        self._blocked.forget(key)
        self._explanations.forget(key)

    async def resume(
        self, requester: Requester, demand: Demand, held: Sequence[VGPU]
    ) -> RequeueAfter | None:
        """Bind a requester to shares that an earlier run reserved, if they match its demand.

        Returns:
            when to reconcile again, if the vGPUs are not ready.

        Raises:
            StaleDecisionError: the shares do not match; they have been released.
            ConflictError: the requester was changed.
        """
        node = held[0].spec.node_name
        if matches_demand(held, demand) and self.still_eligible(requester, demand, node):
            return await self.bind(requester, demand, node, [vgpu.metadata.name for vgpu in held])
        if not await self.awaits_release(requester, demand):
            raise StaleDecisionError(f"{demand.name} asks for something else now")
        await self.mark_unschedulable(requester, Reason.RELEASING, RELEASING)
        return None

    def still_eligible(self, requester: Requester, demand: Demand, node: str) -> bool:
        """Whether the requester may still run on a node."""
        return self._candidates.has(node, requester, demand)

    async def awaits_release(self, requester: Requester, demand: Demand) -> bool:
        """Release shares that do not match; True if only the node can release some of them."""
        # Another leader may have reserved them, and may have written its decision by now.
        live = await self.refresh(requester)
        undecided = live is not None and not live.decided
        return undecided and bool(self._pool.held_by(demand.uid))

    async def bind(
        self,
        requester: Requester,
        demand: Demand,
        node: str,
        devices: Sequence[str],
    ) -> RequeueAfter | None:
        """Write a decision into the requester once its vGPUs are ready.

        Args:
            requester: the object to write.
            demand: its demand, which holds shares of ``devices``.
            node: the node of the GPUs.
            devices: the names of the vGPUs.

        Returns:
            when to reconcile again, if the vGPUs are not ready or the condition is not written.

        Raises:
            StaleDecisionError: its GPU was lost and another one fits, or its vGPU has gone.
            ConflictError: the requester was changed.
            NotFoundError: the requester is gone.
        """
        blocker = requester.blocker(self._pool.held_by(demand.uid))
        if blocker is not None:
            retry = await self.wait_for_vgpus(requester, blocker)
            blocked = BlockedRequester(requester, demand, blocker)
            return earliest(retry, await self.reschedule([blocked]))
        self.forget(requester.key)
        vgpus = self._vgpus(devices)
        try:
            bound = await requester.bind(vgpus)
        except InvalidError as error:
            for vgpu in vgpus:
                await self._pool.release(vgpu.metadata.name, demand.uid)
            await self.reject(requester, f"the {requester.key.kind} is refused", error.message)
            return None
        self._events.bound(bound, node, [vgpu.gpuid for vgpu in vgpus])
        return await bound.confirm()

    def _vgpus(self, names: Sequence[str]) -> list[VGPU]:
        """The vGPUs of these names, in the order of their GPUIDs.

        Raises:
            StaleDecisionError: one of them has gone.
        """
        different = set(names)  # a GPU may have several shares of the demand
        vgpus = [vgpu for name in different if (vgpu := self._pool.get(name)) is not None]
        if len(vgpus) < len(different):
            raise StaleDecisionError(f"one of the vGPUs {', '.join(names)} has gone")
        return sorted(vgpus, key=lambda vgpu: vgpu.gpuid)

    async def wait_for_vgpus(self, requester: Requester, blocker: Blocker) -> RequeueAfter | None:
        """Report what the reserved vGPUs wait for, a transient blocker only after a while.

        Returns:
            when to report it, if that is not now.
        """
        self._unschedulable.add(requester.key, requester.created, blocked=True)
        if blocker.transient and (
            left := self._blocked.remaining(requester.key, TRANSIENT_BLOCKER_SECONDS, requester.uid)
        ):
            return RequeueAfter(left)
        await self.set_condition(requester, blocker.reason, blocker.message)
        return None

    async def reschedule(self, blocked: Sequence[BlockedRequester]) -> RequeueAfter | None:
        """Give up GPUs that were taken by others or failed, if other GPUs fit.

        Args:
            blocked: requesters that can only be bound together.

        Returns:
            when to look again; None if their vGPUs are about to be ready.

        Raises:
            StaleDecisionError: the shares have been released.
        """
        stuck = [each for each in blocked if each.blocker.reason in STUCK_REASONS]
        if not stuck:
            return None
        since = max(self._blocked.since(each.requester.key, each.requester.uid) for each in stuck)
        wait = since + PLACEHOLDER_BIND_SECONDS - asyncio.get_running_loop().time()
        if wait > 0:
            return RequeueAfter(wait)
        demands = [self._stuck_demand(each) for each in stuck]
        if not fit_elsewhere(self._policy, self._cluster_state.ledger(), demands):
            return RequeueAfter(PLACEHOLDER_BIND_SECONDS)
        for each, demand in zip(stuck, demands, strict=True):
            node, why = demand.vgpu.spec.node_name, each.blocker.message
            self._candidates.exclude(each.requester, node, why, gpuid=demand.gpuid)
            self.forget(each.requester.key)
        for each in stuck:
            for vgpu in self._pool.held_by(each.demand.uid):
                await self._pool.release(vgpu.metadata.name, each.demand.uid)
        names = ", ".join(each.vgpu.gpuid for each in demands)
        raise StaleDecisionError(f"{names}: there is no GPU, and there are others")

    def _stuck_demand(self, blocked: BlockedRequester) -> StuckDemand:
        held = self._pool.held_by(blocked.demand.uid)
        vgpu = next((vgpu for vgpu in held if not vgpu.spec.uuid or failure(vgpu)), held[0])
        eligible = self._candidates.of(blocked.requester, blocked.demand)
        return StuckDemand.of(blocked.demand, vgpu, eligible.nodes)

    async def mark_unschedulable(
        self, requester: Requester, reason: Reason, message: str | Explanation
    ) -> RequeueAfter | None:
        """Queue a requester to be tried when the cluster changes, and report why it waits.

        Returns:
            when to report it, if its condition shows an explanation that is not old enough.
        """
        self.await_room(requester)
        return await self.report(requester, reason, message)

    async def report(
        self, requester: Requester, reason: Reason, message: str | Explanation
    ) -> RequeueAfter | None:
        """Report why a requester waits; see :meth:`mark_unschedulable`.

        An explanation is computed only if its condition does not show the reason yet, or shows
        one that is old enough.
        """
        if isinstance(message, str):
            await self.set_condition(requester, reason, message)
            return None
        key, explanations = requester.key, self._explanations
        is_shown = requester.shows(reason)
        if is_shown and (left := explanations.seconds_left(key)):
            return RequeueAfter(left)
        waiting = max(len(self._unschedulable), message.requesters)
        explanations.computed(key, message.ledger, waiting)
        words = message.message()
        if is_shown and not explanations.is_event_due(key):
            await requester.set_condition(reason, _with_note(requester, words))
        elif await self.set_condition(requester, reason, words, message.suggest):
            explanations.reported(key, waiting)
        return None

    def await_room(self, requester: Requester) -> None:
        """Queue a requester to be tried when the cluster changes; its condition stays."""
        # While nobody waits the ledger is not kept up to date, and room that it has not seen taken
        # does not grow when it comes back.
        self._cluster_state.ledger()
        self._unschedulable.add(requester.key, requester.created)

    async def set_condition(
        self,
        requester: Requester,
        reason: Reason,
        message: str,
        suggest: Callable[[], Change | None] | None = None,
    ) -> bool:
        """Set the condition to not scheduled; emit an event if the condition changed.

        Both say if the requester's priority is limited. ``suggest`` finds the change that would
        help. It takes many decisions, so it is called only for a new event.

        Returns:
            whether the condition changed.
        """
        changed = await requester.set_condition(reason, _with_note(requester, message))
        if changed:
            self._events.unschedulable(requester, reason, message, suggest() if suggest else None)
        return changed

    async def reject(self, requester: Requester, field: str, message: str) -> None:
        """Report that a field of the requester is not acceptable."""
        self._metrics.decisions.labels("invalid").inc()
        if await requester.set_condition(Reason.INVALID, f"{field}: {message}"):
            self._events.invalid(requester, field, message)

    async def refresh(self, requester: Requester) -> Requester | None:
        """Read a requester from the API server, and release shares that it does not name."""
        live = await requester.refresh()
        for vgpu in self._pool.held_by(requester.uid):
            if live is None or not (
                live.names(vgpu) or live.is_for_extender or live.may_be_binding
            ):
                await self._pool.release(vgpu.metadata.name, requester.uid)
        return live


def _with_note(requester: Requester, message: str) -> str:
    """The message, and that the requester's priority is limited if it is."""
    note = requester.standing().priority_note
    return f"{message}; {note}" if note else message


def matches_demand(held: Sequence[VGPU], demand: Demand) -> bool:
    """Whether the shares that a demand holds are those that its next decision would reserve."""
    return are_shares_of(held, demand) and all(
        holder.attempt == demand.attempt + 1
        and demand.device_id in ("", vgpu.gpuid)
        and (demand.nodes is None or vgpu.spec.node_name in demand.nodes)
        for vgpu in held
        for holder in vgpu.status.holders
        if holder.demand == demand.uid
    )
