"""What wakes vGPUs: their own changes, and those of pods, SharePods and nodes that may end a part.

A vGPU takes parts back that nobody asks for, so what comes wakes it less than what goes.
"""

from collections.abc import Iterable
from typing import Any

from kubeshare.api import cluster, sharepods
from kubeshare.api.inventory import Inventory
from kubeshare.api.names import LABEL_VGPU
from kubeshare.api.v1 import VGPU, GPUNode
from kubeshare.devices.evict import Evictions
from kubeshare.devices.wakes import differs, part_of
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import Raw
from kubeshare.kube.store import DELETED, Change, Store


class VGPUWakes:
    """Which vGPUs a change concerns.

    Args:
        inventory: the vGPUs.
        nodes: the nodes, as last seen.
        evictions: says of which vGPUs pods have to leave.
    """

    def __init__(
        self, inventory: Inventory, nodes: Store[cluster.Node], evictions: Evictions
    ) -> None:
        self._pool = inventory.pool
        self._nodes = nodes
        self._evictions = evictions

    def of_vgpu(self, change: Change[VGPU]) -> Iterable[Key]:
        """Itself, unless its node has only been told of pods that may stay."""
        old, new = change.old, change.object
        if old is not None and change.type != DELETED and _but_for_pods(old) == _but_for_pods(new):
            known = self._nodes.get(new.spec.node_name) is not None
            if known and not self._evictions.reason(new):
                return ()
        return (new.metadata.key,)

    def of_pod(self, change: Change[cluster.Pod]) -> Iterable[Key]:
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
        if sharepods.going(sharepod) or sharepods.finished(sharepod):
            return held
        # Sched takes parts of what it does not name yet before it says so.
        wanted = sharepods.gpuids(sharepod) if sharepods.decided(sharepod) else None
        return [] if wanted is None else [key for key in held if key.name not in wanted]

    def of_node(self, node: cluster.Node | GPUNode) -> Iterable[Key]:
        """All that are on it."""
        return [vgpu.metadata.key for vgpu in self._pool.on_node(node.metadata.name)]

    def all(self, _: object) -> Iterable[Key]:
        """Each of them: what is to become of those whose GPU has failed is configured."""
        return [vgpu.metadata.key for vgpu in self._pool.all()]

    def _held(self, demand: str) -> set[str]:
        return {vgpu.metadata.name for vgpu in self._pool.held_by(demand)}

    def _concerns(self, change: Change[cluster.Pod], holds: bool) -> bool:  # noqa: FBT001 - a fact of the pod
        old, pod = change.old, change.object
        if change.type == DELETED:
            return True
        if pod.placeholder_of or (old is not None and old.placeholder_of):
            return differs(change)
        if holds:
            return old is None or _place(old) != _place(pod)
        if old is not None:
            return _end(old) != _end(pod)
        # A SharePod's pod that comes frees nothing; but it may have to leave.
        named = self._pool.get(pod.metadata.labels.get(LABEL_VGPU, ""))
        holders = named.status.holders if named is not None else ()
        return any(holder.pod_uid == pod.metadata.uid for holder in holders)


def _place(pod: cluster.Pod) -> tuple[object, ...]:
    """What says whether a plain pod may still have its part of a vGPU."""
    return pod.spec.node_name, pod.gated, pod.gpuids, *_end(pod)


def _end(pod: cluster.Pod) -> tuple[object, ...]:
    """What says of a pod whose it is, and whether it is over."""
    metadata = pod.metadata
    label = metadata.labels.get(LABEL_VGPU)
    return pod.terminal, metadata.deletion_timestamp, metadata.owner_references, label


def _but_for_pods(vgpu: VGPU) -> tuple[Any, ...]:
    """All of a vGPU but which pods its node has been told of."""
    metadata, status = vgpu.metadata, vgpu.status
    about = (metadata.uid, metadata.deletion_timestamp, metadata.labels, metadata.annotations)
    holders = [(part_of(holder), holder.namespace, holder.name) for holder in status.holders]
    return about, vgpu.spec, status.phase, status.conditions, holders
