"""Rows of nodes with their GPUs, and the shares of each GPU."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from kubeshare.api.types.core_v1 import Node
from kubeshare.api.types.v1 import VGPU, GPUDevice, GPUNode, Holder
from kubeshare.api.vgpu_readiness import failure
from kubeshare.core.natural_sort import natural

NO_LABEL = "vGPU of others"

Names = Callable[[str], bool]
"""Whether the objects of a namespace are named to who looks."""


class GPURow(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A GPU of a node.

    Attributes:
        label: ``GPU0``; while the GPU of a vGPU is not known the GPUID, or :data:`NO_LABEL` where
            it is hidden from who looks.
        state: ``free``, ``idle``, ``shared``, ``whole``, ``creating``, ``unhealthy`` or, where the
            user sees nothing but their own shares, ``partly seen``.
        message: what is wrong with it; "" if nothing is.
        request_micros: the sum of its requests.
        memory_bytes: the memory that is given out.
        memory_total_bytes: the memory that may be given out; 0 if unknown.
        holders: the number of shares.
    """

    label: str
    state: str
    message: str = ""
    request_micros: int = 0
    memory_bytes: int = 0
    memory_total_bytes: int = 0
    holders: int = 0


class NodeRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """A node; ``state`` is ``Ready``, ``NotReady``, ``Cordoned`` or ``Unknown``."""

    id: str
    state: str
    models: tuple[str, ...]
    gpus: tuple[GPURow, ...]


class Span(Struct, frozen=True, gc=False):
    """The GPUs that a pod used on average between two times (RFC 3339), in millionths."""

    start: str
    end: str
    micros: int


class Use(Struct, frozen=True):
    """The GPUs that a pod used on average, from its start until a time (RFC 3339).

    ``spans`` are those of this time that are known, the last one at the end.
    """

    share: str
    at: str
    spans: tuple[Span, ...] = ()


class ShareRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """A share of a GPU; ``used`` is of all GPUs of its pod, None where it is unknown."""

    namespace: str
    name: str
    share: str
    request_micros: int
    limit_micros: int
    memory_bytes: int
    latency_sensitive: bool
    affinity: str
    anti_affinity: str
    exclusion: str
    started: bool
    used: Use | None


class OtherShares(Struct, frozen=True, kw_only=True, rename="camel"):
    """The shares of namespaces whose objects are not named to who looks."""

    count: int = 0
    request_micros: int = 0
    memory_bytes: int = 0


class GPUPage(Struct, frozen=True, kw_only=True, rename="camel"):
    """A GPU with its shares."""

    row: GPURow
    uuid: str
    model: str
    gpuid: str
    phase: str
    shares: tuple[ShareRow, ...]
    others: OtherShares


class Gpu(Struct, frozen=True):
    """A GPU as its node's agent reports it, and its vGPU; one of the two may be missing.

    ``partly_seen`` says that only the user's own shares of it are known.
    """

    device: GPUDevice | None
    vgpu: VGPU | None
    partly_seen: bool = False


def gpus_of(gpunode: GPUNode | None, vgpus: Iterable[VGPU]) -> list[Gpu]:
    """The GPUs of a node by index, then the vGPUs whose GPU is not known."""
    left = {vgpu.metadata.name: vgpu for vgpu in vgpus}
    by_uuid = {vgpu.spec.uuid: vgpu for vgpu in left.values() if vgpu.spec.uuid}
    devices = sorted(gpunode.spec.devices, key=lambda each: each.index) if gpunode else ()
    found = []
    for device in devices:
        vgpu = by_uuid.get(device.uuid)
        if vgpu is not None:
            left.pop(vgpu.metadata.name)
        found.append(Gpu(device, vgpu))
    rest = sorted(left.values(), key=lambda vgpu: natural(vgpu.gpuid))
    return [*found, *(Gpu(None, vgpu) for vgpu in rest)]


def node_row(name: str, node: Node | None, gpus: Sequence[Gpu], names: Names) -> NodeRow:
    """The row of a node."""
    models = dict.fromkeys(filter(None, map(model_of, gpus)))
    rows = tuple(gpu_row(gpu, names) for gpu in gpus)
    return NodeRow(id=name, state=_state(node), models=tuple(models), gpus=rows)


