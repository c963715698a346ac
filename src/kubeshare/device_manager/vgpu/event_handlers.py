"""Maps watch events to the vGPUs that must be reconciled.

A vGPU's controller garbage-collects holders, so objects that go away trigger it more often
than objects that appear.
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
    """Finds the vGPUs that a change concerns.

    Args:
        cluster_state: the vGPUs.
        sharepod_store: the SharePods.
        nodes: the nodes.
        evictions: whether the pods of a vGPU must leave it.
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

    def on_vgpu(self, change: Change[VGPU]) -> Iterable[Key]:
        """The vGPU itself, unless the change only adds wanted holders or pod uids.

        Such a change still counts where pods must leave the GPU.
        """
        old, new = change.old, change.object
        if old is not None and change.type != DELETED and self._only_gains_wanted(old, new):
            node_known = self._nodes.get(new.spec.node_name) is not None
            if node_known and not self._evictions.reason(new):
                return ()
        return (new.metadata.key,)

    def _only_gains_wanted(self, old: VGPU, new: VGPU) -> bool:
        """Every holder remains, and each new one is wanted by its SharePod."""
        before, now = map(_holders, (old, new))
        if _without_holders(old) != _without_holders(new) or not before.keys() <= now.keys():
            return False
        joined = [holder for share, holder in now.items() if share not in before]
        # The first holder puts the placeholder under its PodDisruptionBudget.
        return not joined or (bool(before) and all(self._is_wanted(new, each) for each in joined))

    def _is_wanted(self, vgpu: VGPU, holder: Holder) -> bool:
        raw = self._sharepod_store.by_key(Key(holder.namespace, holder.name))
        return wanted(raw, vgpu, holder)

    def on_pod(self, change: Change[core_v1.Pod]) -> Iterable[Key]:
        """The vGPU of a placeholder, or those of which a pod or its SharePod holds shares."""
        old, pod = change.old, change.object
        held = self._held(pod.metadata.uid)
        if not self._concerns(change, holds=bool(held)):
            return ()
        states = (pod,) if old is None else (old, pod)
        labelled = {state.metadata.labels.get(LABEL_VGPU, "") for state in states} - {""}
        controller = pod.metadata.controller
        # The label names only the first GPU of a SharePod that has several.
        names = labelled | held | (self._held(controller.uid) if controller else set())
        return [Key("", name) for name in sorted(names)]

    def on_sharepod(self, change: Change[Raw]) -> Iterable[Key]:
        """The vGPUs of which a SharePod holds a share that it may no longer want."""
        raw = change.object
        held = self._pool.held_by(raw["metadata"]["uid"])
        if not held or change.type == DELETED:
            return [vgpu.metadata.key for vgpu in held]
        sharepod = sharepods.view(raw)
        if sharepods.is_deleting(sharepod) or sharepods.finished(sharepod):
            return [vgpu.metadata.key for vgpu in held]
        if not sharepods.decided(sharepod):
            return []  # Sched adds the holders before it writes the GPUIDs
        return [vgpu.metadata.key for vgpu in held if not sharepods.names(sharepod, vgpu)]

    def on_node(self, node: core_v1.Node | GPUNode) -> Iterable[Key]:
        """All vGPUs of a node."""
        return [vgpu.metadata.key for vgpu in self._pool.on_node(node.metadata.name)]

    def all_vgpus(self, _: object) -> Iterable[Key]:
        """All vGPUs: the configuration says whether pods leave a failed GPU."""
        return [vgpu.metadata.key for vgpu in self._pool.all()]

    def _held(self, demand_uid: str) -> set[str]:
        return {vgpu.metadata.name for vgpu in self._pool.held_by(demand_uid)}

    def _concerns(self, change: Change[core_v1.Pod], *, holds: bool) -> bool:
        """Whether a change of a pod, which may hold shares itself, concerns its vGPUs."""
        old, pod = change.old, change.object
        if change.type == DELETED:
            return True
        if pod.placeholder_of or (old is not None and old.placeholder_of):
            return pod_differs(change)
        if holds:
            return old is None or _assignment(old) != _assignment(pod)
        if old is not None:
            return _ownership(old) != _ownership(pod)
        # A new pod of a SharePod frees nothing, but it may have to leave its GPU.
        labelled = self._pool.get(pod.metadata.labels.get(LABEL_VGPU, ""))
        holders = labelled.status.holders if labelled is not None else ()
        return any(holder.pod_uid == pod.metadata.uid for holder in holders)


def _assignment(pod: core_v1.Pod) -> tuple[object, ...]:
    """The fields that decide whether a plain pod may keep its share of a vGPU."""
    return pod.spec.node_name, pod.gated, pod.gpuids, *_ownership(pod)


def _ownership(pod: core_v1.Pod) -> tuple[object, ...]:
    """The fields that say to whom a pod belongs and whether it has ended."""
    metadata = pod.metadata
    label = metadata.labels.get(LABEL_VGPU)
    return pod.terminal, metadata.deletion_timestamp, metadata.owner_references, label


def _without_holders(vgpu: VGPU) -> tuple[Any, ...]:
    metadata, status = vgpu.metadata, vgpu.status
    about = (metadata.uid, metadata.deletion_timestamp, metadata.labels, metadata.annotations)
    return about, vgpu.spec, status.phase, status.conditions


def _holders(vgpu: VGPU) -> dict[tuple[object, ...], Holder]:
    return {(share_key(each), each.namespace, each.name): each for each in vgpu.status.holders}
