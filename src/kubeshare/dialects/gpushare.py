"""Alibaba's gpushare: ``aliyun.com/gpu-mem`` and ``aliyun.com/gpu-count``.

A pod requests memory only. Compute follows: the reserved share of a GPU's time is the share of
its memory, and the limit is the whole GPU.
"""

from typing import Final

from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import MAX_BYTES, MI, MICROS, Memory, parse_count
from kubeshare.dialects.amounts import Amounts

MAX_COUNT: Final = 1024
"""The most GPUs that one pod may request."""


def amounts(
    memory: object,
    count: object = 1,
    *,
    unit: int = MI,
    names: tuple[str, str] = ("gpuMem", "gpuCount"),
) -> Amounts:
    """The amounts that a pod requests.

    Args:
        memory: units of memory on each GPU, a whole number as a Quantity; None if absent.
        count: the number of different GPUs.
        unit: bytes of a unit of memory, as the node's device plugin counts it.
        names: the names of both fields, for errors.

    Raises:
        InvalidValueError: not whole, not positive, or too many.
    """
    gpu_mem, gpu_count = names
    units = 0 if memory is None else parse_count(memory, gpu_mem)
    if units == 0:
        raise InvalidValueError(gpu_mem, "asks for no GPU memory")
    if units * unit > MAX_BYTES:
        raise InvalidValueError(gpu_mem, f"{memory} is past the largest size, 2^63 - 1 bytes")
    gpus = parse_count(count, gpu_count)
    if not 1 <= gpus <= MAX_COUNT:
        raise InvalidValueError(gpu_count, f"{count} is not a number of GPUs from 1 to {MAX_COUNT}")
    return Amounts(
        request_micros=0,
        limit_micros=MICROS,
        memory=Memory(bytes=units * unit),
        count=gpus,
        proportional=True,
    )
