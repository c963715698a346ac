"""Asks the kubelet which physical GPU a pod was allocated.

Only the kubelet knows which GPU a device plugin or DRA driver allocated, and it serves
that on the PodResources API, a socket on the node. A plugin's device ids are UUIDs; a DRA
driver's device has a name, whose UUID is in a ResourceSlice.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from kubeshare.api.types.constants import (
    FILLER_PREFIX,
    NAMESPACE,
    PLACEHOLDER_PREFIX,
    WHOLE_GPU_RESOURCE,
)
from kubeshare.node.gpus.dra_gpus import DraDevice
from kubeshare.node.proto import podresources_pb2 as messages

_LIST = "/v1.PodResourcesLister/List"
_ALLOCATABLE = "/v1.PodResourcesLister/GetAllocatableResources"
_TIMEOUT_SECONDS = 5.0

# Its devices are shares of GPUs, if NVIDIA's plugin is told to name them so.
_SHARED_GPU_RESOURCE = f"{WHOLE_GPU_RESOURCE}.shared"

# The kubelet refuses the percent-encoded socket path that gRPC sends as the authority. Where it
# counts memory in MiB, its lists are longer than the 4 MiB that gRPC receives by default.
_OPTIONS = (
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", 64 * 2**20),
)


Answer = TypeVar("Answer", bound=Message)


class PodResourcesError(Exception):
    """The kubelet did not answer, or allocated a device that cannot be shared."""


async def allocated_gpus(
    socket: Path, uuid_of: Callable[[DraDevice], str], namespace: str, name: str
) -> list[str]:
    """The ids of the whole GPUs that a pod was allocated; empty until it has been admitted.

    ``uuid_of`` returns the UUID of a DRA driver's device, or ``""`` if it is not known yet.

    Raises:
        PodResourcesError: the kubelet does not answer, or no ResourceSlice has the device.
    """
    pods = await _list_pods(socket)
    asked = [pod for pod in pods if (pod.namespace, pod.name) == (namespace, name)]
    # A placeholder requests only a GPU, so each of its claimed devices is one.
    claimed = sorted({device for pod in asked for device in _claimed(pod)})
    plugged = [device for pod in asked for device in _plugged(pod)]
    return [*plugged, *(_known(device, uuid_of) for device in claimed)]


async def gpus_in_use(socket: Path, uuid_of: Callable[[DraDevice], str]) -> dict[str, str]:
    """The GPUs of all pods but placeholders, whole or time-sliced; ``uuid_of`` as above.

    Returns:
        UUID of each -> the name of the filler pod that has it, ``""`` for another pod.

    Raises:
        PodResourcesError: the kubelet does not answer.
    """
    users = [pod for pod in await _list_pods(socket) if not _is_placeholder(pod)]
    used = {uuid: _filler(pod) for pod in users for uuid in _gpus_of(pod)}
    return used | {uuid_of(device): _filler(pod) for pod in users for device in _claimed(pod)}


async def gpus_of_others(socket: Path, uuid_of: Callable[[DraDevice], str]) -> set[str]:
    """The UUIDs of the GPUs that a device plugin offers, or pods but placeholders use.

    A pod keeps the GPU of a plugin that has stopped; ``uuid_of`` as above.

    Raises:
        PodResourcesError: the kubelet does not answer.
    """
    offered, in_use = await asyncio.gather(_offered_gpus(socket), gpus_in_use(socket, uuid_of))
    return offered | in_use.keys()


async def _offered_gpus(socket: Path) -> set[str]:
    request = messages.AllocatableResourcesRequest()
    answer = await _ask(socket, _ALLOCATABLE, request, messages.AllocatableResourcesResponse)
    return set(_uuids(answer.devices))


async def exclusive_cpus(socket: Path) -> set[int]:
    """The CPUs that the kubelet assigns to single containers; empty unless it assigns CPUs.

    Only the policies of its CPU manager that bind containers have any.

    Raises:
        PodResourcesError: the kubelet does not answer.
    """
    request = messages.AllocatableResourcesRequest()
    answer = await _ask(socket, _ALLOCATABLE, request, messages.AllocatableResourcesResponse)
    return set(answer.cpu_ids)


async def _list_pods(socket: Path) -> list[messages.PodResources]:
    request = messages.ListPodResourcesRequest()
    answer = await _ask(socket, _LIST, request, messages.ListPodResourcesResponse)
    return list(answer.pod_resources)


async def _ask(socket: Path, method: str, request: Message, answer: type[Answer]) -> Answer:
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS) as channel:
        call = channel.unary_unary(
            method,
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        try:
            answered: Answer = await call(request, timeout=_TIMEOUT_SECONDS)
        except grpc.RpcError as error:
            raise _no_answer(socket, error) from error
    return answered


def _plugged(pod: messages.PodResources) -> list[str]:
    """The ids of the whole GPUs that a device plugin gave a pod."""
    return [device for container in pod.containers for device in _whole(container.devices)]


def _whole(found: Iterable[messages.ContainerDevices]) -> Iterator[str]:
    """The ids of the whole GPUs among the devices of plugins."""
    for devices in found:
        if devices.resource_name == WHOLE_GPU_RESOURCE:
            yield from devices.device_ids


def _gpus_of(pod: messages.PodResources) -> Iterator[str]:
    """The UUIDs of the GPUs of which a device plugin gave a pod all or a share."""
    for container in pod.containers:
        yield from _uuids(container.devices)


def _uuids(found: Iterable[messages.ContainerDevices]) -> Iterator[str]:
    """The UUIDs of the GPUs among the devices of plugins; ``UUID::n`` is a share of one."""
    for devices in found:
        if devices.resource_name in (WHOLE_GPU_RESOURCE, _SHARED_GPU_RESOURCE):
            yield from (device.partition("::")[0] for device in devices.device_ids)


def _claimed(pod: messages.PodResources) -> list[DraDevice]:
    """The devices of a pod's claims."""
    return [
        DraDevice(claimed.driver_name, claimed.pool_name, claimed.device_name)
        for container in pod.containers
        for resource in container.dynamic_resources
        for claimed in resource.claim_resources
    ]


