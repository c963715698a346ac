"""Reconciles who owns the GPUs of one node."""

from collections.abc import Iterable
from typing import Final

from kubeshare.api.owned_nodes import (
    accepts_holders,
    is_legacy,
    is_migrating,
    is_owned,
    is_requested,
    offered_parts,
    parts_of,
    recorded_pods,
)
from kubeshare.api.types.constants import CONDITION_OWNED, MANAGER_DEVICES
from kubeshare.api.types.core_v1 import NODES, PODS, Node, Pod
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import GPUNODES, VGPU, GPUNode
from kubeshare.device_manager.context import Context
from kubeshare.device_manager.owned.static_vgpus import StaticVGPUs
from kubeshare.device_manager.owned.takeover import Facts, Ownership, decide, taking_over
from kubeshare.device_manager.pool.event_handlers import (
    node_differs,
    node_of_whole_gpu_pod,
    pod_usage_differs,
)
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.conditions import find_condition, set_condition, to_raw
from kubeshare.kube.controller.controller import (
    Controller,
    RequeueAfter,
    earliest,
    own_key,
)
from kubeshare.kube.controller.pending import PendingSince
from kubeshare.kube.controller.resync import add_resync
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.meta import Condition, Key

SETTLED_SECONDS: Final = 60.0
"""Seconds that a node must offer no GPUs: its device plugin may only be restarting."""

CLAIMS_SECONDS: Final = 10.0
"""Seconds between checks whether pods with claims have ended, which triggers nothing."""

_GPUNODES: Final = GPUNODES.into(GPUNode)


