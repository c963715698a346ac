"""Gangs: none of their members is given a GPU before enough of them can be.

A gang waits until as many members are there as it needs, and until there is room for
them together. Then the parts of all of them are taken in one go, in the order of the
GPUs, and given back if one of them cannot be had; only then are they told. What was
taken for a gang when this program was cut off is completed if there is room for the
rest, and given back if there is not. Once enough are placed, whoever comes later is
decided about alone.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kubeshare.api.configuration import DynamicConfiguration
from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.api.state.vgpu_store import Reservation, StaleDecisionError
from kubeshare.api.types.reasons import Reason
from kubeshare.api.vgpu_readiness import Blocker
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.gang import Gang, GangPlacement, place_gang
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.kube.client.errors import ConflictError, NotFoundError
from kubeshare.kube.controller.controller import RequeueAfter, earliest
from kubeshare.kube.meta import Key
from kubeshare.scheduler.binding import BlockedRequester
from kubeshare.scheduler.context import SchedulingContext
from kubeshare.scheduler.gang.members import (
    Member,
    Members,
    check_agreement,
    demand_of_member,
    gang_terms,
)
from kubeshare.scheduler.preemption.preemption import RoomRequest
from kubeshare.scheduler.requesters.base import Requester
from kubeshare.scheduler.scheduling import decide, explain, restrict_nodes


@dataclass(frozen=True)
class GangResult:
    """All is said of an asker by what was done for its gang; when to look again, if ever."""

    retry: RequeueAfter | None = None


class GangScheduler:
    """Places gangs.

    Args:
        parts: what decisions are made by and carried out with.
        configuration: says how long a gang may wait for what it has taken.
    """

    def __init__(self, parts: SchedulingContext, configuration: DynamicConfiguration) -> None:
        self._parts = parts
        self._configuration = configuration
        self._reserved: dict[Key, float] = {}  # gang -> since when it has its parts (loop time)
        self._paused: dict[Key, tuple[float, str]] = {}  # gang -> until when, and why

    def forget_gone(self) -> None:
        """Remember nothing of gangs that are gone."""
        for known in (self._reserved, self._paused):
            for gang in [gang for gang in known if not self._is_there(gang)]:
                del known[gang]

    def _is_there(self, gang: Key) -> bool:
        found = (kind.in_gang(gang.namespace, gang.name) for kind in self._parts.kinds.values())
        return any(True for members in found for _ in members)

    async def schedule(self, requester: Requester, gang: Gang) -> GangResult | None:
        """Place the gang of an asker that is undecided, if that is to be done now.

        Returns:
            None where the asker is to be decided about alone: enough others are placed.

        Raises:
            InvalidValueError: it says something else of its gang than the oldest member.
            StaleDecisionError: others have changed the cluster meanwhile.
            ConflictError: a member has changed meanwhile.
            NotFoundError: a member has gone meanwhile.
            ApiError: where a member may go cannot be found out now.
        """
        await self._prepare(requester, gang)
        members = self._members(requester, gang)
        oldest = members.all[0].requester
        check_agreement(requester.standing(), oldest.standing(), oldest.key)
        released = await self._former(members)
        if members.needed <= 0:
            return await self._complete(requester, members)
        if released is not None:
            words = f"the node has not released the former pod of {released} yet"
            return await self._wait(members, Reason.RELEASING, words)
        if few := gang.too_few(members.present):
            return await self._wait(members, Reason.GANG_INCOMPLETE, few)
        until, why = self._paused.get(members.key, (0.0, ""))
        left = until - asyncio.get_running_loop().time()
        if left > 0:
            return await self._pause(members, left, why)
        self._paused.pop(members.key, None)
        if not any(member.held for member in members.waiting):
            self._reserved.pop(members.key, None)
        claim, where = self._claim(members)
        answer = self._answer(claim, where)
        if not answer.whole:
            return await self._no_room(members, claim, answer)
        await self._parts.pool.reserve_all(
            [
                Reservation(each.demand, each.decision, each.demand.attempt + 1)
                for each in answer.placed
            ]
        )
        self._parts.nominations.remove(claim.owner)
        members = self._members(requester, gang)
        await self._former(members)
        return await self._complete(requester, members)

    async def _prepare(self, requester: Requester, gang: Gang) -> None:
        """Know of all members where they may go, not only of those that had their turn."""
        for each in self._in(requester, gang):
            if not each.decided and not each.finished:
                await each.prepare()

    def _in(self, requester: Requester, gang: Gang) -> list[Requester]:
        """All that name a gang."""
        return [
            each
            for kind in self._parts.kinds.values()
            for each in kind.in_gang(requester.key.key.namespace, gang.name)
        ]

    def _members(self, requester: Requester, gang: Gang) -> Members:
        """Those of a gang that are there now.

        One that has ended counts for those of its own controller: of a Job it is one that is
        done. For others, such as the next Job of a CronJob, it is of the past.
        """
        found = [
            Member(each, demand, self._parts.pool.held_by(each.uid))
            for each in self._in(requester, gang)
            if not (each.deleting or each.not_ready)
            and (not each.finished or each.controller == requester.controller)
            and (demand := demand_of_member(each)) is not None
        ]
        found.sort(key=lambda member: (member.requester.created, member.requester.key))
        said = [gang_terms(member.requester.standing()) for member in found]
        agreed = [member for member, each in zip(found, said, strict=True) if each == said[0]]
        return Members(gang, agreed)

    def _claim(self, members: Members) -> tuple[RoomRequest, Mapping[str, Eligible]]:
        """What those of a gang ask for that have taken nothing yet, and where they may go."""
        asking = [member for member in members.waiting if not member.held]
        where = {
            member.requester.uid: self._parts.candidates.of(member.requester) for member in asking
        }
        claim = RoomRequest(
            owner=members.name,
            requesters=[member.requester for member in asking],
            demands=[
                restrict_nodes(member.demand, where[member.requester.uid]) for member in asking
            ],
            needed=members.needed,
            priority=asking[0].requester.standing().priority,
        )
        return claim, where

    def _answer(self, claim: RoomRequest, where: Mapping[str, Eligible]) -> GangPlacement:
        """Where they go."""
        now = asyncio.get_running_loop().time()
        keeping = self._parts.nominations.policy(
            self._parts.policy, claim.uids, claim.priority, now
        )
        requesters = {requester.uid: requester for requester in claim.requesters}

        def placed(ledger: Ledger) -> Iterator[tuple[str, Requester]]:
            for uid, each in requesters.items():
                if held := ledger.held_by(uid):
                    yield ledger.devices[min(held)].node, each

        def policy(ledger: Ledger, demand: Demand) -> Decision:
            there = requesters[demand.uid].filter_for_gang(where[demand.uid], placed(ledger))
            return decide(keeping, ledger, demand, there)

        return place_gang(policy, self._parts.cluster_state.ledger(), claim.demands, claim.needed)

    async def _no_room(
        self, members: Members, claim: RoomRequest, answer: GangPlacement
    ) -> GangResult:
        words = members.gang.no_room(members.needed, answer)
        words += f"; {explain(answer.unplaced)}" if answer.unplaced else ""
        waits = await self._wait(members, Reason.GANG_NO_ROOM, words)
        again = earliest(waits.retry, await self._parts.preemptor.make_room(claim))
        now = asyncio.get_running_loop().time()
        kept = self._parts.nominations.seconds_left(claim.uids, claim.priority, now)
        return GangResult(earliest(again, None if kept is None else RequeueAfter(kept)))

    async def _former(self, members: Members) -> str | None:
        """Give back what members hold and do not ask for; the name of one who has to wait for it.

        Raises:
            StaleDecisionError: it was given back.
        """
        waits: str | None = None
        for member in members.waiting:
            if member.held and not self._may_keep(member):
                if not await self._parts.binder.awaits_release(member.requester, member.demand):
                    raise StaleDecisionError(f"{member.demand.name} asks for something else now")
                waits = waits or member.demand.name
        return waits

    def _may_keep(self, member: Member) -> bool:
        """What it holds is what it asks for, on a node that still takes it."""
        there = member.held[0].spec.node_name
        return member.ready and self._parts.binder.still_eligible(member.requester, there)

    async def _complete(self, requester: Requester, members: Members) -> GangResult | None:
        """Tell all members whose parts are held, once all those parts are there."""
        ready = [member for member in members.waiting if member.ready]
        hindered = [
            BlockedRequester(member.requester, member.demand, hindrance)
            for member in ready
            if (hindrance := member.requester.blocker(member.held)) is not None
        ]
        told = any(member.requester.uid == requester.uid for member in ready)
        if hindered:
            held = await self._hold(members, hindered)
            return held if told else None
        self._reserved.pop(members.key, None)
        again: RequeueAfter | None = None
        for member in ready:
            try:
                look = await self._parts.binder.resume(member.requester, member.demand, member.held)
            except (ConflictError, NotFoundError):
                # Those that come after it wait, for without it they may not be enough.
                await self._parts.binder.refresh(member.requester)
                raise
            again = earliest(again, look)
        return GangResult(again) if told else None

    async def _hold(self, members: Members, hindered: Sequence[BlockedRequester]) -> GangResult:
        """The parts of members are not there yet: nobody is told, and not for ever.

        Raises:
            StaleDecisionError: they have been given up for others.
        """
        first = hindered[0]
        now, timeout = asyncio.get_running_loop().time(), self._timeout
        left = self._reserved.setdefault(members.key, now) + timeout - now
        waits = f"{first.demand.name} waits: {first.blocker.message}"
        if left <= 0:
            del self._reserved[members.key]
            words = f"it has not started within {timeout:g} s, and others have their turn; {waits}"
            self._paused[members.key] = (now + timeout, words)
            return await self._pause(members, timeout, words)
        words = f"gang {members.gang.name}: {waits}"
        again: RequeueAfter | None = RequeueAfter(left)
        # Those beyond the members that it needs are told, each alone, why they have no part.
        for each in (member for member in members.waiting if member.ready):
            told = Blocker(first.blocker.reason, words, first.blocker.transient)
            again = earliest(again, await self._parts.binder.wait_for_vgpus(each.requester, told))
        return GangResult(earliest(again, await self._parts.binder.reschedule(hindered)))

    @property
    def _timeout(self) -> float:
        return self._configuration.now().gang_timeout_seconds

    async def _pause(self, members: Members, seconds: float, words: str) -> GangResult:
        """A gang that has not started in time gives all back, and is not tried for a while."""
        await self._wait(members, Reason.GANG_TIMED_OUT, words)
        return GangResult(RequeueAfter(seconds))

    async def _wait(self, members: Members, reason: Reason, words: str) -> GangResult:
        """Have a gang wait: what it has taken is given back, and all are told."""
        for member in members.waiting:
            if member.held:
                await self._parts.binder.refresh(member.requester)
        message = f"gang {members.gang.name}: {words}"
        for place, member in enumerate(members.waiting):
            # The oldest one is tried again for all of them.
            say = (
                self._parts.binder.set_condition if place else self._parts.binder.mark_unschedulable
            )
            await say(member.requester, reason, message)
        return GangResult(
            self._parts.candidates.next_retry(member.requester for member in members.waiting)
        )
