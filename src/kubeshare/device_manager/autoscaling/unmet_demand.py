"""Who waits for a GPU that no node has, and would get one of a new node.

SharePods, plain pods and gangs alike: those whose condition says that there is no room. Of
a gang that is as many members as it needs, less those for which there is room: each of them
alone may well fit.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubeshare.api import sharepods
from kubeshare.api.gang_members import gang_of
from kubeshare.api.predicates.eligibility import Eligibility
from kubeshare.api.state.cluster_state import ClusterState
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
from kubeshare.core.policies import Policy
from kubeshare.dialects.priority_and_gang import standing_of
from kubeshare.kube.cache.store import Store
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.conditions import find_condition
from kubeshare.kube.controller.events import ObjectReference, reference
from kubeshare.kube.meta import Condition, Key
from kubeshare.kube.resources import PODS, Raw

MAX_PODS: Final = 256
"""Plain pods of which the manifests are read; the oldest ones, where more wait."""

_GATED: Final = "waits behind our gate"


class PendingRequester(msgspec.Struct, frozen=True, kw_only=True):
    """Who waits.

    Attributes:
        demand: what it asks for.
        spec: its PodSpec as the manifest has it.
        reference: what events about it name.
        created: when, as RFC 3339.
        gang: its gang, if it has one.
        needed: how many of that have to be placed together.
    """

    demand: Demand
    spec: Mapping[str, Any]
    reference: ObjectReference
    created: str
    gang: Key | None = None
    needed: int = 0


class UnmetDemand:
    """Finds those who wait for a GPU that no node has.

    Args:
        client: for what a plain pod asks of its node, which the watch does not keep.
        sharepod_store: the SharePods.
        pods: all pods.
        cluster_state: the cluster's GPUs.
        eligibility: the nodes that pods may go to.
        policy: says whether a new node would help.
    """

    def __init__(  # noqa: PLR0913 - what it looks at
        self,
        *,
        client: Client,
        sharepod_store: Store[Raw],
        pods: Store[Pod],
        cluster_state: ClusterState,
        eligibility: Eligibility,
        policy: Policy,
    ) -> None:
        self._client = client
        self._sharepod_store = sharepod_store
        self._pods = pods
        self._pods.add_index(_GATED, lambda each: [_GATED] if _is_gated(each) else [])
        self._cluster_state = cluster_state
        self._eligibility = eligibility
        self._policy = policy
        self._manifests: dict[str, Raw] = {}  # uid of a plain pod that waits -> as it came

    async def waiting(self) -> list[PendingRequester]:
        """All who are told that there is no room, the oldest first."""
        await self._read_pods()
        found = [*self._sharepods(), *self._plain_pods()]
        return sorted(found, key=lambda each: (each.created, each.demand.uid))

    def helped(self, waiting: Sequence[PendingRequester]) -> Iterator[PendingRequester]:
        """Those of them that would get a GPU of a new node, found as they are asked for.

        Args:
            waiting: as :meth:`waiting` gave them.
        """
        gangs: dict[Key, list[PendingRequester]] = {}
        for each in waiting:
            if each.gang is not None:
                gangs.setdefault(each.gang, []).append(each)
        for each in waiting:
            if each.gang is not None:
                yield from self._helped_of_gang(gangs.pop(each.gang, []))
            elif self._helps(each):
                yield each

    def _helped_of_gang(self, members: Sequence[PendingRequester]) -> list[PendingRequester]:
        """The members for which there is no room beside the others, as far as they are needed."""
        ledger = self._cluster_state.ledger()
        short: list[PendingRequester] = []
        room = 0
        with ledger.what_if():
            for member in members:
                demand = self._bounded(member)
                decision = self._policy(ledger, demand)
                if decision.node is not None:
                    commit(ledger, demand, decision)
                    room += 1
                elif new_node_helps(self._policy, ledger, demand):
                    short.append(member)
        return short[: max(0, members[0].needed - room)] if short else []

    def _helps(self, short: PendingRequester) -> bool:
        return new_node_helps(self._policy, self._cluster_state.ledger(), self._bounded(short))

    def _bounded(self, short: PendingRequester) -> Demand:
        where = self._eligibility.of(short.spec).nodes
        return msgspec.structs.replace(short.demand, nodes=where)

    def _sharepods(self) -> Iterator[PendingRequester]:
        for raw in self._sharepod_store.snapshot().values():
            seen = sharepods.view(raw)
            reported = find_condition(seen.status.conditions, CONDITION_SCHEDULED)
            if not _no_room(reported) or sharepods.is_deleting(seen) or sharepods.decided(seen):
                continue
            try:
                demand = self._cluster_state.demands.of_sharepod(raw)
            except InvalidValueError:
                continue
            yield from _short(raw, demand, reference(SHAREPODS, seen))

    def _plain_pods(self) -> Iterator[PendingRequester]:
        for seen in self._gated():
            raw = self._manifests.get(seen.metadata.uid)
            if raw is None:
                continue
            try:
                demand = self._cluster_state.demands.of_pod(raw, self._models())
            except InvalidValueError:
                continue
            yield from _short(raw, demand, reference(PODS, seen))

    def _gated(self) -> list[Pod]:
        found = [
            each
            for each in self._pods.by_index(_GATED, _GATED)
            if _no_room(each.condition(CONDITION_POD_SCHEDULED))
        ]
        found.sort(key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.key))
        return found[:MAX_PODS]

    async def _read_pods(self) -> None:
        """Read what those plain pods ask for that are new among those that wait."""
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


def _is_gated(seen: Pod) -> bool:
    return (
        seen.gated
        and seen.metadata.labels.get(LABEL_ROLE) == ROLE_POD
        and seen.metadata.deletion_timestamp is None
    )


def _no_room(reported: Condition | None) -> bool:
    return reported is not None and reported.reason in (Reason.NO_ROOM, Reason.GANG_NO_ROOM)


def _short(raw: Raw, demand: Demand | None, about: ObjectReference) -> Iterator[PendingRequester]:
    """The asker of a manifest, unless it is bound to a node or a GPU of its author's choice."""
    if demand is None or demand.device_id or demand.nodes is not None:
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
