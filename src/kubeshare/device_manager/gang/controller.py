"""Releases the GPUs of gangs that do not start in time.

Sched adds the holders of a gang and writes its decisions together. From then on the gang has
``gangTimeoutSeconds`` until as many of its pods as it needs are bound. If they are not, each
member's decision is cleared and its pod is evicted, so that the gang holds nothing. The holders of
bound pods are released by their nodes. The nodes that have not taken a member are excluded for all
members for a while, so that Sched tries others.

A gang that has started once is left alone: when it loses a member, Sched places that one anew.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from kubeshare.api import sharepods
from kubeshare.api.eviction import evict
from kubeshare.api.gang_members import (
    GANG,
    gang_index,
    gang_index_of_struct,
    gang_key,
    gang_of,
    gang_of_struct,
    gang_value,
)
from kubeshare.api.predicates import exclusions
from kubeshare.api.types.constants import CONDITION_SCHEDULED
from kubeshare.api.types.core_v1 import Pod
from kubeshare.api.types.v1 import SharePod
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.gang import Gang
from kubeshare.device_manager.context import Context
from kubeshare.device_manager.sharepod.pods import owned_by
from kubeshare.device_manager.sharepod.rescheduling.reschedule import clear_decision
from kubeshare.dialects.priority_and_gang import standing_of
from kubeshare.kube.client.errors import ConflictError, NotFoundError, TooManyRequestsError
from kubeshare.kube.conditions import find_condition
from kubeshare.kube.controller.controller import Controller, RequeueAfter
from kubeshare.kube.controller.pending import PendingSince
from kubeshare.kube.controller.resync import add_resync
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.controller.steps import in_steps
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import Raw

STARTED_SLACK_SECONDS: Final = 60.0
"""Seconds past its timeout after which a gang with bound pods counts as started before."""
EVICTION_RETRY_SECONDS: Final = 10.0
"""Seconds until an eviction that a disruption budget refused is retried."""

_DECIDED: Final = "decided in gang"
"""The name of the index by gang of those that have a decision."""


class _Member(Struct, frozen=True):
    """A SharePod of a gang: the raw object, the view of it, and its pod."""

    raw: Raw
    sharepod: SharePod
    pod: Pod | None

    @property
    def decided(self) -> bool:
        """Sched has decided; a decision of the author is not cleared."""
        return sharepods.decided(self.sharepod) and self.sharepod.spec.gpu.attempt > 0


class GangController:
    """Clears the decisions of gangs that do not start in time.

    Args:
        context: the state and the services that it uses.
    """

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._informers = context.informers
        self._sharepod_store = context.informers.sharepods.store
        self._sharepod_store.add_index(GANG, gang_index)
        self._sharepod_store.add_index(_DECIDED, _decided_index)
        self._pods = context.informers.pods.store
        self._pods.add_index(GANG, gang_index_of_struct)
        self._cluster_state = context.cluster_state
        self._events = context.events
        self._configuration = context.configuration
        self._wall_clock = context.wall_clock
        self._starting: PendingSince[Key] = PendingSince()
        self._known: set[Key] = set()
        self._started: set[Key] = set()

    def register(self, program: Program) -> None:
        """Run this controller in a program, with the watches that trigger it."""
        informers = self._informers
        controller: Controller[Key] = Controller("gangs", self.reconcile)
        controller.watch(informers.sharepods, lambda raw: filter(None, [gang_of(raw)]))
        controller.watch(informers.pods, lambda pod: filter(None, [gang_of_struct(pod)]))
        controller.watch(informers.configmaps, lambda _: list(self._starting))
        program.add_controller(controller)
        add_resync(program, controller, self._gangs)

    async def reconcile(self, key: Key) -> RequeueAfter | None:
        """Reconcile one gang, by its namespace and name."""
        if self._is_idle(key):
            self._forget(key)
            if not self._sharepod_store.keys_by_index(GANG, gang_value(key)):
                self._known.discard(key)
            return None
        members, gang = await self._read_members(key)
        if gang is None:
            self._known.discard(key)
            self._forget(key)
            return None
        again = await self._evict_undecided(members)
        decided = [member for member in members if member.decided]
        if not decided:
            self._forget(key)
            return again
        bound = sum(bool(pod.spec.node_name) for pod in self._pods_of(key))
        if bound >= gang.min_available or self._started_before(key, decided, bound):
            self._started.add(key)
        if key in self._started:
            return again
        if left := self._starting.remaining(key, self._timeout):
            return again or RequeueAfter(left)
        message = (
            f"{bound} of the {gang.min_available} members that gang {gang.name} needs have started "
            f"within {self._timeout:g} s"
        )
        nodes = self._nodes_to_exclude(members)
        for member in decided:
            await self._clear(member, nodes, message)
        self._starting.forget(key)
        return RequeueAfter(EVICTION_RETRY_SECONDS)

    def _gangs(self) -> Iterator[Key]:
        return map(gang_key, self._sharepod_store.index_values(GANG))

    @property
    def _timeout(self) -> float:
        return self._configuration.now().gang_timeout_seconds

    def _is_idle(self, key: Key) -> bool:
        """Whether no member of a gang has a decision or a pod; reads none of them."""
        value = gang_value(key)
        return not (
            self._sharepod_store.keys_by_index(_DECIDED, value)
            or self._pods.keys_by_index(GANG, value)
        )

    async def _read_members(self, key: Key) -> tuple[list[_Member], Gang | None]:
        """The SharePods of a gang that are not deleted, in order of their keys."""
        members: list[_Member] = []
        gang: Gang | None = None
        keys = self._sharepod_store.keys_by_index(GANG, gang_value(key))
        async for raw in in_steps(map(self._sharepod_store.by_key, keys)):
            if raw is None:
                continue
            sharepod = sharepods.view(raw)
            try:
                own = standing_of(raw).gang
            except InvalidValueError:
                own = None
            if own is None or sharepods.is_deleting(sharepod):
                continue
            gang = gang or own
            pod = self._cluster_state.pod(sharepod.metadata.key)
            owned = pod is not None and owned_by(pod, sharepod.metadata.uid)
            members.append(_Member(raw, sharepod, pod if owned else None))
        return sorted(members, key=lambda member: member.sharepod.metadata.key), gang

    def _pods_of(self, key: Key) -> list[Pod]:
        """The pods of a gang that are not deleted, those of SharePods and plain ones."""
        found = self._pods.by_index(GANG, gang_value(key))
        return [pod for pod in found if pod.metadata.deletion_timestamp is None]

    def _forget(self, key: Key) -> None:
        self._starting.forget(key)
        self._started.discard(key)

    def _started_before(self, key: Key, decided: list[_Member], bound: int) -> bool:
        """Whether a gang that is seen for the first time had started before it lost members.

        It has if it has been running for longer than its timeout. Only a restarted program has
        to infer this; it must not stop what runs because it has no record.
        """
        first = key not in self._known
        self._known.add(key)
        if not first or not bound:
            return False
        conditions = (
            find_condition(member.sharepod.status.conditions, CONDITION_SCHEDULED)
            for member in decided
        )
        now = self._wall_clock()
        times = [each.last_transition_time for each in conditions if each]
        since = min((datetime.fromisoformat(time) for time in times if time), default=now)
        return (now - since).total_seconds() > self._timeout + STARTED_SLACK_SECONDS

    def _nodes_to_exclude(self, members: list[_Member]) -> list[str]:
        """The nodes that have not taken a member, now or recently."""
        now = self._wall_clock()
        nodes = {
            entry.node
            for member in members
            for entry in exclusions.active(member.sharepod.spec.gpu.set_aside, now)
            if not entry.id
        }
        nodes |= {
            member.sharepod.spec.node_name
            for member in members
            if member.decided and (member.pod is None or not member.pod.spec.node_name)
        }
        return sorted(nodes)

    async def _clear(self, member: _Member, nodes: list[str], message: str) -> None:
        """Clear Sched's decision about a member, remove its holders, and evict its pod."""
        sharepod = member.sharepod
        set_aside = sharepod.spec.gpu.set_aside
        pause = timedelta(seconds=self._configuration.now().set_aside_seconds)
        for node in nodes:
            set_aside = exclusions.add(set_aside, node, message, self._wall_clock(), pause)
        await clear_decision(self._client, member.raw, set_aside)
        self._events.gang_timed_out(sharepod, message)
        pool, uid = self._cluster_state.pool, sharepod.metadata.uid
        for vgpu in pool.named(sharepod.spec.node_name, sharepods.gpuids(sharepod), uid):
            await pool.release(vgpu.metadata.name, uid)
        await self._evict(member.pod)

    async def _evict_undecided(self, members: list[_Member]) -> RequeueAfter | None:
        """Evict the pods that were created for decisions that have been cleared."""
        refused = False
        for member in members:
            if not sharepods.decided(member.sharepod):
                refused |= not await self._evict(member.pod)
        return RequeueAfter(EVICTION_RETRY_SECONDS) if refused else None

    async def _evict(self, pod: Pod | None) -> bool:
        """Evict a pod that runs; False when its disruption budget refuses."""
        if pod is None or pod.terminal or pod.metadata.deletion_timestamp is not None:
            return True
        try:
            await evict(self._client, pod)
        except (NotFoundError, ConflictError):
            self._cluster_state.forget_pod(pod)
        except TooManyRequestsError:
            return False
        return True


def _decided_index(manifest: Raw) -> list[str]:
    gang = gang_index(manifest)
    return gang if gang and sharepods.decided(sharepods.view(manifest)) else []
