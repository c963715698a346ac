"""numba-cuda does what it is told: a line in, a JSON line out (`conversation.py`).

Compiling a Python function needs NVVM beside the driver; an image that is there already does
not, and arrays do not.
"""

from typing import Any

import numpy as np
from cuda.core import LaunchConfig, ObjectCode
from cuda.core import launch as launch_kernel
from numba import cuda
from numba.cuda.cudadrv import driver
from numba.cuda.cudadrv.driver import CudaAPIError

from native.device_library.clients.conversation import RefusedError, converse

context = cuda.current_context()
image = ObjectCode.from_ptx(b"// any image", name="any")
stream = cuda.stream()
kernel = context.create_module_image(image).get_function("kubeshare_spin_us")


def total() -> int:
    return int(context.get_memory_info().total)


def alloc(size: int) -> Any:
    try:
        return cuda.device_array(size, dtype=np.uint8)
    except CudaAPIError as error:
        raise RefusedError(str(error)) from None


def launch(microseconds: int) -> None:
    one = LaunchConfig(grid=1, block=1)
    launch_kernel(stream, one, kernel.kernel, np.uint32(microseconds))
    context.synchronize()


def fill(size: int) -> None:
    array = alloc(size)
    driver.device_memset(array, 1, size)
    context.synchronize()


converse(total, alloc, launch, fill)
