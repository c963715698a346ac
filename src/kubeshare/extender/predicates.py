"""Answers the filter of Tencent's gpu-admission, which decides.

Of all nodes exactly one fits, and the pod has its shares there at once, as holders without the uid
of a pod, so nothing runs with them. There is no bind call: kube-scheduler binds the pod to that
node, and the device manager then names its GPUs in it
(:mod:`kubeshare.device_manager.pod.naming`). A call for a pod that holds its shares on one of the
nodes changes nothing.

A pod that is deleted, bound elsewhere, or not bound for a minute loses them: the device manager
removes such holders (:mod:`kubeshare.device_manager.vgpu.orphans`).
"""

import asyncio
from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

from kubeshare.api import pod_state
from kubeshare.api.holder_codec import are_shares_of
from kubeshare.api.state.vgpu_store import VGPUStore
from kubeshare.api.vgpu_readiness import blocker, failure
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.policies.guard import FIELD as POLICY_FIELD
from kubeshare.core.quota.rows import FIELDS
from kubeshare.extender.binding import NOT_HANDED_OVER
from kubeshare.extender.nodes import FamilyNodes
from kubeshare.extender.placement import CHOSEN_BY_SCHEDULER, Placement
from kubeshare.extender.pod_lookup import PodLookup
from kubeshare.extender.reservation import (
    MAX_ATTEMPTS,
    AlreadyBoundError,
    BindError,
    Reservations,
)
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import Raw

NO_GPU: Final = "no GPU device"
"""Why a node of another kind does not fit, in the words of gpu-admission."""
MATCHED: Final = "pod {} has already been matched to another node"
"""Why the other nodes do not fit, in the same words."""
FIRST_ATTEMPT: Final = 1
"""The number of a pod's first decision."""
NO_ROOM: Final = "no GPU of the node fits"


class Predicates:
    """Places pods of Gaia when kube-scheduler filters nodes for them.

    Args:
        pool: the vGPUs.
        pod_lookup: finds the pods.
        placement: chooses node and GPUs.
        nodes: which nodes are dedicated to the family.
    """

    def __init__(
        self, pool: VGPUStore, pod_lookup: PodLookup, placement: Placement, nodes: FamilyNodes
    ) -> None:
        self._pool = pool
        self._pods = pod_lookup
        self._placement = placement
        self._nodes = nodes
        self._reservations = Reservations(pool, placement)
        self._deciding = asyncio.Lock()

    def asks(self, pod: Raw) -> bool:
        """Whether a pod asks for cores; all nodes fit others.

        Raises:
            InvalidValueError: a value is not acceptable.
        """
        return self._placement.demand(pod) is not None

    async def refusals(self, key: Key, uid: str, names: Collection[str]) -> Mapping[str, str]:
        """Reserve the shares of a pod on one of these nodes.

        Returns:
            name of each other node → why it does not fit; of all, where none does.

        Raises:
            BindError: there is no such pod, or it cannot be placed.
            InvalidValueError: a value of it is not acceptable.
            ApiError: the API server does not answer.
        """
        raw = await self._pods.find(key, uid)
        pod = pod_state.view(raw)
        if pod.spec.node_name:
            return _all_but(pod.spec.node_name, names, uid)
        if pod.gated:
            raise BindError(NOT_HANDED_OVER)
        demand = self._placement.demand(raw)
        if demand is None:
            return {}
        if decided := self._placement.decided_by_scheduler(raw, uid):
            chosen = decided[0].spec.node_name
            return {name: CHOSEN_BY_SCHEDULER.format(chosen) for name in names if name != chosen}
        async with self._deciding:
            decided_now = await self._place(demand, key, names)
        if isinstance(decided_now, Decision):
            return self._reasons(demand, decided_now, names)
        return _all_but(decided_now, names, uid)

    async def _place(self, demand: Demand, key: Key, names: Collection[str]) -> str | Decision:
        """The node on which a demand holds its shares, or the decision that there is none."""
        refused: BindError | None = None
        for _ in range(MAX_ATTEMPTS):
            if node := self._held_node(demand, names):
                return node
            decision = self._placement.choose(demand, names)
            if decision.node is None or decision.new:
                return decision
            try:
                check = partial(self._check_unbound, key, demand.uid)
                await self._reservations.reserve(demand, decision.node, FIRST_ATTEMPT, check)
            except AlreadyBoundError as bound:
                return bound.node
            except BindError as error:  # others were faster
                refused = error
        assert refused is not None
        raise refused

    async def _check_unbound(
        self, key: Key, uid: str, attempt: int, attempts: Collection[int]
    ) -> int:
        """The number of the next decision.

        kube-scheduler's Binding is for any version of the pod, so nothing voids it: a pod that is
        bound after this has its shares reserved again.

        Raises:
            AlreadyBoundError: the pod is bound, which the watch may not have delivered.
        """
        pod = await self._pods.live(key, uid)
        if pod is not None and pod.spec.node_name:
            raise AlreadyBoundError(pod.spec.node_name)
        return max(attempt, *attempts) + 1

    def _held_node(self, demand: Demand, names: Collection[str]) -> str:
        """The node of these on which a demand holds all of its shares; ``""`` if there is none."""
        held = self._pool.held_by(demand.uid)
        nodes = {vgpu.spec.node_name for vgpu in held}
        if len(nodes) != 1 or not are_shares_of(held, demand):
            return ""
        [node] = nodes
        usable = node in names and node in self._nodes
        return (
            node
            if usable and not any(blocker(each, None) or failure(each) for each in held)
            else ""
        )

    def _reasons(
        self, demand: Demand, decision: Decision, names: Collection[str]
    ) -> dict[str, str]:
        """Why no node fits: of each node, what the decision says about its GPUs."""
        if decision.field in (*FIELDS, POLICY_FIELD):
            return dict.fromkeys(names, decision.reasons[decision.field])
        found = self._placement.explain_nodes(demand, decision)
        return {name: found.get(name, NO_ROOM) if name in self._nodes else NO_GPU for name in names}


def _all_but(node: str, names: Collection[str], uid: str) -> dict[str, str]:
    return {name: MATCHED.format(uid) for name in names if name != node}
