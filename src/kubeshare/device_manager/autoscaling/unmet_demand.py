"""Finds pending requesters that a new node with GPUs would help.

Requesters are SharePods, plain pods and gangs whose condition says that there is no room. Of a
gang they are as many members as it needs, less those that fit now: each member alone may fit.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubeshare.api import sharepods
from kubeshare.api.gang_members import gang_of
from kubeshare.api.predicates.eligibility import Eligibility
from kubeshare.api.types.constants import (
    CONDITION_POD_SCHEDULED,
    CONDITION_SCHEDULED,
    LABEL_ROLE,
    ROLE_POD,
)
from kubeshare.api.types.core_v1 import Pod
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.core.decision import commit
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.scale_up import new_node_helps
from kubeshare.core.errors import InvalidValueError
from kubeshare.device_manager.context import Context
from kubeshare.dialects.priority_and_gang import standing_of
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.conditions import find_condition
from kubeshare.kube.controller.events import ObjectReference, reference
from kubeshare.kube.meta import Condition, Key
from kubeshare.kube.resources import PODS, Raw

MAX_PODS: Final = 256
"""Plain pods whose manifests are read: the oldest ones where more are pending."""

_GATED: Final = "waits behind our gate"
"""The index of plain pods that are pending."""


class PendingRequester(msgspec.Struct, frozen=True, kw_only=True):
    """A SharePod or plain pod for which there is no room.

    Attributes:
        demand: its demand.
        spec: its PodSpec as the manifest has it.
        reference: the object that events are about.
        created: its creation time, RFC 3339.
        gang: its gang, if it has one.
        needed: how many members of the gang must be placed together.
    """

    demand: Demand
    spec: Mapping[str, Any]
    reference: ObjectReference
    created: str
    gang: Key | None = None
    needed: int = 0


class UnmetDemand:
    """Finds the requesters for which no node has a GPU.

    Args:
        context: the state and the services that it uses.
    """

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._sharepod_store = context.informers.sharepods.store
        self._pods = context.informers.pods.store
        self._pods.add_index(_GATED, lambda each: [_GATED] if _is_gated(each) else [])
        self._cluster_state = context.cluster_state
        self._eligibility = Eligibility(context.informers.nodes, context.configuration)
        self._configuration = context.configuration
        self._policy = context.policy
        self._manifests: dict[str, Raw] = {}  # uid of a pending plain pod -> its manifest

    async def pending(self) -> list[PendingRequester]:
        """All requesters whose condition says that there is no room, the oldest first."""
        await self._read_pods()
        found = [*self._sharepods(), *self._plain_pods()]
        return sorted(found, key=lambda each: (each.created, each.demand.uid))

    def helped(self, pending: Sequence[PendingRequester]) -> Iterator[PendingRequester]:
        """The requesters that would get a GPU of a new node, in order; computed lazily."""
        gangs: dict[Key, list[PendingRequester]] = {}
        for each in pending:
            if each.gang is not None:
                gangs.setdefault(each.gang, []).append(each)
        for each in pending:
            if each.gang is not None:
                yield from self._helped_members(gangs.pop(each.gang, []))
            elif self._is_helped(each):
                yield each

    def _helped_members(self, members: Sequence[PendingRequester]) -> list[PendingRequester]:
        """The needed members of a gang that do not fit beside the others now."""
        ledger = self._cluster_state.ledger()
        unplaced: list[PendingRequester] = []
        placed = 0
        with ledger.what_if():
            for member in members:
                if ledger.held_by(member.demand.uid):
                    placed += 1  # its holder is there before the decision is written
                    continue
                demand = self._eligible_demand(member)
                decision = self._policy(ledger, demand)
                if decision.node is not None:
                    commit(ledger, demand, decision)
                    placed += 1
                elif new_node_helps(self._policy, ledger, demand):
                    unplaced.append(member)
        return unplaced[: max(0, members[0].needed - placed)] if unplaced else []

    def _is_helped(self, requester: PendingRequester) -> bool:
        ledger = self._cluster_state.ledger()
        if ledger.held_by(requester.demand.uid):
            return False
        return new_node_helps(self._policy, ledger, self._eligible_demand(requester))

    def _eligible_demand(self, requester: PendingRequester) -> Demand:
        """The demand of a requester, restricted to the nodes that its pod may go to."""
        nodes = self._eligibility.of(requester.spec, requester.demand.family).nodes
        return msgspec.structs.replace(requester.demand, nodes=nodes)

    def _sharepods(self) -> Iterator[PendingRequester]:
        for raw in self._sharepod_store.snapshot().values():
            view = sharepods.view(raw)
            scheduled = find_condition(view.status.conditions, CONDITION_SCHEDULED)
            if not _no_room(scheduled) or sharepods.is_deleting(view) or sharepods.decided(view):
                continue
            try:
                demand = self._cluster_state.demands.of_sharepod(raw)
            except InvalidValueError:
                continue
            yield from _requester(raw, demand, reference(SHAREPODS, view))

    def _plain_pods(self) -> Iterator[PendingRequester]:
        for gated in self._gated():
            raw = self._manifests.get(gated.metadata.uid)
            if raw is None:
                continue
            unit = self._configuration.now().gpushare.unit_bytes
            try:
                demand = self._cluster_state.demands.of_pod(raw, self._models(), unit=unit)
            except InvalidValueError:
                continue
            yield from _requester(raw, demand, reference(PODS, gated))

    def _gated(self) -> list[Pod]:
        found = [
            each
            for each in self._pods.by_index(_GATED, _GATED)
            if _no_room(each.condition(CONDITION_POD_SCHEDULED))
        ]
        found.sort(key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.key))
        return found[:MAX_PODS]

    async def _read_pods(self) -> None:
        """Read the manifests of newly pending plain pods, which the watch does not keep."""
        gated = self._gated()
        known = {each.metadata.uid for each in gated}
        self._manifests = {uid: raw for uid, raw in self._manifests.items() if uid in known}
        for each in gated:
            metadata = each.metadata
            if metadata.uid in self._manifests:
                continue
            try:
                live = await self._client.get(PODS, metadata.name, metadata.namespace)
            except NotFoundError:
                continue
            if live["metadata"]["uid"] == metadata.uid:
                self._manifests[metadata.uid] = live

    def _models(self) -> Collection[str]:
        nodes = self._cluster_state.ledger().nodes.values()
        return {kind.model for node in nodes for kind in node.kinds}


def _is_gated(each: Pod) -> bool:
    return (
        each.gated
        and each.metadata.labels.get(LABEL_ROLE) == ROLE_POD
        and each.metadata.deletion_timestamp is None
    )


def _no_room(scheduled: Condition | None) -> bool:
    return scheduled is not None and scheduled.reason in (Reason.NO_ROOM, Reason.GANG_NO_ROOM)


def _requester(
    raw: Raw, demand: Demand | None, about: ObjectReference
) -> Iterator[PendingRequester]:
    """The requester of a manifest, unless its author has chosen the node or the GPU.

    A demand of a family uses dedicated nodes only, and a new node is none before it is labelled.
    """
    if demand is None or demand.device_id or demand.nodes is not None or demand.family:
        return
    try:
        gang = standing_of(raw).gang
    except InvalidValueError:
        return
    yield PendingRequester(
        demand=demand,
        spec=raw["spec"],
        reference=about,
        created=raw["metadata"].get("creationTimestamp") or "",
        gang=gang_of(raw) if gang else None,
        needed=gang.min_available if gang else 0,
    )
