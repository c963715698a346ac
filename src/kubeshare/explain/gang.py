"""Explains the state of a gang by the scheduler's own rules."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kubeshare.api import sharepods
from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.api.types.constants import GATE, LABEL_ROLE, ROLE_POD
from kubeshare.api.types.core_v1 import TERMINAL_PHASES
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.core.decision import Decision, device_names
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.explain import Change
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.gang import Gang, GangPlacement, Nearness, place_gang
from kubeshare.core.gang_preemption import change_for_gang
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.dialects.priority_and_gang import GROUP_NAME, Standing
from kubeshare.explain.cluster_reader import Seen
from kubeshare.kube.resources import PODS, Raw, Resource
from kubeshare.scheduler.gang.members import check_agreement, gang_terms
from kubeshare.scheduler.scheduling import decide, restrict_nodes

if TYPE_CHECKING:
    from kubeshare.kube.client.client import Client


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a gang.

    Attributes:
        name: ``Kind namespace/name``.
        created: when, as RFC 3339.
        demand: what it asks for.
        standing: its priority and its gang.
        where: the nodes and vGPUs that it may go to.
        decided: its object names where it goes.
        held: ``node/GPUID`` of each vGPU of which it holds a share.
    """

    name: str
    created: str
    demand: Demand
    standing: Standing
    where: Eligible
    decided: bool
    held: tuple[str, ...]

    @property
    def placed(self) -> bool:
        """It has a GPU."""
        return self.decided or bool(self.held)


class GangFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What `explain` prints of a gang.

    Attributes:
        name: its own.
        needs: how many members have to be placed together.
        there: how many have a GPU or ask for one.
        placed: how many have a GPU.
        members: each one's name -> where it is or would go, or that there is no room for it.
        timeout: seconds that it has to start once it holds its shares; None if not known.
        needed: how many more have to be placed together.
        claim: the members to be placed together; empty where others have to be created first.
        decision: for the requester in question; None where it is decided alone.
        change: the smallest change that would place the gang.
        near: how near those that are placed further members are placed; None if anywhere.
    """

    name: str
    needs: int
    there: int
    placed: int
    members: Mapping[str, str]
    timeout: float | None
    needed: int
    claim: tuple[Demand, ...] = ()
    decision: Decision | None = None
    change: Change | None = None
    near: Nearness | None = None


async def read_members(
    client: "Client", seen: Seen, gang: Gang, namespace: str, controller: str
) -> list[Member]:
    """Read the members of a gang that exist, the oldest first.

    Args:
        client: the cluster.
        seen: the same, as read.
        gang: which.
        namespace: of it.
        controller: the uid of what made the one that is asked about; members of it that have
            ended count.
    """
    found: list[Member] = []
    for resource in (SHAREPODS, PODS):
        for raw in (
            await client.list(resource, namespace, labels=f"{GROUP_NAME}={gang.name}")
        ).items:
            if _counts(resource, raw, controller):
                member = _member(seen, resource, raw)
                found += [member] if member else []
    return sorted(found, key=lambda member: (member.created, member.name))


def of_gang(seen: Seen, members: Sequence[Member], uid: str) -> GangFinding:
    """Compute the state of a gang.

    Args:
        seen: the cluster.
        members: those that are there, the oldest first.
        uid: of the one that was asked about, which is among them.

    Raises:
        InvalidValueError: its gang settings differ from the oldest member's.
    """
    asked = next(member for member in members if member.demand.uid == uid)
    check_agreement(asked.standing, members[0].standing, members[0].name)
    agreed = [
        each for each in members if gang_terms(each.standing) == gang_terms(members[0].standing)
    ]
    gang = asked.standing.gang
    assert gang is not None
    waiting = [member for member in agreed if not member.placed]
    placed = len(agreed) - len(waiting)
    finding = GangFinding(
        name=gang.name,
        needs=gang.min_available,
        there=len(agreed),
        placed=placed,
        members={each.name: _where(each) for each in agreed},
        timeout=seen.configuration.gang_timeout_seconds if seen.configuration else None,
        needed=max(0, gang.min_available - placed),
        near=gang.nearness(each.demand.uid for each in agreed if each.placed and each != asked),
    )
    if not finding.needed or asked.placed:
        return finding
    if few := gang.too_few(len(agreed)):
        return msgspec.structs.replace(finding, decision=gang.pending(few))
    return _together(seen, finding, gang, waiting, uid)


def _together(
    seen: Seen, finding: GangFinding, gang: Gang, waiting: Sequence[Member], uid: str
) -> GangFinding:
    """Place the members that have to be placed together, or say why that fails."""
    needed = finding.needed
    where = {member.demand.uid: member.where for member in waiting}
    demands = tuple(restrict_nodes(member.demand, member.where) for member in waiting)

    def policy(ledger: Ledger, demand: Demand) -> Decision:
        return decide(seen.policy, ledger, demand, where[demand.uid])

    answer = place_gang(policy, seen.ledger, demands, needed, finding.near)
    decisions = _in_names(answer, seen.ledger)
    change = None
    if not answer.whole:
        uids = {member.demand.uid for member in waiting}
        change = change_for_gang(
            policy, seen.ledger, demands, needed=needed, stay=uids, near=finding.near
        )
    return msgspec.structs.replace(
        finding,
        members={**finding.members, **_would_go(waiting, decisions)},
        claim=demands,
        decision=decisions.get(uid) or gang.pending(gang.no_room(needed, answer), answer.unplaced),
        change=change,
    )


def _in_names(answer: GangPlacement, ledger: Ledger) -> dict[str, Decision]:
    """The uid of each demand that was placed -> the decision, with the GPUs by their names."""
    # A member may share a GPU that is opened for one before it.
    devices = {**ledger.devices}
    devices |= {device.id: device for each in answer.placed for device in each.decision.new}
    return {
        each.demand.uid: msgspec.structs.replace(
            each.decision, devices=device_names(each.decision, devices)
        )
        for each in answer.placed
    }


def _would_go(waiting: Sequence[Member], decisions: Mapping[str, Decision]) -> dict[str, str]:
    places = {
        uid: ", ".join(f"{decision.node}/{gpu}" for gpu in decision.devices)
        for uid, decision in decisions.items()
    }
    return {
        member.name: f"would go to {places[member.demand.uid]}"
        if member.demand.uid in places
        else "waits"
        for member in waiting
    }


def _where(member: Member) -> str:
    if member.held:
        return f"has {', '.join(member.held)}"
    return "is placed" if member.decided else "waits"


def _counts(resource: Resource[Raw], raw: Raw, controller: str) -> bool:
    """Whether it exists, or has ended and has the same controller as the one in question."""
    metadata, status = raw["metadata"], raw.get("status") or {}
    if metadata.get("deletionTimestamp") or status.get("phase") == "Failed":
        return False
    if resource is PODS:
        if (metadata.get("labels") or {}).get(LABEL_ROLE) != ROLE_POD:
            return False
        gates = {gate["name"] for gate in raw["spec"].get("schedulingGates") or ()}
        if gates - {GATE}:
            return False
    ended = status.get("phase") in TERMINAL_PHASES
    return not ended or (bool(controller) and controller_of(raw) == controller)


def controller_of(raw: Mapping[str, Any]) -> str:
    """The uid of an object's controller; ``""`` where it has none."""
    owners = raw["metadata"].get("ownerReferences") or ()
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), "")


def _member(seen: Seen, resource: Resource[Raw], raw: Raw) -> Member | None:
    """None for an object that asks for no share or is invalid: its own condition says so."""
    try:
        demand, standing = seen.demand(resource, raw), seen.standing(raw)
    except InvalidValueError:
        return None
    if demand is None or standing.gang is None:
        return None
    metadata = raw["metadata"]
    if resource is SHAREPODS:
        decided = sharepods.decided(sharepods.view(raw))
    else:
        decided = not raw["spec"].get("schedulingGates")
    devices = seen.ledger.devices
    return Member(
        name=f"{resource.kind} {metadata['namespace']}/{metadata['name']}",
        created=metadata.get("creationTimestamp") or "",
        demand=demand,
        standing=standing,
        where=seen.where(resource, raw, demand),
        decided=decided,
        held=tuple(sorted(devices[gpu].path for gpu in seen.ledger.held_by(demand.uid))),
    )
