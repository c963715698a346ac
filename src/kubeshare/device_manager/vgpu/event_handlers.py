"""What wakes vGPUs: their own changes, and those of pods, SharePods and nodes that may end a part.

A vGPU takes parts back that nobody asks for, so what comes wakes it less than what goes.
"""

from collections.abc import Iterable
from typing import Any

from kubeshare.api import sharepods
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types import core_v1
from kubeshare.api.types.constants import LABEL_VGPU
from kubeshare.api.types.v1 import VGPU, GPUNode, Holder
from kubeshare.device_manager.sharepod.event_handlers import pod_differs, share_key
from kubeshare.device_manager.vgpu.eviction import Evictions
from kubeshare.device_manager.vgpu.orphans import wanted
from kubeshare.kube.cache.store import DELETED, Change, Store
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import Raw


class VGPUEventHandlers:
    """Which vGPUs a change concerns.

    Args:
        cluster_state: the vGPUs.
        sharepod_store: the SharePods.
        nodes: the nodes, as last seen.
        evictions: says of which vGPUs pods have to leave.
    """

    def __init__(
        self,
        cluster_state: ClusterState,
        sharepod_store: Store[Raw],
        nodes: Store[core_v1.Node],
        evictions: Evictions,
    ) -> None:
        self._pool = cluster_state.pool
        self._sharepod_store = sharepod_store
        self._nodes = nodes
        self._evictions = evictions

    def of_vgpu(self, change: Change[VGPU]) -> Iterable[Key]:
        """Itself, unless its node was told of pods, or others have joined, and all may stay."""
        old, new = change.old, change.object
        if old is not None and change.type != DELETED and self._have_all_stayed(old, new):
            known = self._nodes.get(new.spec.node_name) is not None
            if known and not self._evictions.reason(new):
                return ()
        return (new.metadata.key,)

    def _have_all_stayed(self, old: VGPU, new: VGPU) -> bool:
        """All are there that were, and nobody else but SharePods that ask for their parts."""
        before, now = map(_holders, (old, new))
        if _but_for_holders(old) != _but_for_holders(new) or not before.keys() <= now.keys():
            return False
        joined = [holder for part, holder in now.items() if part not in before]
        # The first one has the placeholder guarded.
        return not joined or (
            bool(before) and all(self._is_asked_for(new, each) for each in joined)
        )

    def _is_asked_for(self, vgpu: VGPU, holder: Holder) -> bool:
        raw = self._sharepod_store.by_key(Key(holder.namespace, holder.name))
        return wanted(raw, vgpu.metadata.name, holder)

    def of_pod(self, change: Change[core_v1.Pod]) -> Iterable[Key]:
        """That whose placeholder it is, or those of which it or its SharePod has a part."""
        old, pod = change.old, change.object
        held = self._held(pod.metadata.uid)
        if not self._concerns(change, bool(held)):
            return ()
        states = (pod,) if old is None else (old, pod)
        named = {state.metadata.labels.get(LABEL_VGPU, "") for state in states} - {""}
        controller = pod.metadata.controller
        # Of a SharePod with several GPUs, the label of its pod names the first.
        names = named | held | (self._held(controller.uid) if controller else set())
        return [Key("", name) for name in sorted(names)]

    def of_sharepod(self, change: Change[Raw]) -> Iterable[Key]:
        """Those of which it has a part that it may not ask for any more."""
        raw = change.object
        held = [vgpu.metadata.key for vgpu in self._pool.held_by(raw["metadata"]["uid"])]
        if not held or change.type == DELETED:
            return held
        sharepod = sharepods.view(raw)
        if sharepods.is_deleting(sharepod) or sharepods.finished(sharepod):
            return held
        # Sched takes parts of what it does not name yet before it says so.
        wanted = sharepods.gpuids(sharepod) if sharepods.decided(sharepod) else None
        return [] if wanted is None else [key for key in held if key.name not in wanted]

    def of_node(self, node: core_v1.Node | GPUNode) -> Iterable[Key]:
        """All that are on it."""
        return [vgpu.metadata.key for vgpu in self._pool.on_node(node.metadata.name)]

    def all(self, _: object) -> Iterable[Key]:
        """Each of them: what is to become of those whose GPU has failed is configured."""
        return [vgpu.metadata.key for vgpu in self._pool.all()]

    def _held(self, demand: str) -> set[str]:
        return {vgpu.metadata.name for vgpu in self._pool.held_by(demand)}

    def _concerns(self, change: Change[core_v1.Pod], holds: bool) -> bool:  # noqa: FBT001 - a fact of the pod
        old, pod = change.old, change.object
        if change.type == DELETED:
            return True
        if pod.placeholder_of or (old is not None and old.placeholder_of):
            return pod_differs(change)
        if holds:
            return old is None or _place(old) != _place(pod)
        if old is not None:
            return _end(old) != _end(pod)
        # A SharePod's pod that comes frees nothing; but it may have to leave.
        named = self._pool.get(pod.metadata.labels.get(LABEL_VGPU, ""))
        holders = named.status.holders if named is not None else ()
        return any(holder.pod_uid == pod.metadata.uid for holder in holders)


def _place(pod: core_v1.Pod) -> tuple[object, ...]:
    """What says whether a plain pod may still have its part of a vGPU."""
    return pod.spec.node_name, pod.gated, pod.gpuids, *_end(pod)


def _end(pod: core_v1.Pod) -> tuple[object, ...]:
    """What says of a pod whose it is, and whether it is over."""
    metadata = pod.metadata
    label = metadata.labels.get(LABEL_VGPU)
    return pod.terminal, metadata.deletion_timestamp, metadata.owner_references, label


def _but_for_holders(vgpu: VGPU) -> tuple[Any, ...]:
    metadata, status = vgpu.metadata, vgpu.status
    about = (metadata.uid, metadata.deletion_timestamp, metadata.labels, metadata.annotations)
    return about, vgpu.spec, status.phase, status.conditions


def _holders(vgpu: VGPU) -> dict[tuple[object, ...], Holder]:
    return {(share_key(each), each.namespace, each.name): each for each in vgpu.status.holders}