class OwnedNodes:
    """Takes over the GPUs of the nodes that are asked for, and gives back the others.

    It is the only writer of the status of GPUNodes. The mode is recorded before the first static
    vGPU is created, and until the last one is gone.

    Args:
        context: the state and the services that it uses.
        static: the static vGPUs.
    """

    def __init__(self, context: Context, static: StaticVGPUs) -> None:
        self._informers = context.informers
        self._nodes = context.informers.nodes.store
        self._gpunodes = context.informers.gpunodes.store
        self._client = context.client
        self._cluster_state = context.cluster_state
        self._configuration = context.configuration
        self._events = context.events
        self._wall_clock = context.wall_clock
        self._static = static
        self._unoffered: PendingSince[Key] = PendingSince()  # nodes that offer no GPUs

    def register(self, program: Program) -> None:
        """Run this controller in a program, with the watches that trigger it."""
        informers = self._informers
        controller: Controller[Key] = Controller("owned-nodes", self.reconcile)
        controller.watch(informers.nodes, own_key, when=node_differs)
        controller.watch(informers.gpunodes, own_key)
        controller.watch_changes(informers.vgpus, self._on_vgpu)
        controller.watch(informers.pods, node_of_whole_gpu_pod, when=pod_usage_differs)
        controller.watch_changes(informers.pods, self._on_placeholder)
        controller.watch(informers.configmaps, lambda _: ())

        def all_nodes() -> None:
            for key in informers.nodes.store.snapshot():
                controller.add(key)

        informers.configuration.subscribe(all_nodes)
        program.add_controller(controller)
        add_resync(program, controller, self._nodes.snapshot)

    async def reconcile(self, key: Key) -> RequeueAfter | None:
        """Reconcile one node: decide, record the decision, then change its vGPUs."""
        node, found = self._nodes.by_key(key), self._gpunodes.get(key.name)
        if node is None or found is None:
            self._unoffered.forget(key)
            return None  # the vGPU controller deletes the vGPUs of a deleted node
        await self._cluster_state.pool.settle()
        facts = self._facts(node, found, self._cluster_state.whole_gpu_pods(key.name))
        if not (facts.requested or facts.owned or facts.static or found.status.conditions):
            return None  # most nodes were never asked for
        ownership, again = await self._decide(node, found, facts)
        found = await self._record(node, found, ownership)
        if ownership.accepts or ownership.migrates:
            await self._static.keep(found)
        elif ownership.converts:
            await self._static.convert(key.name)
        elif not facts.requested:
            by_claims = bool(facts.by_claims and not facts.offered)
            returns = ownership.returns and by_claims
            again = earliest(again, await self._static.release(key.name, by_claims=returns))
        return again

    async def _decide(
        self, node: Node, found: GPUNode, facts: Facts
    ) -> tuple[Ownership, RequeueAfter | None]:
        """Decide; GPUs are taken only after a while, and once live reads confirm the decision."""
        key = node.metadata.key
        ownership = decide(facts)
        if ownership.converts:
            self._unoffered.forget(key)
            # The end of a pod with claims triggers nothing.
            again = RequeueAfter(CLAIMS_SECONDS) if facts.claims else None
            if facts.owned:
                return ownership, again
        elif ownership.reason == Reason.MIGRATING:
            self._unoffered.forget(key)
        elif not ownership.accepts or accepts_holders(found):
            self._unoffered.forget(key)
            return ownership, None
        elif (left := self._left(node)) and not facts.cordoned:
            # Only live reads show legacy pods, which are recorded on cordoned nodes.
            return taking_over(facts, SETTLED_SECONDS), RequeueAfter(left)
        live = await self._client.get(NODES, key.name)
        pods = await self._client.list(PODS, fields=f"spec.nodeName={key.name}")
        live_facts = self._facts(live, found, pods.items)
        confirmed = decide(live_facts)
        if confirmed.accepts and (left := self._left(live)):
            return taking_over(live_facts, SETTLED_SECONDS), RequeueAfter(left)
        return confirmed, None if confirmed.accepts else RequeueAfter(CLAIMS_SECONDS)

    def _left(self, node: Node) -> float:
        """Seconds until a node has offered no GPUs for long enough."""
        key, uid = node.metadata.key, node.metadata.uid
        if not node.ready:
            self._unoffered.restart(key, uid)
        return self._unoffered.remaining(key, SETTLED_SECONDS, uid)

    def _facts(self, node: Node, found: GPUNode, pods: Iterable[Pod]) -> Facts:
        name = node.metadata.name
        static = self._static.of(name)
        running = [pod for pod in pods if not pod.terminal]
        others = [pod for pod in running if not pod.is_managed]
        by_claim = [pod for pod in running if pod.spec.resource_claims]
        legacy = [pod for pod in others if is_legacy(pod)]
        recorded, migrating = recorded_pods(static), is_migrating(found)
        counts = (is_owned(found) or bool(static)) and not migrating
        return Facts(
            node=name,
            requested=is_requested(node, self._configuration.now().owned),
            cordoned=node.is_closed,
            owned=is_owned(found),
            supported=found.spec.supports_owned,
            offered=node.whole_gpus,
            parts=offered_parts(node, owned=counts),
            by_claims=found.spec.dra_count,
            users=tuple(
                str(pod.metadata.key)
                for pod in others
                if (pod.whole_gpus or parts_of(pod)) and not is_legacy(pod)
            ),
            legacy=tuple(
                str(pod.metadata.key) for pod in legacy if pod.metadata.uid not in recorded
            ),
            migrating=migrating,
            used=tuple(gpu.uuid for gpu in found.spec.devices if gpu.in_use),
            claimants=tuple(str(pod.metadata.key) for pod in by_claim if not pod.placeholder_of),
            claims=tuple(str(pod.metadata.key) for pod in by_claim if pod.placeholder_of),
            unresolved=tuple(self._static.unresolved(name)),
            static=tuple(vgpu.metadata.name for vgpu in static),
            held=tuple(vgpu.metadata.name for vgpu in static if self._static.is_held(vgpu)),
        )

    async def _record(self, node: Node, found: GPUNode, ownership: Ownership) -> GPUNode:
        """Write mode and condition into the GPUNode if they differ.

        Raises:
            ConflictError: the GPUNode has changed in between.
        """
        wanted = Condition(
            type=CONDITION_OWNED,
            status="True" if ownership.accepts else "False",
            reason=ownership.reason,
            message=ownership.message,
        )
        status = found.status
        conditions, changed = set_condition(
            status.conditions, wanted, self._wall_clock(), message_counts=True
        )
        if not changed and status.mode == ownership.mode:
            return found
        version = found.metadata.resource_version
        members = {"mode": ownership.mode, "conditions": to_raw(conditions)}
        written = await self._client.json_patch(
            _GPUNODES,
            found.metadata.name,
            [
                {"op": "test", "path": "/metadata/resourceVersion", "value": version},
                *(
                    {"op": "add", "path": f"/status/{member}", "value": value}
                    for member, value in members.items()
                ),
            ],
            subresource="status",
            field_manager=MANAGER_DEVICES,
        )
        before = find_condition(status.conditions, CONDITION_OWNED)
        if before is None or before.reason != ownership.reason:
            self._events.ownership(node, ownership.reason, ownership.summary)
        return written

    def _on_vgpu(self, change: Change[VGPU]) -> Iterable[Key]:
        """The vGPU's node, when whether it exists or has holders changes."""
        old, new = change.old, change.object
        changed = change.type == DELETED or old is None or _facts_of(old) != _facts_of(new)
        # The decision may have seen a state between the two, read while no watch delivered.
        if changed or self._gives_back(new):
            yield Key("", new.spec.node_name)

    def _gives_back(self, vgpu: VGPU) -> bool:
        """Whether the node of a static vGPU is being taken over or given back."""
        return vgpu.spec.is_static and not accepts_holders(self._gpunodes.get(vgpu.spec.node_name))

    def _on_placeholder(self, change: Change[Pod]) -> Iterable[Key]:
        """The node of a placeholder that is gone, also of one that was never bound."""
        if change.type == DELETED and change.object.placeholder_of:
            vgpu = self._cluster_state.pool.get(change.object.placeholder_of)
            if vgpu is not None:
                yield Key("", vgpu.spec.node_name)


def _facts_of(vgpu: VGPU) -> tuple[object, ...]:
    return bool(vgpu.status.holders), vgpu.status.phase, vgpu.spec
