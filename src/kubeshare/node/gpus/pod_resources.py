"""Ask the kubelet which physical GPU a pod was given.

The device plugin or DRA driver that handed the GPU out tells nobody but the kubelet, and
the kubelet tells it here: the PodResources API on a socket of the node. A plugin's devices
are UUIDs; of a driver's it tells the name in a ResourceSlice, which has the UUID.
"""

from collections.abc import Callable
from pathlib import Path

import grpc
import grpc.aio

from kubeshare.api.types.constants import WHOLE_GPU_RESOURCE
from kubeshare.node.gpus.dra_gpus import DraDevice
from kubeshare.node.proto import podresources_pb2 as messages

_LIST = "/v1.PodResourcesLister/List"
_TIMEOUT_SECONDS = 5.0

# The kubelet refuses the percent-encoded socket path that grpc would send as the
# authority.
_OPTIONS = (("grpc.default_authority", "localhost"),)


class PodResourcesError(Exception):
    """The kubelet did not answer, or gave a device that cannot be shared."""


async def allocated_gpus(
    socket: Path, uuid_of: Callable[[DraDevice], str], namespace: str, name: str
) -> list[str]:
    """The ids of the whole GPUs that a pod was given; empty until it has been admitted.

    Args:
        socket: of the kubelet's PodResources API.
        uuid_of: the UUID of a DRA driver's device; ``""`` where it is not known (yet).
        namespace: of the pod.
        name: of the pod.

    Raises:
        PodResourcesError: the kubelet cannot be asked, or nobody knows which GPU it means.
    """
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS) as channel:
        ask = channel.unary_unary(
            _LIST,
            request_serializer=messages.ListPodResourcesRequest.SerializeToString,
            response_deserializer=messages.ListPodResourcesResponse.FromString,
        )
        try:
            answer = await ask(messages.ListPodResourcesRequest(), timeout=_TIMEOUT_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise PodResourcesError(
                f"the kubelet does not answer at {socket}: {error.details()}"
            ) from error
    containers = [
        container
        for pod in answer.pod_resources
        if (pod.namespace, pod.name) == (namespace, name)
        for container in pod.containers
    ]
    plugged = [
        device
        for container in containers
        for devices in container.devices
        if devices.resource_name == WHOLE_GPU_RESOURCE
        for device in devices.device_ids
    ]
    # A placeholder asks for nothing but a GPU, so whatever it claims is one.
    claimed = {
        DraDevice(claimed.driver_name, claimed.pool_name, claimed.device_name)
        for container in containers
        for resource in container.dynamic_resources
        for claimed in resource.claim_resources
    }
    return [*plugged, *(_known(device, uuid_of) for device in sorted(claimed))]


def _known(device: DraDevice, uuid_of: Callable[[DraDevice], str]) -> str:
    uuid = uuid_of(device)
    if not uuid:
        raise PodResourcesError(
            f"no ResourceSlice of driver {device.driver} says which GPU {device.name} of pool "
            f"{device.pool} is: its device needs the attribute uuid"
        )
    return uuid


def whole_gpu(devices: list[str]) -> str:
    """The UUID, if the devices are exactly one whole GPU.

    Raises:
        PodResourcesError: a share of a time-sliced GPU, a MIG instance, or several.
    """
    if len(devices) != 1:
        raise PodResourcesError(f"one GPU was asked for, {len(devices)} were given")
    device = devices[0]
    if "::" in device:
        raise PodResourcesError(
            f"{device} is a time-sliced share of a GPU: turn off time-slicing in NVIDIA's "
            "device plugin on this node"
        )
    if device.startswith("MIG-"):
        raise PodResourcesError(f"{device} is a MIG instance: only whole GPUs are shared")
    return device
