"""Pods that may be preempted are asked to leave for a demand of higher priority.

Only where the configuration says ``preemption: true``, only pods that carry the annotation
``kubeshare.nthu/preemptible: "true"``, only those of a lower priority, and only those that
Sched has placed: one whose author named its GPU would take it again. Of the sets of pods whose
leaving would help the cheapest is taken that the disruption budgets allow, asked by a dry
run before the first pod is evicted. What they hold is free when their nodes say so;
until then the place is kept.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct, structs

from kubeshare.api.configuration import DynamicConfiguration
from kubeshare.api.eviction import evict
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.core_v1 import PODS, Pod
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.core.demand import Demand
from kubeshare.core.gang import place_gang
from kubeshare.core.policies import Policy
from kubeshare.core.preemption import Preemption, cheapest_for_gang
from kubeshare.kube.cache.store import Store
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ConflictError, NotFoundError, TooManyRequestsError
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.controller.events import ObjectReference, reference
from kubeshare.scheduler.events import Events
from kubeshare.scheduler.preemption.nominations import NOMINATION_SECONDS, Nomination, Nominations
from kubeshare.scheduler.preemption.victims import Victim, is_marked, victims_of
from kubeshare.scheduler.requesters.base import Requester

MAX_VICTIM_SETS: Final = 8
"""How many sets of pods are tried at most, where budgets refuse."""
RETRY_SECONDS: Final = 10.0
"""Seconds until it is tried again where budgets have refused all."""

_INDEX: Final = "preemptible"


class RoomRequest(Struct, frozen=True, kw_only=True):
    """Somebody for whom there is no room.

    Attributes:
        owner: as people know it.
        requesters: who asks, the first of whom is told.
        demands: of those who ask, for the nodes that they may go to.
        needed: how many of them have to be placed together.
        priority: theirs.
    """

    owner: str
    requesters: Sequence[Requester]
    demands: Sequence[Demand]
    needed: int = 1
    priority: int

    @property
    def uids(self) -> frozenset[str]:
        """Of the demands."""
        return frozenset(demand.uid for demand in self.demands)


class Preemptor:
    """Makes room for demands of higher priority.

    Args:
        client: where pods are evicted.
        policy: places demands.
        cluster_state: the cluster's GPUs.
        pods: all pods.
        kept: where places are noted.
        configuration: says whether this is done at all.
        events: tells both sides.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        client: Client,
        policy: Policy,
        *,
        cluster_state: ClusterState,
        pods: Store[Pod],
        kept: Nominations,
        configuration: DynamicConfiguration,
        events: Events,
    ) -> None:
        self._client = client
        self._policy = policy
        self._cluster_state = cluster_state
        self._pods = pods
        self._kept = kept
        self._configuration = configuration
        self._events = events
        pods.add_index(_INDEX, _marked)

    async def make_room(self, claim: RoomRequest) -> RequeueAfter | None:
        """Ask the cheapest set of pods to leave, if that is allowed and would help.

        Returns:
            when to look again, if anybody has been asked or may be asked later.
        """
        now = asyncio.get_running_loop().time()
        if not self._configuration.now().preemption:
            return None
        place = self._kept.of(claim.owner, now)
        if place is not None and self._still_leaving(place):
            return await self._ask(place, self._victims())
        if self._kept.full(now):
            return None
        victims = self._victims()
        refused = False
        for _ in range(MAX_VICTIM_SETS):
            found = self._cheapest(claim, victims.values())
            if found is None:
                break
            unwilling = await self._refused([victims[uid] for uid in found.leave])
            if not unwilling:
                return await self._preempt(claim, found, victims, now)
            refused = True
            for uid in unwilling:
                del victims[uid]
        return RequeueAfter(RETRY_SECONDS) if refused else None

    def _victims(self) -> dict[str, Victim]:
        marked = self._pods.by_index(_INDEX, "true")
        return {each.uid: each for each in victims_of(marked, self._cluster_state.pool.held_by)}

    def _still_leaving(self, place: Nomination) -> bool:
        return any(self._cluster_state.pool.held_by(uid) for uid in place.victims)

    def _cheapest(self, claim: RoomRequest, victims: Iterable[Victim]) -> Preemption | None:
        priorities = {victim.uid: victim.priority for victim in victims}
        ledger = self._cluster_state.ledger()
        now = asyncio.get_running_loop().time()
        policy = self._kept.policy(self._policy, claim.uids, claim.priority, now)
        return cheapest_for_gang(
            policy,
            ledger,
            claim.demands,
            needed=claim.needed,
            priority=claim.priority,
            preemptible=priorities,
        )

    async def _refused(self, victims: Sequence[Victim]) -> list[str]:
        """Those whose disruption budgets refuse now."""
        refused = []
        for victim in victims:
            try:
                await evict(self._client, victim.pod, dry_run=True)
            except TooManyRequestsError:
                refused.append(victim.uid)
            except (NotFoundError, ConflictError):
                continue  # it has gone by itself
        return refused

    async def _preempt(
        self, claim: RoomRequest, found: Preemption, victims: Mapping[str, Victim], now: float
    ) -> RequeueAfter:
        place = Nomination(
            owner=claim.owner,
            uids=claim.uids,
            priority=claim.priority,
            devices=self._where(claim, found),
            victims=frozenset(found.leave),
            to_evict=tuple(found.leave),
            until=now + NOMINATION_SECONDS,
        )
        self._kept.add(place)
        self._events.preempts(claim.requesters[0], found.words, found.priority)
        return await self._ask(place, victims)

    async def _ask(self, place: Nomination, victims: Mapping[str, Victim]) -> RequeueAfter:
        """Evict those for whose place there is need and who have not been asked to leave yet.

        Whoever is not there any more needs no asking. Where the API server fails at one, the
        rest is asked when it is tried again.
        """
        for number, uid in enumerate(place.to_evict, start=1):
            victim = victims.get(uid)
            try:
                if victim is not None:
                    await evict(self._client, victim.pod)
                    about = _about(victim.pod)
                    self._events.preempted(about, place.owner, place.priority, victim.priority)
            except TooManyRequestsError:
                return RequeueAfter(
                    RETRY_SECONDS
                )  # its budget has changed: what has been asked leaves
            except (NotFoundError, ConflictError):
                pass
            self._kept.add(structs.replace(place, to_evict=place.to_evict[number:]))
        return RequeueAfter(place.until - asyncio.get_running_loop().time())

    def _where(self, claim: RoomRequest, found: Preemption) -> dict[str, str]:
        """The vGPUs on which the demands will be once those in their way have left."""
        ledger = self._cluster_state.ledger()
        with ledger.what_if():
            for uid in found.leave:
                ledger.release(uid)
            answer = place_gang(self._policy, ledger, claim.demands, claim.needed)
        return {
            gpuid: placed.decision.node
            for placed in answer.placed
            for gpuid in placed.decision.devices
            if placed.decision.node is not None
        }


def _marked(pod: Pod) -> list[str]:
    """Whether a pod may be preempted and is there to be, for an index."""
    return ["true"] if is_marked(pod) else []


def _about(pod: Pod) -> ObjectReference:
    """What the event about a pod that leaves names: its SharePod, or itself."""
    controller = pod.metadata.controller
    if controller is None or controller.kind != SHAREPODS.kind:
        return reference(PODS, pod)
    return ObjectReference(
        api_version=SHAREPODS.api_version,
        kind=SHAREPODS.kind,
        name=controller.name,
        namespace=pod.metadata.namespace,
        uid=controller.uid,
    )
