"""cuda-bindings does what it is told: a line in, a JSON line out (`conversation.py`)."""

import ctypes
from typing import Any

from cuda.bindings import driver

from native.device_library.clients.conversation import RefusedError, converse


def check(answer: tuple[Any, ...]) -> Any:
    result, *values = answer
    if result != driver.CUresult.CUDA_SUCCESS:
        raise RefusedError(result.name)
    return values[0] if values else None


check(driver.cuInit(0))
context = check(driver.cuDevicePrimaryCtxRetain(0))
check(driver.cuCtxSetCurrent(context))
stream = check(driver.cuStreamCreate(0))
module = check(driver.cuModuleLoadData(b"// any image\0"))
kernel = check(driver.cuModuleGetFunction(module, b"kubeshare_spin_us"))


def total() -> int:
    _, _, seen = driver.cuMemGetInfo()
    assert seen == check(driver.cuDeviceTotalMem(0))
    return int(seen)


def alloc(size: int) -> Any:
    return check(driver.cuMemAlloc(size))


def launch(microseconds: int) -> None:
    arguments = ((microseconds,), (ctypes.c_uint32,))
    check(driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0))
    check(driver.cuStreamSynchronize(stream))


def fill(size: int) -> None:
    pointer = alloc(size)
    check(driver.cuMemsetD8Async(pointer, 1, size, stream))
    check(driver.cuStreamSynchronize(stream))
    check(driver.cuMemFree(pointer))


converse(total, alloc, launch, fill)