def _is_placeholder(pod: messages.PodResources) -> bool:
    return pod.namespace == NAMESPACE and pod.name.startswith(PLACEHOLDER_PREFIX)


def _filler(pod: messages.PodResources) -> str:
    """The name of a filler pod; ``""`` for another pod."""
    fills = pod.namespace == NAMESPACE and pod.name.startswith(FILLER_PREFIX)
    return str(pod.name) if fills else ""


def list_cdi_devices(socket: Path) -> set[str]:
    """The full names of all CDI devices that DRA drivers gave this node's pods; blocks.

    Raises:
        PodResourcesError: the kubelet does not answer.
    """
    with grpc.insecure_channel(f"unix:{socket}", options=_OPTIONS) as channel:
        list_pods = channel.unary_unary(
            _LIST,
            request_serializer=messages.ListPodResourcesRequest.SerializeToString,
            response_deserializer=messages.ListPodResourcesResponse.FromString,
        )
        try:
            answer = list_pods(messages.ListPodResourcesRequest(), timeout=_TIMEOUT_SECONDS)
        except grpc.RpcError as error:
            raise _no_answer(socket, error) from error
    return {
        device.name
        for pod in answer.pod_resources
        for container in pod.containers
        for resource in container.dynamic_resources
        for claimed in resource.claim_resources
        for device in claimed.cdi_devices
    }


def _no_answer(socket: Path, error: grpc.RpcError) -> PodResourcesError:
    details = error.details() if isinstance(error, grpc.Call | grpc.aio.AioRpcError) else error
    return PodResourcesError(f"the kubelet does not answer at {socket}: {details}")


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
        PodResourcesError: they are a time-sliced GPU, a MIG instance, or several GPUs.
    """
    if len(devices) != 1:
        raise PodResourcesError(f"one GPU was requested, {len(devices)} were allocated")
    device = devices[0]
    if "::" in device:
        raise PodResourcesError(
            f"{device} is a time-sliced share of a GPU: turn off time-slicing in NVIDIA's "
            "device plugin on this node"
        )
    if device.startswith("MIG-"):
        raise PodResourcesError(f"{device} is a MIG instance: only whole GPUs are shared")
    return device
