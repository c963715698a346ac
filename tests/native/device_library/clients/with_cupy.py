"""CuPy does what it is told: a line in, a JSON line out (`conversation.py`)."""

import cupy
from cupy.cuda import Device, runtime
from cupy.cuda.memory import OutOfMemoryError

from native.device_library.clients.conversation import RefusedError, converse


def total() -> int:
    return int(runtime.memGetInfo()[1])


def alloc(size: int) -> cupy.ndarray:
    try:
        return cupy.empty(size, dtype=cupy.uint8)
    except OutOfMemoryError:
        raise RefusedError("CUDA_ERROR_OUT_OF_MEMORY") from None


def launch(count: int) -> None:
    """So many kernels, compiled by NVRTC."""
    numbers = cupy.empty(1000, dtype=cupy.float32)
    for _ in range(count):
        numbers += 1
    Device().synchronize()


def fill(size: int) -> None:
    alloc(size).fill(0)
    Device().synchronize()


total()  # makes the context
converse(total, alloc, launch, fill, drop=cupy.get_default_memory_pool().free_all_blocks)
