"""Computes the allocated GPU memory of gpushare nodes. Pure.

On a node whose GPUs KubeShare owns, the holders of its vGPUs say which pod has how much of which
GPU. On a node of Alibaba's own gpushare, the annotations of its pods do, as its tool reads them.
A pod that requests memory and has no GPU yet counts as pending.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct, field

from kubeshare.api.owned_nodes import is_owned
from kubeshare.api.types.core_v1 import Container, Pod, resource_count
from kubeshare.api.types.v1 import VGPU, GPUNode
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import GI, MI
from kubeshare.dialects.gpushare import GPU_COUNT, GPU_MEMORY
from kubeshare.dialects.legacy_placement import INDEX, allocation_of
from kubeshare.dialects.write_back import GPUSHARE_ALLOCATION
from kubeshare.kube.meta import Key, ObjectMeta

Units: TypeAlias = Mapping[int, int]
"""Index of a GPU on its node → units of memory."""

UNITS: Final = {"GiB": GI, "MiB": MI}
LARGEST_GIB: Final = 100
"""More units than this on one GPU are MiB, if nothing else tells: so does Alibaba's tool."""


class Address(Struct, frozen=True):
    """An address of a node."""

    type: str
    address: str


class InspectedStatus(Struct, frozen=True):
    """The resources and addresses of a node."""

    allocatable: dict[str, str | int] = {}
    addresses: tuple[Address, ...] = ()


class InspectedNode(Struct, frozen=True):
    """The fields of a Node that are read here."""

    metadata: ObjectMeta
    status: InspectedStatus = field(default_factory=InspectedStatus)

    @property
    def memory(self) -> int:
        """The units of GPU memory that it offers; 0 if it is no gpushare node."""
        return resource_count(self.status.allocatable.get(GPU_MEMORY, 0))

    @property
    def address(self) -> str:
        """Its first internal address."""
        found = (each.address for each in self.status.addresses if each.type == "InternalIP")
        return next(found, "unknown")


class PodUsage(Struct, frozen=True, kw_only=True):
    """The units that a pod has of each GPU, and those for which it has none yet."""

    namespace: str
    name: str
    gpus: Units = {}
    pending: int = 0


class NodeUsage(Struct, frozen=True, kw_only=True):
    """The GPU memory of a node.

    Attributes:
        name: of the node.
        address: its internal address.
        unit: ``GiB`` or ``MiB``.
        owned: whether KubeShare owns its GPUs, so that holders were counted.
        models: the model of each GPU, by index; empty where it is unknown.
        totals: the units of each GPU, by index.
        total: the units of the node.
        pods: the pods with memory, by GPU and name, those without a GPU at the end.
    """

    name: str
    address: str
    unit: str
    owned: bool
    models: Mapping[int, str]
    totals: Units
    total: int
    pods: tuple[PodUsage, ...]

    @property
    def allocated(self) -> Units:
        """The units of each GPU that pods have."""
        sums: Counter[int] = Counter(dict.fromkeys(self.totals, 0))
        for pod in self.pods:
            sums.update(pod.gpus)
        return sums

    @property
    def pending(self) -> int:
        """The units of pods without a GPU."""
        return sum(pod.pending for pod in self.pods)

    @property
    def used(self) -> int:
        """The units of all pods, pending ones included."""
        return sum(self.allocated.values()) + self.pending


def usage(
    nodes: Iterable[InspectedNode],
    pods: Sequence[Pod],
    vgpus: Sequence[VGPU],
    gpunodes: Iterable[GPUNode],
) -> list[NodeUsage]:
    """The usage of each node that offers GPU memory, sorted by name.

    Args:
        nodes: the nodes to report.
        pods: all pods of these nodes.
        vgpus: all vGPUs.
        gpunodes: the GPUs of the nodes that have a node agent.
    """
    known = {found.metadata.name: found for found in gpunodes}
    offering = sorted((node for node in nodes if node.memory), key=lambda node: node.metadata.name)
    return [_of_node(node, known.get(node.metadata.name), pods, vgpus) for node in offering]


def _of_node(
    node: InspectedNode, found: GPUNode | None, pods: Sequence[Pod], vgpus: Sequence[VGPU]
) -> NodeUsage:
    name = node.metadata.name
    here = [pod for pod in pods if pod.spec.node_name == name and not pod.terminal]
    if found is not None and is_owned(found):
        return _owned(node, found, here, [each for each in vgpus if each.spec.node_name == name])
    count = resource_count(node.status.allocatable.get(GPU_COUNT, 0))
    each = node.memory // count if count else 0
    return NodeUsage(
        name=name,
        address=node.address,
        unit="MiB" if each > LARGEST_GIB else "GiB" if count else "",
        owned=False,
        models={},
        totals=dict.fromkeys(range(count), each),
        total=node.memory,
        pods=_sorted(_annotated(here)),
    )


def _owned(
    node: InspectedNode, found: GPUNode, pods: Sequence[Pod], vgpus: Sequence[VGPU]
) -> NodeUsage:
    devices = found.spec.devices
    sums = {name: sum(gpu.memory_bytes // size for gpu in devices) for name, size in UNITS.items()}
    # The node says how many units it offers, not of what size they are.
    unit = min(sums, key=lambda name: abs(sums[name] - node.memory))
    index = {gpu.uuid: gpu.index for gpu in devices}
    held: dict[Key, Counter[int]] = {}
    for vgpu in vgpus:
        for holder in vgpu.status.holders:
            units = held.setdefault(Key(holder.namespace, holder.name), Counter())
            units[index.get(vgpu.spec.uuid, -1)] += holder.memory_bytes // UNITS[unit]
    having = [PodUsage(namespace=key[0], name=key[1], gpus=units) for key, units in held.items()]
    waiting = [
        PodUsage(namespace=pod.metadata.namespace, name=pod.metadata.name, pending=requested(pod))
        for pod in pods
        if requested(pod) and pod.metadata.key not in held
    ]
    return NodeUsage(
        name=node.metadata.name,
        address=node.address,
        unit=unit,
        owned=True,
        models={gpu.index: gpu.model for gpu in devices},
        totals={gpu.index: gpu.memory_bytes // UNITS[unit] for gpu in devices},
        total=sums[unit],
        pods=_sorted([*having, *waiting]),
    )


def requested(pod: Pod) -> int:
    """The units in the limits of a pod's containers: the amount by which gpushare counts it."""
    return sum(map(_limit, pod.spec.containers))


def _limit(container: Container) -> int:
    return resource_count(container.resources.limits.get(GPU_MEMORY, 0))


def _annotated(pods: Iterable[Pod]) -> Iterator[PodUsage]:
    """The pods of a node of Alibaba's gpushare, by their annotations."""
    for pod in pods:
        units, metadata = requested(pod), pod.metadata
        if not units:
            continue
        gpus = _allocation(metadata.annotations.get(GPUSHARE_ALLOCATION, ""))
        index = metadata.annotations.get(INDEX, "")
        if not gpus and index.isdigit():
            gpus = {int(index): units}
        pending = 0 if gpus else units
        yield PodUsage(namespace=metadata.namespace, name=metadata.name, gpus=gpus, pending=pending)


def _allocation(text: str) -> Units:
    """The units on each GPU, of all containers; empty if the annotation has another form."""
    try:
        return allocation_of(text)
    except InvalidValueError:
        return {}


def _sorted(pods: Iterable[PodUsage]) -> tuple[PodUsage, ...]:
    def position(pod: PodUsage) -> tuple[bool, int, str, str]:
        return not pod.gpus, min(pod.gpus, default=0), pod.namespace, pod.name

    return tuple(sorted(pods, key=position))
