"""Evicts preemptible pods for demands of higher priority.

Only if the configuration says ``preemption: true``; only pods with the annotation
``kubeshare.nthu/preemptible: "true"``, of a lower priority, that Sched has placed (a pod whose
author named its GPU would take it again). The cheapest set of pods that makes room and that
disruption budgets allow is evicted; the budgets are asked by a dry run before the first
eviction. The shares are free when the nodes release them; until then the room is reserved by
a nomination.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct, structs

from kubeshare.api.configuration import DynamicConfiguration
from kubeshare.api.eviction import evict
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.vgpu_store import StaleDecisionError
from kubeshare.api.types.core_v1 import PODS, Pod
from kubeshare.api.types.v1 import SHAREPODS, VGPU
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError, UnsettledError
from kubeshare.core.gang import GangPlacement, Nearness
from kubeshare.core.gang_preemption import fewest_in_steps, placements_without, preempt_in_steps
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy
from kubeshare.core.preemption import Preemption
from kubeshare.core.preemption_search import Prepare, Steps
from kubeshare.kube.cache.store import DELETED, Change, Store
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ConflictError, NotFoundError, TooManyRequestsError
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.controller.events import ObjectReference, reference
from kubeshare.scheduler.events import Events
from kubeshare.scheduler.preemption.nominations import NOMINATION_SECONDS, Nomination, Nominations
from kubeshare.scheduler.preemption.victims import Victim, demand_uid, is_marked, victims_of
from kubeshare.scheduler.requesters.base import Requester, RequesterKind

MAX_VICTIM_SETS: Final = 8
"""How many sets of pods are tried if disruption budgets refuse."""
MAX_LOOKS: Final = 8
"""How often the victims are compared with a cluster in which there is ever more room."""
RETRY_SECONDS: Final = 10.0
"""Seconds until the next attempt after budgets refused all sets."""
SETTLE_SECONDS: Final = 10.0
"""Seconds after the last victim has left before others are evicted for the same owner."""

_MARKED: Final = "preemptible"
_DEMAND: Final = "preemptible demand"


class RoomRequest(Struct, frozen=True, kw_only=True):
    """Demands for which there is no room.

    Attributes:
        owner: the requester or gang, for people.
        requesters: the requesters; the first one gets the event.
        demands: theirs, restricted to eligible nodes.
        needed: how many of them have to be placed together.
        priority: the owner's.
        near: how near each other they must be placed; None if anywhere.
    """

    owner: str
    requesters: Sequence[Requester]
    demands: Sequence[Demand]
    needed: int = 1
    priority: int
    near: Nearness | None = None

    @property
    def uids(self) -> frozenset[str]:
        """The uids of the demands."""
        return frozenset(demand.uid for demand in self.demands)


class Preemptor:
    """Makes room for demands of higher priority.

    Args:
        client: evicts pods.
        policy: places demands.
        cluster_state: the GPUs of the cluster.
        pods: all pods.
        nominations: reserves the room.
        configuration: says whether preemption is allowed.
        events: reports to both sides.
        kinds: finds requesters, by the kind of object.
    """

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        client: Client,
        policy: Policy,
        *,
        cluster_state: ClusterState,
        pods: Store[Pod],
        nominations: Nominations,
        configuration: DynamicConfiguration,
        events: Events,
        kinds: Mapping[str, RequesterKind],
    ) -> None:
        self._client = client
        self._policy = policy
        self._cluster_state = cluster_state
        self._pods = pods
        self._nominations = nominations
        self._configuration = configuration
        self._events = events
        self._kinds = kinds
        pods.add_index(_MARKED, _marked)
        pods.add_index(_DEMAND, _demand_of_marked)

    def victim_found(self, change: Change[Pod]) -> bool:
        """Whether a pod was changed so that it may be evicted now, and was not before."""
        old, new = change.old, change.object
        if not self._configuration.now().preemption or not is_marked(new):
            return False
        return change.type != DELETED and (old is None or _standing(old) != _standing(new))

    def victim_holds(self, change: Change[VGPU]) -> bool:
        """Whether a pod that is marked as preemptible has a holder that is new or changed."""
        old, new = change.old, change.object
        if not self._configuration.now().preemption or change.type == DELETED:
            return False
        before = old.status.holders if old is not None else ()
        return any(
            holder not in before and self._pods.by_index(_DEMAND, holder.demand)
            for holder in new.status.holders
        )

    async def make_room(self, request: RoomRequest) -> RequeueAfter | None:
        """Evict the cheapest set of pods that makes room, if that is allowed.

        Returns:
            when to reconcile again; None if nothing is evicted now or soon.
        """
        now = asyncio.get_running_loop().time()
        if not self._configuration.now().preemption:
            return None
        nomination = self._nominations.of(request.owner, now)
        if nomination is not None:
            if not nomination.uids & request.uids or nomination.priority != request.priority:
                nomination = self._hand_over(nomination, request)
            if self._still_held(nomination):
                return await self._evict(nomination)
            if left := self._settling(nomination, now):
                return RequeueAfter(left)
        if self._nominations.full(now):
            return RequeueAfter(RETRY_SECONDS)
        try:
            return await self._choose(request)
        except UnsettledError:
            return RequeueAfter(RETRY_SECONDS)

    def _hand_over(self, nomination: Nomination, request: RoomRequest) -> Nomination:
        """Give the room of an earlier owner of the same name to a request; evict no more for it."""
        own = structs.replace(nomination, uids=request.uids, priority=request.priority, to_evict=())
        self._nominations.add(own)
        return own

    async def _choose(self, request: RoomRequest) -> RequeueAfter | None:
        """Evict the cheapest set of pods that makes room and that disruption budgets allow."""
        victims = self._victims()
        self._cluster_state.ledger_to_place(request.uids)  # counts what has grown until now
        growths = self._cluster_state.growths
        refused = False
        for _ in range(MAX_VICTIM_SETS):
            found = await self._cheapest(request, victims)
            if found is None:
                break
            protected = await self._protected([victims[uid] for uid in found.leave])
            if not protected:
                return await self._preempt(request, found, victims, growths)
            refused = True
            for uid in protected:
                del victims[uid]
        return RequeueAfter(RETRY_SECONDS) if refused else None

    def _victims(self) -> dict[str, Victim]:
        return self._victims_among(self._pods.by_index(_MARKED, "true"))

    def _victims_among(self, marked: Iterable[Pod]) -> dict[str, Victim]:
        max_priority = self._configuration.now().max_priority.of
        found = victims_of(marked, self._cluster_state.pool.held_by, max_priority)
        return {each.uid: each for each in found}

    def _still_held(self, nomination: Nomination) -> bool:
        """Whether some victim still holds its share."""
        return any(self._cluster_state.pool.held_by(uid) for uid in nomination.victims)

    def _settling(self, nomination: Nomination, now: float) -> float:
        """Seconds in which the room of victims that are gone may still come; 0 after them.

        Their vGPU may be deleted when its last holder leaves: then its GPU is free only when its
        placeholder is gone, and nobody else has to be evicted meanwhile.
        """
        if nomination.left_at is None:
            nomination = structs.replace(nomination, left_at=now)
            self._nominations.add(nomination)
        return max(0.0, (nomination.left_at or now) + SETTLE_SECONDS - now)

    async def _cheapest(
        self, request: RoomRequest, victims: Mapping[str, Victim]
    ) -> Preemption | None:
        """The cheapest set of victims.

        Raises:
            StaleDecisionError: the ledger was built anew, or a demand was placed.
        """
        ledger = self._cluster_state.ledger_to_place(request.uids)
        search = preempt_in_steps(
            self._policy,
            ledger,
            request.demands,
            needed=request.needed,
            priority=request.priority,
            preemptible={uid: victim.priority for uid, victim in victims.items()},
            near=request.near,
            prepare=self._hiding(request),
        )
        return await self._finished(request, search, ledger)

    async def _fewest(
        self, request: RoomRequest, found: Preemption, victims: Mapping[str, Victim]
    ) -> Preemption:
        """Those of the victims who still have to leave.

        Raises:
            StaleDecisionError: the ledger was built anew, a demand was placed, or all of them have
                left.
        """
        ledger = self._cluster_state.ledger_to_place(request.uids)
        search = fewest_in_steps(
            self._policy,
            ledger,
            request.demands,
            needed=request.needed,
            leavers={uid: victims[uid].priority for uid in found.leave},
            near=request.near,
            prepare=self._hiding(request),
        )
        fewest = await self._finished(request, search, ledger)
        if fewest is None:
            raise StaleDecisionError("all that were to be evicted have left")
        return fewest

    def _hiding(self, request: RoomRequest) -> Prepare:
        """Hides the room that is reserved for others."""
        now = asyncio.get_running_loop().time()
        return self._nominations.hiding(request.uids, request.priority, now)

    async def _finished(
        self, request: RoomRequest, search: Steps[Preemption | None], ledger: Ledger
    ) -> Preemption | None:
        """The answer of a search, with pauses: for a large gang it takes seconds."""
        while True:
            try:
                next(search)
            except StopIteration as end:
                found: Preemption | None = end.value
                return found
            await self._pause(request, ledger)

    async def _pause(self, request: RoomRequest, ledger: Ledger) -> None:
        """Let others run between two steps that work on a ledger."""
        await asyncio.sleep(0)
        if self._cluster_state.ledger_to_place(request.uids) is not ledger:
            raise StaleDecisionError("the ledger was built anew")

    async def _protected(self, victims: Sequence[Victim]) -> list[str]:
        """The uids of victims whose eviction a disruption budget refuses now."""
        protected = []
        for victim in victims:
            try:
                await evict(self._client, victim.pod, dry_run=True)
            except TooManyRequestsError:
                protected.append(victim.uid)
            except (NotFoundError, ConflictError):
                continue  # the pod is gone
        return protected

    async def _preempt(
        self,
        request: RoomRequest,
        found: Preemption,
        victims: Mapping[str, Victim],
        growths: int,
    ) -> RequeueAfter:
        """Evict victims, if the demands fit only without them as everything is now.

        Args:
            request: the demands.
            found: the victims.
            victims: who may be evicted.
            growths: those of the cluster when the search for the victims began.
        """
        for _ in range(MAX_LOOKS):
            if self._cluster_state.growths != growths:
                # There was more room between two awaits, for which nobody has to leave.
                growths = self._cluster_state.growths
                if (await self._placement(request)).whole:
                    return RequeueAfter(0)
                found = await self._fewest(request, found, victims)
            placement = await self._placement(request, found.leave)
            if self._cluster_state.growths == growths:
                break
        if not placement.whole:
            return RequeueAfter(RETRY_SECONDS)
        self._check(request, found)
        now = asyncio.get_running_loop().time()
        nomination = Nomination(
            owner=request.owner,
            namespace=request.demands[0].namespace,
            uids=request.uids,
            priority=request.priority,
            devices=_devices(placement),
            victims=frozenset(found.leave),
            to_evict=tuple(found.leave),
            until=now + NOMINATION_SECONDS,
        )
        self._nominations.add(nomination)
        self._events.preempting(request.requesters[0], found.words, found.priority)
        return await self._evict(nomination)

    def _check(self, request: RoomRequest, found: Preemption) -> None:
        """Look again whether the victims may be evicted, after others have run.

        Raises:
            StaleDecisionError: one of them must not be evicted any more, or a requester does not
                wait.
        """
        victims = self._victims()
        if not self._configuration.now().preemption:
            raise StaleDecisionError("preemption is not allowed any more")
        for uid in found.leave:
            victim = victims.get(uid)
            if victim is None or victim.priority >= request.priority:
                raise StaleDecisionError(f"the holder {uid} must not be evicted any more")
        for requester in request.requesters:
            if not self._waits(requester):
                raise StaleDecisionError(f"{requester.key} does not wait any more")

    def _waits(self, requester: Requester) -> bool:
        """Whether a requester is still there, not placed, and of the same priority."""
        now = self._kinds[requester.key.kind].get(requester.key.key)
        if now is None or now.uid != requester.uid:
            return False
        if now.finished or now.deleting or now.decided:
            return False
        try:
            return now.standing().priority == requester.standing().priority
        except InvalidValueError:
            return False

    async def _evict(self, nomination: Nomination) -> RequeueAfter:
        """Evict the victims that have not been evicted yet, and still may be.

        Each eviction is noted at once, so after an API error the rest is evicted next time.
        """
        for number, uid in enumerate(nomination.to_evict, start=1):
            if not self._configuration.now().preemption:
                return RequeueAfter(RETRY_SECONDS)
            victim = self._victims_among(self._pods.by_index(_DEMAND, uid)).get(uid)
            try:
                if victim is not None and victim.priority < nomination.priority:
                    await evict(self._client, victim.pod)
                    about = _about(victim.pod)
                    owner = nomination.owner_for(about.namespace)
                    self._events.preempted(about, owner, nomination.priority, victim.priority)
            except TooManyRequestsError:
                # The budget changed since the dry run; earlier victims terminate all the same.
                return RequeueAfter(RETRY_SECONDS)
            except (NotFoundError, ConflictError):
                pass  # the pod is gone
            left = nomination.to_evict[number:]
            self._nominations.add(structs.replace(nomination, to_evict=left))
        return RequeueAfter(nomination.until - asyncio.get_running_loop().time())

    async def _placement(self, request: RoomRequest, leave: Collection[str] = ()) -> GangPlacement:
        """Where the demands are placed once these holders have left.

        Raises:
            StaleDecisionError: the ledger was built anew, or a demand was placed.
        """
        ledger = self._cluster_state.ledger_to_place(request.uids)
        demands, needed, near = request.demands, request.needed, request.near
        placement = GangPlacement(room_for=0)
        answers = placements_without(
            leave,
            self._policy,
            ledger,
            demands,
            needed=needed,
            near=near,
            prepare=self._hiding(request),
        )
        for placement in answers:
            if placement.whole:
                break
            await self._pause(request, ledger)
        return placement


def _devices(placement: GangPlacement) -> dict[str, str]:
    """Name -> node of the vGPUs of a placement."""
    return {
        device_id: placed.decision.node
        for placed in placement.placed
        for device_id in placed.decision.devices
        if placed.decision.node is not None
    }


def _marked(pod: Pod) -> list[str]:
    """Index function: the pods that may be preempted."""
    return ["true"] if is_marked(pod) else []


def _demand_of_marked(pod: Pod) -> list[str]:
    """Index function: the demands of the pods that may be preempted."""
    return [demand_uid(pod)] if is_marked(pod) else []


def _standing(pod: Pod) -> tuple[object, ...]:
    """What decides whether a pod is a victim, and of which priority."""
    return is_marked(pod), pod.metadata.labels, pod.metadata.annotations


def _about(pod: Pod) -> ObjectReference:
    """The object that the event about a victim names: its SharePod, or the pod itself."""
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
