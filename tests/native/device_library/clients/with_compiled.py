"""numba-cuda, with a Python function that it compiles (`conversation.py`)."""

from typing import Any

import numpy as np
from numba import cuda
from numba.cuda.cudadrv import driver
from numba.cuda.cudadrv.driver import CudaAPIError

from native.device_library.clients.conversation import RefusedError, converse

context = cuda.current_context()


def add_one(numbers: Any) -> None:
    place = cuda.grid(1)
    if place < numbers.size:
        numbers[place] += 1


increment: Any = cuda.jit(add_one)


def total() -> int:
    return int(context.get_memory_info().total)


def alloc(size: int) -> Any:
    try:
        return cuda.device_array(size, dtype=np.uint8)
    except CudaAPIError as error:
        raise RefusedError(str(error)) from None


def launch(count: int) -> None:
    numbers = cuda.device_array(1000, dtype=np.float32)
    for _ in range(count):
        increment[4, 256](numbers)
    cuda.synchronize()


def fill(size: int) -> None:
    driver.device_memset(alloc(size), 1, size)
    cuda.synchronize()


converse(total, alloc, launch, fill, drop=context.deallocations.clear)
