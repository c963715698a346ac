"""JAX does what it is told: a line in, a JSON line out (`conversation.py`).

It may take more than it sees, so that not its own pool refuses but the driver.
"""

import os

import jax
from jax import numpy
from jax._src import hardware_utils

from native.device_library.clients.conversation import RefusedError, converse

MOST = 1.5  # of the memory that it sees
os.environ["XLA_CLIENT_MEM_FRACTION"] = str(MOST)
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
# It asks CUPTI for its version, and CUPTI calls itself without end without the profiler's tables.
os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
# It looks for a node in /dev, which containers have.
hardware_utils.has_visible_nvidia_gpu = lambda: True
[device] = jax.devices()


def total() -> int:
    return int(device.memory_stats()["bytes_limit"] / MOST)


def alloc(size: int) -> jax.Array:
    try:
        return numpy.empty(size, dtype=numpy.uint8).block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise RefusedError("CUDA_ERROR_OUT_OF_MEMORY") from None


def launch(count: int) -> None:
    """So many kernels, compiled by XLA."""
    numbers = numpy.zeros(1000)
    for _ in range(count):
        numbers = numbers + 1
    numbers.block_until_ready()


def fill(size: int) -> None:
    numpy.ones(size, dtype=numpy.uint8).block_until_ready()


converse(total, alloc, launch, fill)
