"""What follows a decision: the asker is told, or waits, or is refused.

Whoever is cut off between taking a part of a GPU and telling the asker finds the
part again, and goes on from there if it is still right.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kubeshare.api.holder_codec import is_stored
from kubeshare.api.predicates.alternatives import STUCK_REASONS, StuckDemand, fit_elsewhere
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.unschedulable import UnschedulableQueue
from kubeshare.api.state.vgpu_store import StaleDecisionError, holder_of
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU
from kubeshare.api.vgpu_readiness import Blocker, failure
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.explain import Change
from kubeshare.core.policies import Policy
from kubeshare.kube.client.errors import InvalidError
from kubeshare.kube.controller.controller import RequeueAfter, earliest
from kubeshare.scheduler.candidate_nodes import CandidateNodes
from kubeshare.scheduler.events import Events
from kubeshare.scheduler.metrics import Metrics
from kubeshare.scheduler.requesters.base import Requester, RequesterKey

RELEASING = "its former pod has not been released by the node yet"

TRANSIENT_BLOCKER_SECONDS: Final = 5.0
"""Seconds that what is normally over in a moment may last before it is told."""
PLACEHOLDER_BIND_SECONDS: Final = 10.0
"""Seconds that kube-scheduler gets to bind a placeholder, and until others are looked at again."""


class BlockedRequester(NamedTuple):
    """Who has its parts, and they are not there yet."""

    requester: Requester
    demand: Demand
    blocker: Blocker


class Binder:
    """Carries decisions out.

    Args:
        policy: places demands.
        cluster_state: the cluster's GPUs.
        places: the nodes that askers may go to.
        waiting: where those are noted for which nothing fits.
        events: tells people.
        metrics: counts.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        policy: Policy,
        cluster_state: ClusterState,
        places: CandidateNodes,
        *,
        waiting: UnschedulableQueue[RequesterKey],
        events: Events,
        metrics: Metrics,
    ) -> None:
        self._policy = policy
        self._cluster_state = cluster_state
        self._pool = cluster_state.pool
        self._places = places
        self._hindered_since: dict[RequesterKey, tuple[str, float]] = {}  # its uid, loop time
        self._waiting = waiting
        self._events = events
        self._metrics = metrics

    def forget(self, key: RequesterKey) -> None:
        """The asker is gone."""
        self._hindered_since.pop(key, None)

    async def resume(
        self, requester: Requester, demand: Demand, held: Sequence[VGPU]
    ) -> RequeueAfter | None:
        """Go on where an earlier run of this program was cut off, if that is still right.

        Returns:
            when to look again, if it cannot be told yet.

        Raises:
            StaleDecisionError: it is not, and the part has been given back.
            ConflictError: the asker has changed meanwhile.
        """
        if matches_demand(held, demand) and self.still_eligible(requester, held[0].spec.node_name):
            ids = [vgpu.metadata.name for vgpu in held]
            return await self.bind(requester, demand, held[0].spec.node_name, ids)
        if not await self.awaits_release(requester, demand):
            raise StaleDecisionError(f"{demand.name} asks for something else now")
        await self.mark_unschedulable(requester, Reason.RELEASING, RELEASING)
        return None

    def still_eligible(self, requester: Requester, node: str) -> bool:
        """The node has not become one that the asker may not go to meanwhile."""
        return node in self._places.of(requester).nodes

    async def awaits_release(self, requester: Requester, demand: Demand) -> bool:
        """Give back what is held and not right; whether that is the node's to do."""
        # Another leader may have taken it, and may have told the asker meanwhile.
        live = await self.refresh(requester)
        undecided = live is not None and not live.decided
        return undecided and bool(self._pool.held_by(demand.uid))

    async def bind(
        self,
        requester: Requester,
        demand: Demand,
        node: str,
        devices: Sequence[str],
        *,
        new: bool = False,
    ) -> RequeueAfter | None:
        """Tell an asker of the parts that are held for it, as soon as it can be told.

        Args:
            requester: who is told.
            demand: its demand.
            node: of the GPUs.
            devices: the ids of the GPUs.
            new: whether they were made for it.

        Returns:
            when to look again, if it cannot be told yet.

        Raises:
            StaleDecisionError: its GPU is somebody else's, and there is one elsewhere.
            ConflictError: the asker has changed meanwhile.
            NotFoundError: it is gone.
        """
        gpuids = sorted(devices)
        hindrance = requester.blocker(self._pool.held_by(demand.uid))
        if hindrance is not None:
            again = await self.wait_for_vgpus(requester, hindrance)
            late = BlockedRequester(requester, demand, hindrance)
            return earliest(again, await self.reschedule([late]))
        self.forget(requester.key)
        try:
            told = await requester.bind(node, gpuids)
        except InvalidError as error:
            for gpuid in gpuids:
                await self._pool.release(gpuid, demand.uid)
            await self.reject(requester, f"the {requester.key.kind} is refused", error.message)
            return None
        self._events.bound(told, node, gpuids, new=new)
        await told.confirm()
        return None

    async def wait_for_vgpus(self, requester: Requester, hindrance: Blocker) -> RequeueAfter | None:
        """Have an asker wait that has its parts, and they are not there yet.

        Returns:
            when to look again, if that is not worth telling yet.
        """
        self._waiting.add(requester.key, requester.created)
        if hindrance.transient:
            left = (
                self._hindered(requester)
                + TRANSIENT_BLOCKER_SECONDS
                - asyncio.get_running_loop().time()
            )
            if left > 0:
                return RequeueAfter(left)
        await self.set_condition(requester, hindrance.reason, hindrance.message)
        return None

    async def reschedule(self, late: Sequence[BlockedRequester]) -> RequeueAfter | None:
        """Give up GPUs that somebody else has got, or that have failed, where there are others.

        Args:
            late: those that wait for their parts, and can only be told together.

        Returns:
            when to look again; None where theirs are on their way.

        Raises:
            StaleDecisionError: they are given up.
        """
        taken = [each for each in late if each.blocker.reason in STUCK_REASONS]
        if not taken:
            return None
        since = max(self._hindered(each.requester) for each in taken)
        wait = since + PLACEHOLDER_BIND_SECONDS - asyncio.get_running_loop().time()
        if wait > 0:
            return RequeueAfter(wait)
        instead = [self._instead(each) for each in taken]
        if not fit_elsewhere(self._policy, self._cluster_state.ledger(), instead):
            return RequeueAfter(PLACEHOLDER_BIND_SECONDS)
        for each, left in zip(taken, instead, strict=True):
            node, why = left.vgpu.spec.node_name, each.blocker.message
            self._places.exclude(each.requester, node, why, gpuid=left.gpuid)
            self.forget(each.requester.key)
        for each in taken:
            for vgpu in self._pool.held_by(each.demand.uid):
                await self._pool.release(vgpu.metadata.name, each.demand.uid)
        names = ", ".join(each.vgpu.metadata.name for each in instead)
        raise StaleDecisionError(f"{names}: there is no GPU, and there are others")

    def _instead(self, hindered: BlockedRequester) -> StuckDemand:
        """The vGPU that one waits for, and the nodes that it may go to instead."""
        held = self._pool.held_by(hindered.demand.uid)
        vgpu = next((vgpu for vgpu in held if not vgpu.spec.uuid or failure(vgpu)), held[0])
        return StuckDemand.of(hindered.demand, vgpu, self._places.of(hindered.requester).nodes)

    def _hindered(self, requester: Requester) -> float:
        """Since when its parts have not been there; a namesake made later begins anew."""
        now = asyncio.get_running_loop().time()
        uid, since = self._hindered_since.get(requester.key, ("", now))
        since = since if uid == requester.uid else now
        self._hindered_since[requester.key] = (requester.uid, since)
        return since

    async def mark_unschedulable(
        self,
        requester: Requester,
        reason: Reason,
        message: str,
        helps: Callable[[], Change | None] | None = None,
    ) -> None:
        """Have an asker wait until something changes, and say why."""
        self._waiting.add(requester.key, requester.created)
        await self.set_condition(requester, reason, message, helps)

    async def set_condition(
        self,
        requester: Requester,
        reason: Reason,
        message: str,
        helps: Callable[[], Change | None] | None = None,
    ) -> None:
        """Say why an asker waits, if that is news."""
        if await requester.set_condition(reason, message):
            # To find that out costs many decisions, so it is told once, with what is news.
            self._events.waits(requester, reason, message, helps() if helps else None)

    async def reject(self, requester: Requester, field: str, message: str) -> None:
        """Say what is wrong with an asker."""
        self._metrics.decisions.labels("invalid").inc()
        if await requester.set_condition(Reason.INVALID, f"{field}: {message}"):
            self._events.invalid(requester, field, message)

    async def refresh(self, requester: Requester) -> Requester | None:
        """Read an asker that may have changed, and take back what it does not name."""
        live = await requester.refresh()
        named = live.gpuids if live is not None else ()
        for vgpu in self._pool.held_by(requester.uid):
            if vgpu.metadata.name not in named:
                await self._pool.release(vgpu.metadata.name, requester.uid)
        return live


def matches_demand(held: Sequence[VGPU], demand: Demand) -> bool:
    """The parts that are held are those that the next decision would ask for."""
    return len(held) == demand.count and all(_matches(vgpu, demand) for vgpu in held)


def _matches(vgpu: VGPU, demand: Demand) -> bool:
    holder = holder_of(vgpu, demand.uid)
    return (
        holder is not None
        and is_stored(holder, demand, vgpu.spec.memory_bytes)
        and demand.device_id in ("", vgpu.metadata.name)
        and (demand.nodes is None or vgpu.spec.node_name in demand.nodes)
    )
