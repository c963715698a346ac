"""Every memory resource of cuda.core, and what each takes of the GPU; prints JSON."""

import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any

from cuda.bindings import driver
from cuda.core import (
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    GraphMemoryResource,
    LegacyPinnedMemoryResource,
    ManagedMemoryResource,
    PinnedMemoryResource,
    VirtualMemoryResource,
)

MIB = 1 << 20
device = Device(0)
device.set_current()
stream = device.create_stream()


def used() -> int:
    """MiB of the GPU that are not free."""
    _, free, total = driver.cuMemGetInfo()
    return (int(total) - int(free)) // MIB


def through(resource: Any) -> list[int]:
    """MiB while a MiB of a resource is held, and once it has been given back."""
    before = used()
    buffer = resource.allocate(2 * MIB, stream=stream)
    held = used() - before
    buffer.close(stream)
    stream.sync()
    return [held, used() - before]


def through_a_graph() -> list[int]:
    """MiB that a graph's own memory takes once it is launched."""
    before = used()
    builder = device.create_graph_builder()
    builder.begin_building()
    buffer = GraphMemoryResource(device).allocate(3 * MIB, stream=builder)
    buffer.close(builder)
    graph = builder.end_building().complete()
    graph.launch(stream)
    stream.sync()
    held = used() - before
    driver.cuDeviceGraphMemTrim(driver.CUdevice(0))
    return [held, used() - before]


def filled() -> list[int]:
    """What a buffer was filled with, read back."""
    buffer = device.memory_resource.allocate(64, stream=stream)
    back = LegacyPinnedMemoryResource().allocate(64, stream=stream)
    buffer.fill(b"\x07", stream=stream)
    buffer.copy_to(back, stream=stream)
    stream.sync()
    return list(ctypes.string_at(int(back.handle), 4))


resources: dict[str, Callable[[], list[int]]] = {
    "default": lambda: through(device.memory_resource),
    "own": lambda: through(
        DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=64 * MIB))
    ),
    "shared": lambda: through(
        DeviceMemoryResource(
            device, DeviceMemoryResourceOptions(max_size=64 * MIB, ipc_enabled=True)
        )
    ),
    "pinned": lambda: through(PinnedMemoryResource()),
    "legacy pinned": lambda: through(LegacyPinnedMemoryResource()),
    "managed": lambda: through(ManagedMemoryResource()),
    "virtual": lambda: through(VirtualMemoryResource(device)),
    "graph": through_a_graph,
    "filled": filled,
}
json.dump({name: resource() for name, resource in resources.items()}, sys.stdout)
