"""The environment variables of gpushare in the containers of a pod. Pure.

Programs written for gpushare read from them how much memory of the GPU they may use. The values
are those that the pod was given, not those that it asks for in annotations.
"""

from collections.abc import Callable, Sequence

from kubeshare.core.units import parse_count
from kubeshare.dialects.gpushare import GPU_MEMORY
from kubeshare.dialects.write_back import GPUSHARE
from kubeshare.node.node_view import NodePod
from kubeshare.tokens.files.grants import GrantedShare


def variables(
    pod: NodePod, shares: Sequence[GrantedShare], index: Callable[[str], int], unit: int
) -> dict[str, dict[str, str]]:
    """Name of each container that requests GPU memory → its variables.

    ``NVIDIA_VISIBLE_DEVICES`` is ``void``: an index there would let NVIDIA's container runtime
    choose a GPU. Of several GPUs, the indices are separated by commas.

    Args:
        pod: the pod.
        shares: what the pod was given.
        index: the index of the GPU with a UUID on this node.
        unit: bytes of a unit of memory.
    """
    common = {
        "NVIDIA_VISIBLE_DEVICES": "void",
        GPUSHARE + "IDX": ",".join(str(index(share.uuid)) for share in shares),
        GPUSHARE + "POD": str(sum(share.memory_bytes // unit for share in shares)),
        GPUSHARE + "DEV": str(shares[0].memory_total_bytes // unit),
    }
    found = {}
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        units = parse_count(container.resources.limits.get(GPU_MEMORY, 0), GPU_MEMORY)
        if units:
            found[container.name] = common | {GPUSHARE + "CONTAINER": str(units)}
    return found
