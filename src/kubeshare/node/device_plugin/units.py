"""Divides GPUs into the devices of a counted resource. Pure.

The kubelet counts devices. Each unit of a GPU's memory is one, with the id that Alibaba's device
plugin gives it. The ids follow from the GPU alone, so they are the same after every restart.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from kubeshare.api.types.v1 import GPUDevice
from kubeshare.node.proto import deviceplugin_pb2 as messages

MAX_MESSAGE_BYTES: Final = 4 * 2**20
"""The largest message that the kubelet receives: the default of gRPC for Go."""

HEALTHY: Final = "Healthy"
UNHEALTHY: Final = "Unhealthy"


class GpuUnits(Struct, frozen=True):
    """The units of one GPU; those of an unhealthy one are counted, and not allocated."""

    uuid: str
    units: int
    healthy: bool


def divide(
    devices: Iterable[GPUDevice], unit_bytes: int, *, usable: bool = True
) -> tuple[GpuUnits, ...]:
    """The whole units of each GPU's memory; a rest is not counted.

    Args:
        devices: the GPUs.
        unit_bytes: the bytes of a unit.
        usable: whether the GPUs may be used; otherwise all are unhealthy.
    """
    return tuple(
        GpuUnits(device.uuid, device.memory_bytes // unit_bytes, device.gives_shares and usable)
        for device in devices
    )


def divide_equally(
    devices: Iterable[GPUDevice], units: int, *, usable: bool = True
) -> tuple[GpuUnits, ...]:
    """The same number of units of each GPU, whatever its memory; see :func:`divide`."""
    return tuple(GpuUnits(device.uuid, units, device.gives_shares and usable) for device in devices)


def device_list(gpus: Iterable[GpuUnits]) -> bytes:
    """The serialized ``ListAndWatchResponse``; 70 000 units take about 50 ms."""
    devices = [
        messages.Device(ID=f"{gpu.uuid}-_-{unit}", health=HEALTHY if gpu.healthy else UNHEALTHY)
        for gpu in gpus
        for unit in range(gpu.units)
    ]
    return bytes(messages.ListAndWatchResponse(devices=devices).SerializeToString())


def largest_size(gpus: Iterable[GpuUnits]) -> int:
    """The bytes of :func:`device_list` with every GPU unhealthy, when it is longest.

    It is computed from the lengths of the ids, because the list itself may have millions of them.
    """
    return sum(_size(len(gpu.uuid), gpu.units) for gpu in gpus)


def _size(uuid_length: int, units: int) -> int:
    total, first, digits = 0, 0, 1
    while first < units:
        end = min(10**digits, units)
        field = (2 + uuid_length + len("-_-") + digits) + (2 + len(UNHEALTHY))
        total += (end - first) * (2 + field)
        first, digits = end, digits + 1
    return total
