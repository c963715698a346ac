"""What the core's ledger says of a cluster, from what the cluster's objects say now.

Pure functions: the same objects in any order give equal ledgers, so a program that was
killed knows after its first lists what it knew before. Each entry follows from a few
objects around it alone, so it can be made anew when one of those has changed
(:mod:`kubeshare.api.state.ledger_cache`), and a ledger that is kept so equals one that is built.

A node's *free* GPUs are counted, since Kubernetes does not say which GPU a pod
has: what the node offers (by a device plugin, else by a DRA driver), less what its pods
ask for (placeholders are such pods), less the vGPUs whose placeholder has not been bound
yet. Which of the GPUs these are is not known before the kubelet has chosen, so each counts
as the smallest of those that are in no vGPU; it may turn out larger, never smaller.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Protocol

import msgspec

from kubeshare.api.holder_codec import decode_all
from kubeshare.api.link_matrix import matrix, row_of
from kubeshare.api.types import core_v1, v1
from kubeshare.api.types.constants import CONDITION_SHAREABLE
from kubeshare.core.errors import LedgerError
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.kube.conditions import find_condition

DELETING = "Deleting"


class ClusterObjects(Protocol):
    """The objects around a node or a vGPU, as far as they have to do with its GPUs."""

    def gpunode(self, node: str) -> v1.GPUNode | None:
        """What the agent of a node has found; None when it has said nothing."""
        ...

    def vgpus_on(self, node: str) -> Collection[v1.VGPU]:
        """The vGPUs of a node."""
        ...

    def takers_on(self, node: str) -> Iterable[core_v1.Pod]:
        """The pods on a node for which :func:`uses_whole_gpus` holds."""
        ...

    def placeholders_of(self, gpuid: str) -> Iterable[core_v1.Pod]:
        """The placeholders of a vGPU for which :func:`uses_whole_gpus` holds."""
        ...

    def has_placeholder(self, gpuid: str) -> bool:
        """Whether there is one."""
        ...


def build(
    vgpus: Iterable[v1.VGPU],
    gpunodes: Iterable[v1.GPUNode],
    nodes: Iterable[core_v1.Node],
    pods: Iterable[core_v1.Pod],
) -> Ledger:
    """The ledger of a cluster.

    Args:
        vgpus: all of them.
        gpunodes: what the node agents found; a node without one takes no new vGPU.
        nodes: all of them, whether or not they take pods.
        pods: at least those that ask for whole GPUs, placeholders included.
    """
    around = _Lists(vgpus, gpunodes, pods)
    ledger = Ledger()
    for node in nodes:
        ledger.add_node(node_entry(node, around))
    for vgpu in around.vgpus:
        set_device(ledger, device_entry(vgpu, around))
    return ledger


def uses_whole_gpus(pod: core_v1.Pod) -> bool:
    """It has whole GPUs of the node that it is bound to."""
    return bool(pod.spec.node_name) and pod.whole_gpus > 0 and not pod.terminal


def node_entry(node: core_v1.Node, around: ClusterObjects) -> Node:
    """What the ledger says of a node; its free GPUs are sorted, as a ledger has them."""
    name = node.metadata.name
    found = around.gpunode(name)
    if found is None:
        return Node(name)
    kinds = frozenset(FreeGpu(gpu.model, gpu.memory_bytes) for gpu in found.spec.devices)
    free = _free(found, around.vgpus_on(name), unclaimed_gpus(node, around))
    return Node(
        name, free=free, kinds=kinds, total=len(found.spec.devices), links=matrix(found.spec)
    )


def unclaimed_gpus(node: core_v1.Node, around: ClusterObjects) -> int:
    """How many GPUs a node offers beyond those that pods have or vGPUs await; may be below 0."""
    name = node.metadata.name
    taken = sum(pod.whole_gpus for pod in around.takers_on(name))
    taken += sum(_awaits_gpu(vgpu, around) for vgpu in around.vgpus_on(name))
    return allocatable_gpus(node, around) - taken


def allocatable_gpus(node: core_v1.Node, around: ClusterObjects) -> int:
    """How many GPUs a node offers now, by its device plugin or else by a DRA driver."""
    found = around.gpunode(node.metadata.name)
    return node.whole_gpus or (found.spec.dra_count if found else 0)


def device_entry(vgpu: v1.VGPU, around: ClusterObjects) -> Device:
    """What the ledger says of a vGPU; its holders are sorted, as a ledger has them."""
    found = around.gpunode(vgpu.spec.node_name)
    return Device(
        id=vgpu.metadata.name,
        node=vgpu.spec.node_name,
        row=row_of(vgpu.spec.uuid, found.spec) if found else None,
        model=vgpu.spec.model,
        memory_bytes=vgpu.spec.memory_bytes,
        holders=decode_all(vgpu.status.holders),
        healthy=_healthy(vgpu.spec.uuid, found),
        fenced=_fenced(vgpu, around),
    )


def set_device(ledger: Ledger, device: Device) -> None:
    """Set a device; one that is promised twice over takes nobody, and stops nobody else."""
    try:
        ledger.set_device(device)
    except LedgerError:
        ledger.set_device(
            Device(
                id=device.id,
                node=device.node,
                row=device.row,
                model=device.model,
                memory_bytes=device.memory_bytes,
                healthy=False,
                fenced=True,
            )
        )


def remove_device(ledger: Ledger, gpuid: str) -> None:
    """Remove a device of the ledger whose vGPU is gone, whoever held a part of it.

    Raises:
        LedgerError: there is no such device.
    """
    if gpuid in ledger.devices:
        ledger.set_device(msgspec.structs.replace(ledger.devices[gpuid], holders=()))
    ledger.remove_device(gpuid)


class _Lists:
    """Lists of all objects, grouped by what is asked for."""

    def __init__(
        self,
        vgpus: Iterable[v1.VGPU],
        gpunodes: Iterable[v1.GPUNode],
        pods: Iterable[core_v1.Pod],
    ) -> None:
        self.vgpus = tuple(vgpus)
        self._gpunodes = {found.metadata.name: found for found in gpunodes}
        self._vgpus_on: dict[str, list[v1.VGPU]] = defaultdict(list)
        self._takers_on: dict[str, list[core_v1.Pod]] = defaultdict(list)
        self._placeholders_of: dict[str, list[core_v1.Pod]] = defaultdict(list)
        for vgpu in self.vgpus:
            self._vgpus_on[vgpu.spec.node_name].append(vgpu)
        for pod in filter(uses_whole_gpus, pods):
            self._takers_on[pod.spec.node_name].append(pod)
            if pod.placeholder_of:
                self._placeholders_of[pod.placeholder_of].append(pod)

    def gpunode(self, node: str) -> v1.GPUNode | None:
        return self._gpunodes.get(node)

    def vgpus_on(self, node: str) -> Collection[v1.VGPU]:
        return self._vgpus_on.get(node, ())

    def takers_on(self, node: str) -> Iterable[core_v1.Pod]:
        return self._takers_on.get(node, ())

    def placeholders_of(self, gpuid: str) -> Iterable[core_v1.Pod]:
        return self._placeholders_of.get(gpuid, ())

    def has_placeholder(self, gpuid: str) -> bool:
        return gpuid in self._placeholders_of


def _awaits_gpu(vgpu: v1.VGPU, around: ClusterObjects) -> bool:
    """It will have one of its node's GPUs that no pod has taken for it yet."""
    return vgpu.status.phase != DELETING and not around.has_placeholder(vgpu.metadata.name)


