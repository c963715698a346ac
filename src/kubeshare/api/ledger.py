"""The core's ledger, rebuilt from what the cluster's objects say now.

A pure function: the same objects in any order give equal ledgers, so a program
that was killed knows after its first lists what it knew before. Nothing is
remembered between two builds.

A node's *free* GPUs are counted, since Kubernetes does not say which GPU a pod
has: what the node offers, less what its pods ask for (placeholders are such pods),
less the vGPUs whose placeholder has not been bound yet. Which of the GPUs these
are is not known before the kubelet has chosen, so each counts as the smallest of
those that are in no vGPU; it may turn out larger, never smaller.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from kubeshare.api import cluster, v1
from kubeshare.core.device import Device, FreeGpu, Holder, Node
from kubeshare.core.errors import LedgerError
from kubeshare.core.ledger import Ledger

DELETING = "Deleting"


def build(
    vgpus: Iterable[v1.VGPU],
    gpunodes: Iterable[v1.GPUNode],
    nodes: Iterable[cluster.Node],
    pods: Iterable[cluster.Pod],
) -> Ledger:
    """The ledger of a cluster.

    Args:
        vgpus: all of them.
        gpunodes: what the node agents found; a node without one takes no new vGPU.
        nodes: all of them, whether or not they take pods.
        pods: at least those that ask for whole GPUs, placeholders included.
    """
    found = {gpunode.metadata.name: gpunode for gpunode in gpunodes}
    bound = [pod for pod in pods if pod.spec.node_name and not pod.terminal]
    placeholders = {pod.placeholder_of: pod for pod in bound if pod.placeholder_of}
    on_node: dict[str, list[v1.VGPU]] = defaultdict(list)
    for vgpu in vgpus:
        on_node[vgpu.spec.node_name].append(vgpu)
    taken: Counter[str] = Counter()
    for pod in bound:
        taken[pod.spec.node_name] += pod.whole_gpus
    for name, pool in on_node.items():
        taken[name] += sum(_awaits_gpu(vgpu, placeholders) for vgpu in pool)
    ledger = Ledger()
    for node in nodes:
        name = node.metadata.name
        left = node.whole_gpus - taken[name]
        ledger.add_node(_node(name, found.get(name), on_node.get(name, ()), left))
    for name, pool in on_node.items():
        for vgpu in pool:
            _add(ledger, vgpu, _device(vgpu, found.get(name), placeholders))
    return ledger


def _awaits_gpu(vgpu: v1.VGPU, placeholders: Mapping[str, cluster.Pod]) -> bool:
    """It will have one of its node's GPUs that no pod has taken for it yet."""
    return vgpu.status.phase != DELETING and vgpu.metadata.name not in placeholders


def _node(name: str, found: v1.GPUNode | None, pool: Sequence[v1.VGPU], left: int) -> Node:
    if found is None:
        return Node(name)
    kinds = frozenset(FreeGpu(gpu.model, gpu.memory_bytes) for gpu in found.spec.devices)
    used = {vgpu.spec.uuid for vgpu in pool}
    idle = [gpu for gpu in found.spec.devices if gpu.healthy and gpu.uuid not in used]
    total = len(found.spec.devices)
    if left <= 0 or not idle:
        return Node(name, kinds=kinds, total=total)
    models = {gpu.model for gpu in idle}
    smallest = FreeGpu(
        models.pop() if len(models) == 1 else "", min(gpu.memory_bytes for gpu in idle)
    )
    return Node(name, free=(smallest,) * min(left, len(idle)), kinds=kinds, total=total)


def _device(
    vgpu: v1.VGPU, found: v1.GPUNode | None, placeholders: Mapping[str, cluster.Pod]
) -> Device:
    return Device(
        id=vgpu.metadata.name,
        node=vgpu.spec.node_name,
        model=vgpu.spec.model,
        memory=vgpu.spec.memory_bytes,
        holders=_holders(vgpu.status.holders),
        healthy=_healthy(vgpu.spec.uuid, found),
        fenced=_fenced(vgpu, placeholders.get(vgpu.metadata.name)),
    )


def _healthy(uuid: str, found: v1.GPUNode | None) -> bool:
    """A vGPU whose GPU is not known yet is as healthy as can be told."""
    if not uuid:
        return True
    devices = found.spec.devices if found else ()
    return any(gpu.healthy for gpu in devices if gpu.uuid == uuid)


def _fenced(vgpu: v1.VGPU, placeholder: cluster.Pod | None) -> bool:
    """It is going, or nothing keeps its GPU from others any more."""
    if vgpu.status.phase == DELETING or vgpu.metadata.deletion_timestamp:
        return True
    if not vgpu.spec.uuid:
        return False
    return placeholder is None or placeholder.metadata.deletion_timestamp is not None


def _holders(entries: Iterable[v1.Holder]) -> tuple[Holder, ...]:
    """One holder a demand: the parts of a pod's containers are added up."""
    parts: dict[str, list[v1.Holder]] = defaultdict(list)
    for entry in entries:
        parts[entry.demand].append(entry)
    return tuple(
        Holder(
            demand=demand,
            name=of[0].name,
            request=sum(part.request_micros for part in of),
            limit=max(part.limit_micros for part in of),
            memory=sum(part.memory_bytes for part in of),
            affinity=of[0].affinity,
            anti_affinity=of[0].anti_affinity,
            exclusion=of[0].exclusion,
        )
        for demand, of in parts.items()
    )


def _add(ledger: Ledger, vgpu: v1.VGPU, device: Device) -> None:
    """Add the device; one that is promised twice over takes nobody, and stops nobody else."""
    try:
        ledger.add_device(device)
    except LedgerError:
        ledger.add_device(
            Device(
                id=device.id,
                node=device.node,
                model=device.model,
                memory=vgpu.spec.memory_bytes,
                healthy=False,
                fenced=True,
            )
        )
