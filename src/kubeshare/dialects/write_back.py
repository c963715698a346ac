"""The annotations that the published versions write into a placed object.

Programs that read them find them here too, on objects in the spelling of that version.
KubeShare never reads them: what is placed where follows from holders.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from kubeshare.dialects import gpushare, sharedgpu, vcuda
from kubeshare.dialects.share_fields import ANNOTATIONS

GPU_UUID = "sharedgpu/gpu_uuid"
GPU_MODEL = "sharedgpu/gpu_model"
GPU_MEMORY = "sharedgpu/gpu_mem"

GPUSHARE: Final = "ALIYUN_COM_GPU_MEM_"
"""The prefix of gpushare's annotations, and of the same environment variables."""

GPUSHARE_ASSIGNED: Final = GPUSHARE + "ASSIGNED"
"""Whether the pod has been given its GPU: ``false`` until its first container starts."""
GPUSHARE_ALLOCATION: Final = "scheduler.framework.gpushare.allocation"
"""gpushare's annotation of pods with several GPUs; ``kubectl inspect gpushare`` reads it."""
GPUSHARE_ANNOTATIONS: Final = frozenset(
    {
        *(GPUSHARE + name for name in ("IDX", "POD", "DEV", "ASSUME_TIME", "ASSIGNED")),
        GPUSHARE_ALLOCATION,
    }
)
"""All of them."""

VCUDA: Final = "tencent.com/"
VCUDA_INDEX: Final = VCUDA + "predicate-gpu-idx-"
"""The prefix of the annotation with the GPUs of a container; its number in the pod follows."""
VCUDA_ASSIGNED: Final = VCUDA + "gpu-assigned"
"""Whether the pod has been given its GPUs: ``false`` until its first container starts."""
_VCUDA_OF_POD: Final = frozenset(
    {VCUDA + "predicate-time", VCUDA + "predicate-node", VCUDA_ASSIGNED}
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class PlacedGpu(msgspec.Struct, frozen=True):
    """A GPU of a placed object.

    Attributes:
        uuid: the UUID of the physical GPU, "" while it is unknown.
        model: its model, "" if unknown.
        memory_bytes: the memory that the object may use.
        index: its number on the node, None while it is unknown.
        total_bytes: all of its memory, 0 if unknown.
        minor: the number of its device file, None while it is unknown.
        share: the name of the share, "" for the only one.
    """

    uuid: str
    model: str
    memory_bytes: int
    index: int | None = None
    total_bytes: int = 0
    minor: int | None = None
    share: str = ""


def gpuid_annotation(annotations: Mapping[str, str], gpuids: Sequence[str]) -> dict[str, str]:
    """The first version's ``kubeshare/GPUID`` of an object whose GPUID the scheduler chose.

    Args:
        annotations: of the object; the published ones ask for the share, or nothing is written.
        gpuids: the GPUIDs that were chosen; the first version has one.
    """
    key = ANNOTATIONS["id"]
    if not annotations.get(ANNOTATIONS["request"]) or annotations.get(key) or len(gpuids) != 1:
        return {}
    return {key: gpuids[0]}


def gpu_annotations(labels: Mapping[str, str], gpus: Sequence[PlacedGpu]) -> dict[str, str]:
    """The second version's annotations of a pod that asks by ``sharedgpu/…`` labels.

    Of several GPUs, UUIDs and models each end with a comma, and the memory is that of all. What is
    unknown is left out.

    Args:
        labels: of the pod; a label asks for the share, or nothing is written.
        gpus: the GPUs of the pod.
    """
    if not labels.get(sharedgpu.LIMIT) or not gpus:
        return {}
    uuids = [gpu.uuid for gpu in gpus]
    models = [gpu.model.replace(" ", "-") for gpu in gpus]
    written = {GPU_MEMORY: str(sum(gpu.memory_bytes for gpu in gpus))}
    for key, values in ((GPU_UUID, uuids), (GPU_MODEL, models)):
        if all(values):
            written[key] = values[0] if len(values) == 1 else "".join(f"{each}," for each in values)
    return written


def gpushare_placement(
    spec: Mapping[str, Any], gpus: Sequence[PlacedGpu], unit: int, now: datetime
) -> dict[str, str]:
    """Gpushare's annotations of a pod that requests GPU memory.

    A pod with several GPUs has the annotation of that system's second version instead of an
    index. It maps containers to GPUs: the first container that requests memory to all of them.

    Args:
        spec: the PodSpec.
        gpus: the GPUs of the pod.
        unit: bytes of a unit of memory.
        now: when they were chosen, aware.
    """
    indexes = [gpu.index for gpu in gpus if gpu.index is not None]
    if not gpus or len(indexes) < len(gpus):
        return {}
    written = {
        GPUSHARE + "POD": str(sum(gpu.memory_bytes // unit for gpu in gpus)),
        GPUSHARE + "DEV": str(gpus[0].total_bytes // unit),
        GPUSHARE + "ASSUME_TIME": _nanoseconds(now),
        GPUSHARE_ASSIGNED: "false",
    }
    if len(gpus) == 1:
        return written | {GPUSHARE + "IDX": str(indexes[0])}
    units = {str(index): gpu.memory_bytes // unit for index, gpu in zip(indexes, gpus, strict=True)}
    first = gpushare.first_requesting(spec)
    return written | {GPUSHARE_ALLOCATION: json.dumps({str(first): units}, sort_keys=True)}


def vcuda_placement(
    spec: Mapping[str, Any], gpus: Sequence[PlacedGpu], node: str, now: datetime
) -> dict[str, str]:
    """The annotations of Tencent's Gaia on a pod whose containers ask for cores.

    Its containers are numbered as in the pod, its GPUs by their device files, as published.

    Args:
        spec: the PodSpec.
        gpus: the GPUs of the pod.
        node: the name of their node.
        now: when they were chosen, aware.
    """
    if not gpus or any(gpu.minor is None for gpu in gpus):
        return {}
    written = {
        VCUDA + "predicate-time": _nanoseconds(now),
        VCUDA + "predicate-node": node,
        VCUDA_ASSIGNED: "false",
    }
    asking = vcuda.asking(spec)
    for number, container in enumerate(spec.get("containers") or ()):
        if container["name"] in asking:
            of_container = ("", container["name"])
            minors = sorted(gpu.minor or 0 for gpu in gpus if gpu.share in of_container)
            written[f"{VCUDA_INDEX}{number}"] = ",".join(map(str, minors))
    return written


def is_of_vcuda(key: str) -> bool:
    """Whether an annotation is one of :func:`vcuda_placement`."""
    return key in _VCUDA_OF_POD or key.startswith(VCUDA_INDEX)


def _nanoseconds(now: datetime) -> str:
    return str((now - _EPOCH) // timedelta(microseconds=1) * 1000)