def _free(found: v1.GPUNode, pool: Collection[v1.VGPU], left: int) -> tuple[FreeGpu, ...]:
    used = {vgpu.spec.uuid for vgpu in pool}
    idle = [gpu for gpu in found.spec.devices if gpu.healthy and gpu.uuid not in used]
    if left <= 0 or not idle:
        return ()
    models = {gpu.model for gpu in idle}
    model = models.pop() if len(models) == 1 else ""
    return (FreeGpu(model, min(gpu.memory_bytes for gpu in idle)),) * min(left, len(idle))


def _healthy(uuid: str, found: v1.GPUNode | None) -> bool:
    """A vGPU whose GPU is not known yet is as healthy as can be told."""
    if not uuid:
        return True
    devices = found.spec.devices if found else ()
    return any(gpu.healthy for gpu in devices if gpu.uuid == uuid)


def _fenced(vgpu: v1.VGPU, around: ClusterObjects) -> bool:
    """It is going, or nothing keeps its GPU from others any more."""
    if vgpu.status.phase == DELETING or vgpu.metadata.deletion_timestamp:
        return True
    if not vgpu.spec.uuid:
        told = find_condition(vgpu.status.conditions, CONDITION_SHAREABLE)
        return told is not None and told.status == "False"
    return not any(keeps_gpu(pod, vgpu) for pod in around.placeholders_of(vgpu.metadata.name))


def keeps_gpu(placeholder: core_v1.Pod, vgpu: v1.VGPU) -> bool:
    """A placeholder keeps the GPU of its vGPU, and not some other one, from everybody else."""
    metadata = placeholder.metadata
    return (
        metadata.deletion_timestamp is None
        and not placeholder.terminal
        and vgpu.spec.placeholder_uid in ("", metadata.uid)
    )
