"""Builds the core's ledger from the cluster's objects.

Pure functions: the same objects in any order give equal ledgers, so a restarted program knows
after its first lists what it knew before. Each entry depends on a few objects only, so it can
be built again when one of those changes (:mod:`kubeshare.api.state.ledger_cache`).

A node's *free* GPUs are counted: the GPUs that the node offers (by a device plugin, else by a DRA
driver), less those that its pods request (placeholders are such pods), less the vGPUs whose
placeholder is not bound yet. Free are the GPUs that are in no vGPU and that no pod uses according
to the node agent, less one of its kind for each vGPU that has no GPU yet. If these are more than
the count, some pod has a GPU that the agent has not reported yet: if the GPUs are not alike, each
then counts as the smallest of them, of unknown model.

A policy can select GPUs that NVIDIA's DRA driver offers. Where a device plugin offers them, it is
the plugin that selects. An owned node has no free GPUs, since each
of its GPUs has a static vGPU.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

import msgspec

from kubeshare.api.holder_codec import decode_all
from kubeshare.api.link_matrix import matrix, row_of
from kubeshare.api.owned_nodes import accepts_holders, is_owned
from kubeshare.api.types import core_v1, v1
from kubeshare.api.types.constants import (
    CONDITION_SHAREABLE,
    LABEL_GPU_MODEL,
    LABEL_GPU_POOL,
    LABEL_ZONE,
    NVIDIA_DRA_DRIVER,
)
from kubeshare.core.demand import LabelScope
from kubeshare.core.errors import LedgerError
from kubeshare.core.ledger.device import Device, FreeGpu, Node, SelectableGpu
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.kube.conditions import find_condition

DELETING = "Deleting"


class ClusterObjects(Protocol):
    """The objects on which the entry of a node or a vGPU depends."""

    def gpunode(self, node: str) -> v1.GPUNode | None:
        """The GPUNode of a node; None before its agent has written one."""
        ...

    def vgpus_on(self, node: str) -> Collection[v1.VGPU]:
        """The vGPUs of a node."""
        ...

    def users_of_whole_gpus(self, node: str) -> Iterable[core_v1.Pod]:
        """The pods of a node that use whole GPUs (:func:`uses_whole_gpus`)."""
        ...

    def placeholders_of(self, vgpu: str) -> Iterable[core_v1.Pod]:
        """The placeholders of the vGPU of this name that use a GPU (:func:`uses_whole_gpus`)."""
        ...

    def has_placeholder(self, vgpu: str) -> bool:
        """Whether the vGPU of this name has a bound placeholder."""
        ...


def build(  # noqa: PLR0913 - four kinds of objects, and what is configured
    vgpus: Iterable[v1.VGPU],
    gpunodes: Iterable[v1.GPUNode],
    nodes: Iterable[core_v1.Node],
    pods: Iterable[core_v1.Pod],
    *,
    label_scope: LabelScope = "cluster",
    domain_label: str = LABEL_ZONE,
) -> Ledger:
    """The ledger of a cluster.

    Args:
        vgpus: all vGPUs.
        gpunodes: all GPUNodes; a node without one gets no new vGPU.
        nodes: all nodes, also those that accept no pods.
        pods: at least the pods that request whole GPUs, including placeholders.
        label_scope: the configured scope of labels.
        domain_label: the label of nodes that names their domain.
    """
    objects = _Lists(vgpus, gpunodes, pods)
    ledger = Ledger(label_scope=label_scope)
    for node in nodes:
        ledger.add_node(node_entry(node, objects, domain_label))
    for vgpu in objects.vgpus:
        set_device(ledger, device_entry(vgpu, objects))
    return ledger


def uses_whole_gpus(pod: core_v1.Pod) -> bool:
    """Whether a pod is bound to a node and uses whole GPUs of it."""
    return bool(pod.spec.node_name) and pod.whole_gpus > 0 and not pod.terminal


def node_entry(node: core_v1.Node, objects: ClusterObjects, domain_label: str = LABEL_ZONE) -> Node:
    """The ledger's entry of a node; its free GPUs are sorted, as a ledger keeps them."""
    name, labels = node.metadata.name, node.metadata.labels
    pool, domain = labels.get(LABEL_GPU_POOL, ""), labels.get(domain_label, "")
    found = objects.gpunode(name)
    if found is None:
        return Node(name, pool=pool, domain=domain)
    kinds = frozenset(FreeGpu(gpu.model, gpu.memory_bytes) for gpu in found.spec.devices)
    idle = _idle(found, objects.vgpus_on(name))
    left = max(0, unclaimed_gpus(node, objects))
    selectable: tuple[SelectableGpu, ...] = ()
    if not node.whole_gpus and all(gpu.claim_driver == NVIDIA_DRA_DRIVER for gpu in idle):
        # If a pod has a GPU that is not reported yet, it is the first one: kube-scheduler goes
        # through the devices in their order.
        selectable = tuple(_selectable(gpu, found.spec) for gpu in idle[max(0, len(idle) - left) :])
    return Node(
        name,
        free=tuple(sorted([gpu.kind for gpu in selectable])) if selectable else _free(idle, left),
        kinds=kinds,
        total=len(found.spec.devices),
        pool=pool,
        # The label names one model. GPUs of different models go by their own.
        model=labels.get(LABEL_GPU_MODEL, "") if len({gpu.model for gpu in kinds}) == 1 else "",
        links=matrix(found.spec),
        selectable=selectable,
        spread=node.spreads,
        domain=domain,
    )


