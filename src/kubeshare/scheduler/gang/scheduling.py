"""Schedules gangs: enough members get shares together, or none does.

A gang waits until as many members exist as it needs, and until they fit together. Then the
shares of all are reserved in the order of the names of the vGPUs, and released again if one of
them cannot be reserved; only then are the members bound. Shares that a killed program reserved
for a gang are completed if the rest fits, and released if it does not. Members that come after
enough are placed are scheduled one by one.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kubeshare.api.configuration import DynamicConfiguration
from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.api.predicates.node_resources import Mates
from kubeshare.api.state.vgpu_store import Reservation, StaleDecisionError
from kubeshare.api.types.reasons import Reason
from kubeshare.api.vgpu_readiness import Blocker
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.messages import explain
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.gang import Gang, GangPlacement, Nearness, placements
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.guard import failure
from kubeshare.dialects.priority_and_gang import GROUP_NAME
from kubeshare.kube.client.errors import ConflictError, NotFoundError
from kubeshare.kube.controller.controller import RequeueAfter, earliest
from kubeshare.kube.controller.pending import NotBefore, PendingSince
from kubeshare.kube.controller.steps import in_steps
from kubeshare.kube.meta import Key
from kubeshare.scheduler.binding import BlockedRequester
from kubeshare.scheduler.context import SchedulingContext
from kubeshare.scheduler.explanations import Explanation
from kubeshare.scheduler.gang.members import (
    Member,
    Members,
    check_agreement,
    demand_of_member,
    gang_terms,
    name_of_gang,
)
from kubeshare.scheduler.gang.refusals import RecentRefusals
from kubeshare.scheduler.metrics import Metrics
from kubeshare.scheduler.preemption.preemption import RoomRequest
from kubeshare.scheduler.requesters.base import Requester, RequesterKey
from kubeshare.scheduler.scheduling import decide, restrict_nodes


@dataclass(frozen=True)
class GangResult:
    """The gang was handled, and its conditions are set; when to reconcile again, if ever."""

    retry: RequeueAfter | None = None


class GangScheduler:
    """Schedules gangs.

    Args:
        context: the collaborators of a decision.
        configuration: gives the time in which a gang has to start once its shares are reserved.
        queue: queues a member.
        metrics: counts what a policy failed to decide, once for all members.
    """

    def __init__(
        self,
        context: SchedulingContext,
        configuration: DynamicConfiguration,
        queue: Callable[[RequesterKey], None],
        metrics: Metrics,
    ) -> None:
        self._context = context
        self._queue = queue
        self._metrics = metrics
        self._configuration = configuration
        self._reserved: PendingSince[Key] = PendingSince()  # gangs that hold shares, not started
        self._timed_out: NotBefore[Key] = NotBefore()  # gangs that are not tried for a while
        self._timeout_messages: dict[Key, str] = {}
        self._nominated: set[Key] = set()  # gangs for which pods may be evicted
        self._no_room = RecentRefusals()
        self._oversized: set[RequesterKey] = set()  # members of gangs that are too large

    def oversized(self, _: object) -> Iterable[RequesterKey]:
        """The members of gangs that are larger than the configuration allows."""
        return tuple(self._oversized)

    def forget_gone(self, key: RequesterKey) -> None:
        """Drop what is known about a requester that is gone, and about gangs without members."""
        self._oversized.discard(key)
        known = {*self._reserved, *self._timeout_messages, *self._nominated}
        for gang in known:
            if not self._has(gang):
                self._reserved.forget(gang)
                self._end_timeout(gang)
                self._end_nomination(gang)

    def _end_nomination(self, gang: Key) -> None:
        self._nominated.discard(gang)
        self._context.nominations.remove(name_of_gang(gang))

    def _has(self, gang: Key) -> bool:
        return any(True for _ in self._named(gang))

    def _end_timeout(self, gang: Key) -> None:
        self._timed_out.forget(gang)
        self._timeout_messages.pop(gang, None)

    async def schedule(self, requester: Requester, gang: Gang) -> GangResult | None:
        """Schedule the gang of an unbound requester.

        Returns:
            None if the requester is to be scheduled alone: enough other members are placed.

        Raises:
            InvalidValueError: its gang labels differ from those of the oldest member.
            StaleDecisionError: others changed the cluster.
            ConflictError: a member was changed.
            NotFoundError: a member is gone.
            ApiError: the nodes of a member cannot be found out now.
        """
        self._check_size(requester, gang)
        name = Key(requester.key.key.namespace, gang.name)
        if left := self._no_room.seconds_left(name, self._context.cluster_state.growths):
            # Its members have events one after the other: one answer is enough for all of them.
            self._context.binder.await_room(requester)
            if self._no_room.postpone(name):
                asyncio.get_running_loop().call_later(left, self._try_again, name)
            return GangResult()
        await self._prepare(requester, gang)
        members = await self._read_members(requester, gang)
        oldest = members.all[0].requester
        check_agreement(requester.standing(), oldest.standing(), oldest.key)
        releasing = await self._release_stale(members)
        if members.needed <= 0:
            return await self._bind_ready(requester, members)
        if releasing is not None:
            words = f"the node has not released the former pod of {releasing} yet"
            return await self._wait(members, Reason.RELEASING, words)
        if few := gang.too_few(members.present):
            return await self._wait(members, Reason.GANG_INCOMPLETE, few)
        if left := self._timed_out.remaining(members.key):
            return await self._pause(members, left)
        self._end_timeout(members.key)
        if not any(member.held for member in members.waiting):
            self._reserved.forget(members.key)
        return await self._place(requester, members)

    def nearness(self, requester: Requester) -> Nearness | None:
        """How near its gang a requester that is scheduled alone is placed; None if anywhere.

        Raises:
            InvalidValueError: its gang labels are not acceptable.
        """
        gang = requester.standing().gang
        if gang is None or gang.near is None:
            return None
        return self._members(requester, gang).near

    async def _place(self, requester: Requester, members: Members) -> GangResult | None:
        request, eligible = await self._request(members)
        self._context.cluster_state.ledger()
        growths = self._context.cluster_state.growths
        placement = await self._placement(request, eligible)
        if not placement.whole:
            result = await self._wait_for_room(members, request, placement)
            self._no_room.note(members.key, growths)
            if self._context.cluster_state.growths != growths:
                # There was more room between two orders, and nobody waited for it yet.
                self._queue(requester.key)
            return result
        await self._context.pool.reserve_all(
            [
                Reservation(each.demand, each.decision, each.demand.attempt + 1)
                for each in placement.placed
            ]
        )
        self._end_nomination(members.key)
        members = await self._read_members(requester, members.gang)
        await self._release_stale(members)
        return await self._bind_ready(requester, members)

    async def _prepare(self, requester: Requester, gang: Gang) -> None:
        """Read what is needed to know the nodes of every member."""
        async for each in in_steps(self._in_gang(requester, gang)):
            if not each.decided and not each.finished:
                await each.prepare()

    def _try_again(self, name: Key) -> None:
        """Queue one member of a gang that had news while it was known to have no room.

        It need not be one that had news: those may have left the gang, or be acceptable no more.
        """
        self._no_room.end_postponement(name)
        each = next((one for one in self._named(name) if demand_of_member(one)), None)
        gang = each.standing().gang if each is not None else None
        waiting = self._members(each, gang).waiting if each is not None and gang else ()
        if waiting:
            self._queue(waiting[0].requester.key)

    def _check_size(self, requester: Requester, gang: Gang) -> None:
        """Check that no more members wait than may be placed together.

        Raises:
            InvalidValueError: there are more; the field is the label of the gang.
        """
        most, namespace = self._configuration.now().gang_members, requester.key.key.namespace
        kinds = self._context.kinds.values()
        waiting = sum(kind.waiting_in_gang(namespace, gang.name) for kind in kinds)
        if max(waiting, gang.min_available) > most:
            words = f"more than {most} members of gang {gang.name} wait, and gangMembers is {most}"
            self._oversized.add(requester.key)
            raise InvalidValueError(GROUP_NAME, words)
        self._oversized.discard(requester.key)

    def _in_gang(self, requester: Requester, gang: Gang) -> Iterator[Requester]:
        """All requesters that name a gang, in the namespace of this one."""
        return self._named(Key(requester.key.key.namespace, gang.name))

    def _named(self, gang: Key) -> Iterator[Requester]:
        for kind in self._context.kinds.values():
            yield from kind.in_gang(gang.namespace, gang.name)

    def _members(self, requester: Requester, gang: Gang) -> Members:
        """The members of a gang that exist now; goes through all of them in one step."""
        found = self._in_gang(requester, gang)
        return Members(gang, list(self._each_member(requester, found)))

    async def _read_members(self, requester: Requester, gang: Gang) -> Members:
        """The same in several steps: a large gang takes longer than one may take.

        Raises:
            StaleDecisionError: there are none any more.
        """
        found = [each async for each in in_steps(self._in_gang(requester, gang))]
        members = [each async for each in in_steps(self._each_member(requester, found))]
        if not members:
            raise StaleDecisionError(f"gang {gang.name} has no member any more")
        return Members(gang, members)

    def _each_member(self, requester: Requester, in_gang: Iterable[Requester]) -> Iterator[Member]:
        """The members among those that name a gang, the oldest first.

        A finished one counts for members of the same controller: the pods of a Job that is
        partly done. It does not count for others, such as the next Job of a CronJob.
        """
        # A pod that is bound meanwhile is read twice; it was read as a bound one last.
        latest = {each.uid: each for each in in_gang}
        oldest_first = sorted(latest.values(), key=lambda each: (each.created, each.key))
        agreed: dict[str, int | str] | None = None
        for each in oldest_first:
            if each.deleting or each.not_ready:
                continue
            if each.finished and each.controller != requester.controller:
                continue
            demand = demand_of_member(each)
            if demand is None:
                continue
            terms = gang_terms(each.standing())
            agreed = agreed or terms
            if terms == agreed:
                yield Member(each, demand, self._context.pool.held_by(each.uid))

    async def _request(self, members: Members) -> tuple[RoomRequest, Mapping[str, Eligible]]:
        """The demands of the members without shares, and the nodes of each, by its uid."""
        asking = [member for member in members.waiting if not member.held]
        eligible: dict[str, Eligible] = {}
        for member in asking:
            found = self._context.candidates.of(member.requester, member.demand)
            eligible[member.requester.uid] = found
            # Of a pod, all nodes are gone through.
            await asyncio.sleep(0)
        request = RoomRequest(
            owner=members.name,
            requesters=[member.requester for member in asking],
            demands=[
                restrict_nodes(member.demand, eligible[member.requester.uid]) for member in asking
            ],
            needed=members.needed,
            priority=asking[0].requester.standing().priority,
            near=members.near,
        )
        return request, eligible

    async def _placement(
        self, request: RoomRequest, eligible: Mapping[str, Eligible]
    ) -> GangPlacement:
        context = self._context
        now = asyncio.get_running_loop().time()
        reserving = context.nominations.policy(context.policy, request.uids, request.priority, now)
        requesters = {requester.uid: requester for requester in request.requesters}
        mates, placed = Mates(), set[str]()

        def policy(ledger: Ledger, demand: Demand) -> Decision:
            nonlocal placed
            holding = set(ledger.holding(requesters.keys()))
            for uid in placed - holding:
                mates.remove(uid)
            for uid in holding - placed:
                node = ledger.devices[min(ledger.held_by(uid))].node
                requesters[uid].place_beside(node, mates)
            placed = holding
            nodes = requesters[demand.uid].filter_beside(eligible[demand.uid], mates)
            return decide(reserving, ledger, demand, nodes)

        best = GangPlacement(room_for=0)
        ledger = context.cluster_state.ledger_to_place(requesters.keys())
        for best in placements(policy, ledger, request.demands, request.needed, request.near):
            if best.whole:
                break
            # A step takes milliseconds, all orders a second: the Lease must not wait.
            await asyncio.sleep(0)
            mates.forget_refusals()
            if context.cluster_state.ledger_to_place(requesters.keys()) is not ledger:
                raise StaleDecisionError("the ledger was built anew")
        return best

    async def _wait_for_room(
        self, members: Members, request: RoomRequest, placement: GangPlacement
    ) -> GangResult:
        words = members.gang.no_room(members.needed, placement)
        ledger = self._context.cluster_state.ledger()
        if placement.unplaced:
            first, *mates = request.demands
            words += f"; {explain(ledger, first, placement.unplaced, mates=mates)}"
            if failed := failure(placement.unplaced):
                self._metrics.decisions.labels("failed").inc()
                if all(each.requester.shows(Reason.POLICY_FAILED) for each in members.waiting):
                    # The first message stays: a policy may raise other words each time.
                    for each in members.waiting:
                        self._context.binder.await_room(each.requester)
                    return GangResult()
                return await self._wait(members, Reason.POLICY_FAILED, failed)
        result = await self._wait(members, Reason.GANG_NO_ROOM, words, ledger)
        self._nominated.add(members.key)
        retry = earliest(result.retry, await self._context.preemptor.make_room(request))
        now = asyncio.get_running_loop().time()
        reserved = self._context.nominations.seconds_left(request.uids, request.priority, now)
        return GangResult(earliest(retry, None if reserved is None else RequeueAfter(reserved)))

    async def _release_stale(self, members: Members) -> str | None:
        """Release shares that do not match; the name of a member whose node has to do it.

        Raises:
            StaleDecisionError: shares were released.
        """
        releasing: str | None = None
        async for member in in_steps(members.waiting):
            if member.held and not self._may_keep(member):
                if not await self._context.binder.awaits_release(member.requester, member.demand):
                    raise StaleDecisionError(f"{member.demand.name} asks for something else now")
                releasing = releasing or member.demand.name
        return releasing

    def _may_keep(self, member: Member) -> bool:
        """Its shares match its demand, on a node that it may still run on."""
        node = member.held[0].spec.node_name
        return member.ready and self._context.binder.still_eligible(
            member.requester, member.demand, node
        )

    async def _bind_ready(self, requester: Requester, members: Members) -> GangResult | None:
        """Bind all members that hold their shares, once all their vGPUs are ready."""
        ready = [member for member in members.waiting if member.ready]
        blocked = [
            BlockedRequester(member.requester, member.demand, blocker)
            async for member in in_steps(ready)
            if (blocker := member.requester.blocker(member.held)) is not None
        ]
        handled = any(member.requester.uid == requester.uid for member in ready)
        if blocked:
            result = await self._wait_for_vgpus(members, blocked)
            return result if handled else None
        self._reserved.forget(members.key)
        retry: RequeueAfter | None = None
        for member in ready:
            try:
                later = await self._context.binder.resume(
                    member.requester, member.demand, member.held
                )
            except (ConflictError, NotFoundError):
                # The members after it wait: without it they may not be enough.
                await self._context.binder.refresh(member.requester)
                raise
            retry = earliest(retry, later)
        return GangResult(retry) if handled else None

    async def _wait_for_vgpus(
        self, members: Members, blocked: Sequence[BlockedRequester]
    ) -> GangResult:
        """Wait a bounded time for the vGPUs of members; none of them is bound.

        Raises:
            StaleDecisionError: the shares were given up for others.
        """
        first, timeout = blocked[0], self._configuration.now().gang_timeout_seconds
        waits = f"{first.demand.name} waits: {first.blocker.message}"
        left = self._reserved.remaining(members.key, timeout)
        if not left:
            self._reserved.forget(members.key)
            self._timed_out.delay(members.key, timeout)
            self._timeout_messages[members.key] = (
                f"it has not started within {timeout:g} s, and others have their turn; {waits}"
            )
            return await self._pause(members, timeout)
        words = f"gang {members.gang.name}: {waits}"
        retry: RequeueAfter | None = RequeueAfter(left)
        blocker = Blocker(first.blocker.reason, words, first.blocker.transient)
        # Members beyond those that are needed hold nothing: they are reported one by one.
        for member in members.waiting:
            if member.ready:
                wait = await self._context.binder.wait_for_vgpus(member.requester, blocker)
                retry = earliest(retry, wait)
        return GangResult(earliest(retry, await self._context.binder.reschedule(blocked)))

    async def _pause(self, members: Members, seconds: float) -> GangResult:
        """Release the shares of a gang that did not start in time; it is not tried for a while."""
        await self._wait(members, Reason.GANG_TIMED_OUT, self._timeout_messages[members.key])
        return GangResult(RequeueAfter(seconds))

    async def _wait(
        self, members: Members, reason: Reason, words: str, ledger: Ledger | None = None
    ) -> GangResult:
        """Release the shares of a gang, and set the condition of all members.

        If the words explain a ledger, those of many members are renewed only now and then: at the
        next try after that.
        """
        binder = self._context.binder
        for member in members.waiting:
            if member.held:
                await binder.refresh(member.requester)
        message = f"gang {members.gang.name}: {words}"
        explanation = (
            Explanation(ledger, lambda: message, requesters=len(members.waiting))
            if ledger is not None
            else message
        )
        for place, member in enumerate(members.waiting):
            # The oldest one is tried again for all of them.
            report = binder.report if place else binder.mark_unschedulable
            await report(member.requester, reason, explanation)
        requesters = [member.requester for member in members.waiting]
        return GangResult(self._context.candidates.next_retry(requesters))
