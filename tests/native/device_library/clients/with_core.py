"""cuda.core does what it is told: a line in, a JSON line out (`conversation.py`)."""

from typing import Any

import numpy as np
from cuda.bindings import driver
from cuda.core import (
    Device,
    DeviceMemoryResource,
    LaunchConfig,
    ManagedMemoryResource,
    ObjectCode,
    PinnedMemoryResource,
    VirtualMemoryResource,
)
from cuda.core import launch as launch_kernel
from cuda.core._utils.cuda_utils import CUDAError

from native.device_library.clients.conversation import RefusedError, converse

device = Device(0)
device.set_current()
stream = device.create_stream()
kernel = ObjectCode.from_ptx(b"// any image", name="any").get_kernel("kubeshare_spin_us")


def total() -> int:
    return int(driver.cuMemGetInfo()[2])


def alloc(size: int) -> Any:
    try:
        return device.allocate(size, stream=stream)
    except CUDAError as error:
        raise RefusedError(str(error).partition(":")[0]) from None


def launch(microseconds: int) -> None:
    one = LaunchConfig(grid=1, block=1)
    launch_kernel(stream, one, kernel, np.uint32(microseconds))
    stream.sync()


def fill(size: int) -> None:
    source, destination = alloc(size), alloc(size)
    source.copy_to(destination, stream=stream)
    stream.sync()
    source.close(stream)
    destination.close(stream)


def graph(microseconds: int) -> None:
    """Captures a kernel, and launches what was captured."""
    builder = device.create_graph_builder().begin_building()
    launch_kernel(builder, LaunchConfig(grid=1, block=1), kernel, np.uint32(microseconds))
    captured = builder.end_building().complete()
    captured.launch(stream)
    stream.sync()


def take(resource: Any, size: int, **options: Any) -> Any:
    try:
        return resource.allocate(size, **options)
    except (CUDAError, MemoryError) as error:
        raise RefusedError(str(error).partition(":")[0]) from None


converse(
    total,
    alloc,
    launch,
    fill,
    graph=graph,
    pool=lambda size: take(DeviceMemoryResource(device), size, stream=stream),
    physical=lambda size: take(VirtualMemoryResource(device), size),
    managed=lambda size: take(ManagedMemoryResource(), size, stream=stream),
    pinned=lambda size: take(PinnedMemoryResource(), size, stream=stream),
)