def unclaimed_gpus(node: core_v1.Node, objects: ClusterObjects) -> int:
    """GPUs of a node that neither pods use nor vGPUs wait for; may be negative."""
    name = node.metadata.name
    taken = sum(pod.whole_gpus for pod in objects.users_of_whole_gpus(name))
    taken += sum(_waits_for_gpu(vgpu, objects) for vgpu in objects.vgpus_on(name))
    return allocatable_gpus(node, objects) - taken


def allocatable_gpus(node: core_v1.Node, objects: ClusterObjects) -> int:
    """GPUs that a node offers now, by its device plugin or else by a DRA driver.

    An owned node offers none to KubeShare: whatever offers them there must be stopped.
    """
    found = objects.gpunode(node.metadata.name)
    if is_owned(found):
        return 0
    return node.whole_gpus or (found.spec.dra_count if found else 0)


def device_entry(vgpu: v1.VGPU, objects: ClusterObjects) -> Device:
    """The ledger's entry of a vGPU; its holders are sorted, as a ledger keeps them."""
    found = objects.gpunode(vgpu.spec.node_name)
    uuid = vgpu.spec.uuid or vgpu.spec.selected_uuid
    return Device(
        id=vgpu.metadata.name,
        node=vgpu.spec.node_name,
        gpuid="" if vgpu.gpuid == vgpu.metadata.name else vgpu.gpuid,
        row=row_of(uuid, found.spec) if found else None,
        uuid=uuid,
        model=vgpu.spec.model,
        memory_bytes=vgpu.spec.memory_bytes,
        holders=decode_all(vgpu.status.holders),
        healthy=_healthy(uuid, found),
        fenced=_fenced(vgpu, objects),
    )


def set_device(ledger: Ledger, device: Device) -> None:
    """Set a device; a device with impossible holders is fenced and does not affect others."""
    try:
        ledger.set_device(device)
    except LedgerError:
        ledger.set_device(
            Device(
                id=device.id,
                node=device.node,
                gpuid=device.gpuid,
                row=device.row,
                uuid=device.uuid,
                model=device.model,
                memory_bytes=device.memory_bytes,
                healthy=False,
                fenced=True,
            )
        )


def remove_device(ledger: Ledger, name: str) -> None:
    """Remove a device whose vGPU is gone, with its holders.

    Raises:
        LedgerError: there is no such device.
    """
    if name in ledger.devices:
        ledger.set_device(msgspec.structs.replace(ledger.devices[name], holders=()))
    ledger.remove_device(name)


class _Lists:
    """Lists of all objects, grouped for lookup."""

    def __init__(
        self,
        vgpus: Iterable[v1.VGPU],
        gpunodes: Iterable[v1.GPUNode],
        pods: Iterable[core_v1.Pod],
    ) -> None:
        self.vgpus = tuple(vgpus)
        self._gpunodes = {found.metadata.name: found for found in gpunodes}
        self._vgpus_on: dict[str, list[v1.VGPU]] = defaultdict(list)
        self._users_of_whole_gpus: dict[str, list[core_v1.Pod]] = defaultdict(list)
        self._placeholders_of: dict[str, list[core_v1.Pod]] = defaultdict(list)
        for vgpu in self.vgpus:
            self._vgpus_on[vgpu.spec.node_name].append(vgpu)
        for pod in filter(uses_whole_gpus, pods):
            self._users_of_whole_gpus[pod.spec.node_name].append(pod)
            if pod.placeholder_of:
                self._placeholders_of[pod.placeholder_of].append(pod)

    def gpunode(self, node: str) -> v1.GPUNode | None:
        return self._gpunodes.get(node)

    def vgpus_on(self, node: str) -> Collection[v1.VGPU]:
        return self._vgpus_on.get(node, ())

    def users_of_whole_gpus(self, node: str) -> Iterable[core_v1.Pod]:
        return self._users_of_whole_gpus.get(node, ())

    def placeholders_of(self, vgpu: str) -> Iterable[core_v1.Pod]:
        return self._placeholders_of.get(vgpu, ())

    def has_placeholder(self, vgpu: str) -> bool:
        return vgpu in self._placeholders_of


