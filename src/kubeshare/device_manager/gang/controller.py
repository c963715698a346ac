"""A gang that has taken its parts of GPUs and does not start gives all of them back.

Sched takes the parts of a gang in one go, and tells its members. From then on the gang has
``gangTimeoutSeconds`` until as many of its pods as it needs are bound to their nodes. If they
are not, nothing of it keeps anything: each member's decision is undone, and its pod is evicted.
What a pod that was bound holds goes when its node says so. The nodes that have not taken a
member are set aside for all of them for a while, so that others have their turn.

A gang that has started once is left in peace: when it loses a member, Sched looks for another
place for that one alone.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from kubeshare.api import sharepods
from kubeshare.api.configuration import DynamicConfiguration
from kubeshare.api.eviction import evict
from kubeshare.api.gang_members import GANG, gang_value
from kubeshare.api.predicates import exclusions
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.constants import CONDITION_SCHEDULED
from kubeshare.api.types.core_v1 import Pod
from kubeshare.api.types.v1 import SharePod
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.gang import Gang
from kubeshare.device_manager.events import Events
from kubeshare.device_manager.sharepod.pods import owned_by
from kubeshare.device_manager.sharepod.rescheduling.undo import undo_decision
from kubeshare.dialects.priority_and_gang import standing_of
from kubeshare.kube.cache.store import Store
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ConflictError, NotFoundError, TooManyRequestsError
from kubeshare.kube.conditions import find_condition
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import Raw

STARTED_SLACK_SECONDS: Final = 60.0
"""Seconds past its time after which a gang of which pods run is taken for one that started."""
EVICTION_RETRY_SECONDS: Final = 10.0
"""Seconds until an eviction that a disruption budget refused is asked for again."""


class _Member(Struct, frozen=True):
    """A SharePod of a gang: as it came, the narrow struct of it, and its pod."""

    raw: Raw
    seen: SharePod
    pod: Pod | None

    @property
    def decided(self) -> bool:
        """Sched has chosen for it: what its author has chosen is not undone."""
        return sharepods.decided(self.seen) and self.seen.spec.gpu.attempt > 0


class GangController:
    """Gives back what gangs hold that do not start.

    Args:
        client: where SharePods and pods are.
        sharepod_store: the SharePods, with the index of gangs.
        pods: all pods, with the index of gangs.
        cluster_state: the vGPUs.
        events: tells people.
        configuration: says how long a gang has.
        wall_clock: the present, aware.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        client: Client,
        *,
        sharepod_store: Store[Raw],
        pods: Store[Pod],
        cluster_state: ClusterState,
        events: Events,
        configuration: DynamicConfiguration,
        wall_clock: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._sharepod_store = sharepod_store
        self._pods = pods
        self._cluster_state = cluster_state
        self._events = events
        self._configuration = configuration
        self._wall_clock = wall_clock
        self._since: dict[Key, float] = {}  # gang -> when it was first seen to hold parts
        self._known: set[Key] = set()  # gangs that were seen before
        self._started: set[Key] = set()

    def starting(self) -> list[Key]:
        """Those that hold parts and have not started."""
        return list(self._since)

    async def reconcile(self, key: Key) -> RequeueAfter | None:
        """Look at one gang, by its namespace and name."""
        members, gang = self._members(key)
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
        left = self._left(key)
        if left > 0:
            return again or RequeueAfter(left)
        words = (
            f"{bound} of the {gang.min_available} members that gang {gang.name} needs have started "
            f"within {self._timeout:g} s"
        )
        nodes = self._to_be_set_aside(members)
        for member in decided:
            await self._give_back(member, nodes, words)
        self._since.pop(key, None)
        return RequeueAfter(EVICTION_RETRY_SECONDS)

    @property
    def _timeout(self) -> float:
        return self._configuration.now().gang_timeout_seconds

    def _members(self, key: Key) -> tuple[list[_Member], Gang | None]:
        found: list[_Member] = []
        gang: Gang | None = None
        for raw in self._sharepod_store.by_index(GANG, gang_value(key)):
            seen = sharepods.view(raw)
            try:
                said = standing_of(raw).gang
            except InvalidValueError:
                said = None
            if said is None or sharepods.is_deleting(seen):
                continue
            gang = gang or said
            pod = self._cluster_state.pod(seen.metadata.key)
            mine = pod is not None and owned_by(pod, seen.metadata.uid)
            found.append(_Member(raw, seen, pod if mine else None))
        return sorted(found, key=lambda member: member.seen.metadata.key), gang

    def _pods_of(self, key: Key) -> list[Pod]:
        """The pods of a gang, whoever made them; a SharePod's pod has its labels."""
        found = self._pods.by_index(GANG, gang_value(key))
        return [pod for pod in found if pod.metadata.deletion_timestamp is None]

    def _forget(self, key: Key) -> None:
        self._since.pop(key, None)
        self._started.discard(key)

    def _left(self, key: Key) -> float:
        now = asyncio.get_running_loop().time()
        return self._since.setdefault(key, now) + self._timeout - now

    def _started_before(self, key: Key, decided: list[_Member], bound: int) -> bool:
        """It has been running for longer than it would have had time to start.

        That says that it had started and has lost a member since, which this program would
        know if it had not been restarted. What runs is not stopped for want of memory.
        """
        first = key not in self._known
        self._known.add(key)
        if not first or not bound:
            return False
        conditions = (
            find_condition(member.seen.status.conditions, CONDITION_SCHEDULED) for member in decided
        )
        now = self._wall_clock()
        times = [each.last_transition_time for each in conditions if each]
        since = min((datetime.fromisoformat(time) for time in times if time), default=now)
        return (now - since).total_seconds() > self._timeout + STARTED_SLACK_SECONDS

    def _to_be_set_aside(self, members: list[_Member]) -> list[str]:
        """The nodes that have not taken a member, now or shortly before."""
        now = self._wall_clock()
        nodes = {
            entry.node
            for member in members
            for entry in exclusions.active(member.seen.spec.gpu.set_aside, now)
            if not entry.id
        }
        nodes |= {
            member.seen.spec.node_name
            for member in members
            if member.decided and (member.pod is None or not member.pod.spec.node_name)
        }
        return sorted(nodes)

    async def _give_back(self, member: _Member, nodes: list[str], words: str) -> None:
        """Undo what Sched decided for a member, and give back what its node has not given it."""
        sharepod = member.seen
        noted = sharepod.spec.gpu.set_aside
        pause = timedelta(seconds=self._configuration.now().set_aside_seconds)
        for node in nodes:
            noted = exclusions.add(noted, node, words, self._wall_clock(), pause)
        await undo_decision(self._client, member.raw, noted)
        self._events.gang_timed_out(sharepod, words)
        for gpuid in sharepods.gpuids(sharepod):
            await self._cluster_state.pool.release(gpuid, sharepod.metadata.uid)
        await self._evict(member.pod)

    async def _evict_undecided(self, members: list[_Member]) -> RequeueAfter | None:
        """Evict the pods that were made for decisions that are undone."""
        refused = False
        for member in members:
            if not sharepods.decided(member.seen):
                refused |= not await self._evict(member.pod)
        return RequeueAfter(EVICTION_RETRY_SECONDS) if refused else None

    async def _evict(self, pod: Pod | None) -> bool:
        """Evict a pod that is there and is not going; whether that is done."""
        if pod is None or pod.terminal or pod.metadata.deletion_timestamp is not None:
            return True
        try:
            await evict(self._client, pod)
        except (NotFoundError, ConflictError):
            self._cluster_state.forget_pod(pod)
        except TooManyRequestsError:
            return False
        return True