def gpu_row(gpu: Gpu, names: Names) -> GPURow:
    """The row of a GPU; ``names`` is whether the shares of a namespace are named."""
    device, vgpu = gpu.device, gpu.vgpu
    holders = vgpu.status.holders if vgpu else ()
    total = device.memory_bytes if device else vgpu.spec.memory_bytes if vgpu else 0
    state, message = _gpu_state(gpu)
    return GPURow(
        label=f"GPU{device.index}" if device else _gpuid(vgpu, names) or NO_LABEL,
        state=state,
        message=message,
        request_micros=sum(each.request_micros for each in holders),
        memory_bytes=sum(each.memory_bytes for each in holders),
        memory_total_bytes=total,
        holders=len(holders),
    )


def gpu_page(gpu: Gpu, names: Names, used: Mapping[tuple[str, str], Use]) -> GPUPage:
    """A GPU with its shares.

    Args:
        gpu: the GPU.
        names: whether the shares of a namespace are named.
        used: namespace and name of a pod → its use.
    """
    vgpu, device = gpu.vgpu, gpu.device
    holders = vgpu.status.holders if vgpu else ()
    named = [each for each in holders if names(each.namespace)]
    others = [each for each in holders if not names(each.namespace)]
    return GPUPage(
        row=gpu_row(gpu, names),
        uuid=device.uuid if device else vgpu.spec.uuid if vgpu else "",
        model=model_of(gpu),
        gpuid=_gpuid(vgpu, names),
        phase=vgpu.status.phase if vgpu else "",
        shares=tuple(_rows(named, used)),
        others=OtherShares(
            count=len(others),
            request_micros=sum(each.request_micros for each in others),
            memory_bytes=sum(each.memory_bytes for each in others),
        ),
    )


def model_of(gpu: Gpu) -> str:
    """The model of a GPU, "" if it is unknown."""
    return gpu.device.model if gpu.device else gpu.vgpu.spec.model if gpu.vgpu else ""


def _gpuid(vgpu: VGPU | None, names: Names) -> str:
    """The GPUID, which its first user may have chosen: "" where all users are strangers."""
    if vgpu is None:
        return ""
    holders = vgpu.status.holders
    return vgpu.gpuid if not holders or any(names(each.namespace) for each in holders) else ""


def _rows(holders: Iterable[Holder], used: Mapping[tuple[str, str], Use]) -> Iterator[ShareRow]:
    for each in sorted(holders, key=lambda each: (-each.request_micros, each.namespace, each.name)):
        yield ShareRow(
            namespace=each.namespace,
            name=each.name,
            share=each.share,
            request_micros=each.request_micros,
            limit_micros=each.limit_micros,
            memory_bytes=each.memory_bytes,
            latency_sensitive=each.latency_sensitive,
            affinity=each.affinity,
            anti_affinity=each.anti_affinity,
            exclusion=each.exclusion,
            started=bool(each.pod_uid),
            used=used.get((each.namespace, each.name)),
        )


def _state(node: Node | None) -> str:
    if node is None:
        return "Unknown"
    if node.is_closed:
        return "Cordoned"
    return "Ready" if node.ready else "NotReady"


def _gpu_state(gpu: Gpu) -> tuple[str, str]:
    """The state in one word, and what is wrong."""
    device, vgpu = gpu.device, gpu.vgpu
    if gpu.partly_seen:
        return "partly seen", ""
    if device is not None and not device.gives_shares:
        return "unhealthy", device.message or "the driver reports it as not healthy"
    if vgpu is None:
        return ("whole", "") if device and device.in_use else ("free", "")
    problem = failure(vgpu)
    if problem is not None:
        return "unhealthy", f"{problem.reason}: {problem.message}"
    if vgpu.status.phase in ("Creating", "Deleting"):
        return vgpu.status.phase.lower(), ""
    return ("shared", "") if vgpu.status.holders else ("idle", "")
