"""What gpushare pods get besides their share: environment variables. Pure.

Programs written for gpushare read from them how much memory of the GPU they may use. The values
are those that the pod was given, not those that it asks for in annotations.
"""

from collections.abc import Callable, Sequence

import msgspec

from kubeshare.core.units import parse_count
from kubeshare.dialects.gpushare import GPU_MEMORY
from kubeshare.dialects.write_back import GPUSHARE
from kubeshare.node.node_view import NodePod
from kubeshare.tokens.files.grants import GrantedShare


class GpushareSettings(msgspec.Struct, frozen=True):
    """The settings of a node that is dedicated to gpushare.

    Attributes:
        unit_bytes: the bytes of a unit of memory.
        limits_memory: whether the pods are held to the memory that they ask for.
    """

    unit_bytes: int
    limits_memory: bool = True


def requests_memory(pod: NodePod) -> bool:
    """Whether a container of a pod requests GPU memory."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return any(GPU_MEMORY in each.resources.limits for each in containers)


def without_memory_limit(shares: Sequence[GrantedShare]) -> list[GrantedShare]:
    """The same shares, of which each may use the memory of its GPU that is free."""
    return [
        msgspec.structs.replace(
            share, memory_limit_bytes=max(share.memory_bytes, share.gpu_memory_bytes)
        )
        for share in shares
    ]


def variables(
    pod: NodePod,
    shares: Sequence[GrantedShare],
    index: Callable[[str], int],
    settings: GpushareSettings,
) -> dict[str, dict[str, str]]:
    """Name of each container that requests GPU memory → its variables.

    ``NVIDIA_VISIBLE_DEVICES`` is ``void``: an index there would let NVIDIA's container runtime
    choose a GPU. Of several GPUs, the indices are separated by commas.

    Args:
        pod: the pod.
        shares: what the pod was given.
        index: the index of the GPU with a UUID on this node.
        settings: of the node.
    """
    unit = settings.unit_bytes
    common = {
        "NVIDIA_VISIBLE_DEVICES": "void",
        GPUSHARE + "IDX": ",".join(str(index(share.uuid)) for share in shares),
        GPUSHARE + "POD": str(sum(share.memory_bytes // unit for share in shares)),
        GPUSHARE + "DEV": str(shares[0].memory_total_bytes // unit),
    }
    if not settings.limits_memory:
        common["CGPU_DISABLE"] = "true"
    found = {}
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        units = parse_count(container.resources.limits.get(GPU_MEMORY, 0), GPU_MEMORY)
        if units:
            found[container.name] = common | {GPUSHARE + "CONTAINER": str(units)}
    return found