def _waits_for_gpu(vgpu: v1.VGPU, objects: ClusterObjects) -> bool:
    """Whether a vGPU will use one of its node's GPUs that no placeholder has yet."""
    return (
        not vgpu.spec.is_static
        and vgpu.status.phase != DELETING
        and not objects.has_placeholder(vgpu.metadata.name)
        and not _has_lost_gpu(vgpu, objects.gpunode(vgpu.spec.node_name))
    )


def _has_lost_gpu(vgpu: v1.VGPU, found: v1.GPUNode | None) -> bool:
    """Whether the GPU of a vGPU is not on its node any more, so no placeholder gets it."""
    devices = found.spec.devices if found else ()
    return bool(vgpu.spec.uuid and devices) and all(gpu.uuid != vgpu.spec.uuid for gpu in devices)


def _idle(found: v1.GPUNode, pool: Collection[v1.VGPU]) -> list[v1.GPUDevice]:
    """The usable GPUs that no pod uses and that no vGPU has or will get, by index."""
    used = {uuid for vgpu in pool for uuid in (vgpu.spec.uuid, vgpu.spec.selected_uuid)}
    promised = Counter(
        FreeGpu(vgpu.spec.model, vgpu.spec.memory_bytes)
        for vgpu in pool
        if not (vgpu.spec.uuid or vgpu.spec.selected_uuid) and vgpu.status.phase != DELETING
    )
    idle = []
    for gpu in sorted(found.spec.devices, key=lambda gpu: gpu.index):
        taken = gpu.in_use or gpu.filler or gpu.unrecorded_pods
        if not gpu.gives_shares or taken or gpu.uuid in used:
            continue
        if promised[_kind(gpu)] > 0:
            promised[_kind(gpu)] -= 1
            continue
        idle.append(gpu)
    return idle


def _free(idle: Sequence[v1.GPUDevice], left: int) -> tuple[FreeGpu, ...]:
    """The kinds of the free GPUs, if it is known that so many are left."""
    if len(idle) <= left:
        return tuple(sorted(map(_kind, idle)))
    models = {gpu.model for gpu in idle}
    model = models.pop() if len(models) == 1 else ""
    return (FreeGpu(model, min(gpu.memory_bytes for gpu in idle)),) * left


def _kind(gpu: v1.GPUDevice) -> FreeGpu:
    return FreeGpu(gpu.model, gpu.memory_bytes)


def _selectable(gpu: v1.GPUDevice, spec: v1.GPUNodeSpec) -> SelectableGpu:
    return SelectableGpu(uuid=gpu.uuid, row=row_of(gpu.uuid, spec), kind=_kind(gpu))


def _healthy(uuid: str, found: v1.GPUNode | None) -> bool:
    """Whether the GPU may take holders; a GPU that is not known yet may."""
    if not uuid:
        return True
    devices = found.spec.devices if found else ()
    return any(gpu.gives_shares for gpu in devices if gpu.uuid == uuid)


def _fenced(vgpu: v1.VGPU, objects: ClusterObjects) -> bool:
    """Whether a vGPU must take no holder.

    It is being deleted, is a duplicate, pods without a holder run on its GPU, or nothing keeps its
    GPU from others. A GPU is kept by its placeholder, or because its node is owned.
    """
    found = objects.gpunode(vgpu.spec.node_name)
    if vgpu.status.phase == DELETING or vgpu.metadata.deletion_timestamp:
        return True
    if _is_duplicate(vgpu, objects) or runs_unrecorded(vgpu, found):
        return True
    if vgpu.spec.is_static:
        return not accepts_holders(found)
    if not vgpu.spec.uuid:
        if is_owned(found):
            return True
        shareable = find_condition(vgpu.status.conditions, CONDITION_SHAREABLE)
        return shareable is not None and shareable.status != "True"
    return not any(keeps_gpu(pod, vgpu) for pod in objects.placeholders_of(vgpu.metadata.name))


def runs_unrecorded(vgpu: v1.VGPU, found: v1.GPUNode | None) -> bool:
    """Whether pods run on the GPU of a vGPU for which no vGPU has a holder, by its GPUNode.

    A selected GPU counts like the vGPU's own.
    """
    uuid = vgpu.spec.uuid or vgpu.spec.selected_uuid
    return found is not None and bool(found.spec.unrecorded_pods(uuid))


def _is_duplicate(vgpu: v1.VGPU, objects: ClusterObjects) -> bool:
    """Whether another vGPU of the node has its GPUID, and has it as its name."""
    if vgpu.metadata.name == vgpu.gpuid:
        return False
    on_node = objects.vgpus_on(vgpu.spec.node_name)
    return any(other.metadata.name == vgpu.gpuid == other.gpuid for other in on_node)


def keeps_gpu(placeholder: core_v1.Pod, vgpu: v1.VGPU) -> bool:
    """Whether a placeholder is the one that was given the GPU of the vGPU."""
    metadata = placeholder.metadata
    return (
        metadata.deletion_timestamp is None
        and not placeholder.terminal
        and vgpu.spec.placeholder_uid in ("", metadata.uid)
    )
