"""Tencent's Gaia: ``tencent.com/vcuda-core`` and ``tencent.com/vcuda-memory``.

A core is a hundredth of a GPU, a block of memory 256 MiB. Fewer than a hundred cores are a share
of one GPU; multiples of a hundred are whole GPUs with all of their memory.
"""

from typing import Final

from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import MAX_BYTES, MI, MICROS, Memory, parse_count
from kubeshare.dialects.amounts import Amounts

CORES: Final = 100
"""The cores of a whole GPU."""

BLOCK: Final = 256 * MI
"""Bytes of a block of memory."""


def amounts(
    cores: object, blocks: object, *, names: tuple[str, str] = ("cores", "memoryBlocks")
) -> Amounts:
    """The amounts that a container requests.

    Args:
        cores: hundredths of a GPU, 1 to 99 or a multiple of 100; None if absent.
        blocks: blocks of memory, only for a share; None requests the same share of the memory.
        names: the names of both fields, for errors.

    Raises:
        InvalidValueError: not such a number.
    """
    cores_name, blocks_name = names
    requested = 0 if cores is None else parse_count(cores, cores_name)
    memory = None if blocks is None else parse_count(blocks, blocks_name)
    if requested == 0:
        raise InvalidValueError(cores_name, "asks for no share of a GPU")
    if requested >= CORES:
        if requested % CORES:
            raise InvalidValueError(
                cores_name, f"{cores} is more than one GPU and not a multiple of {CORES}"
            )
        whole = Memory(micros=MICROS)
        return Amounts(
            request_micros=MICROS, limit_micros=MICROS, memory=whole, count=requested // CORES
        )
    request = requested * (MICROS // CORES)
    if memory is None:
        return Amounts(request_micros=request, limit_micros=request, memory=Memory(micros=request))
    if memory == 0:
        raise InvalidValueError(blocks_name, "a share of a GPU needs some of its memory")
    if memory * BLOCK > MAX_BYTES:
        raise InvalidValueError(blocks_name, f"{blocks} blocks are past 2^63 - 1 bytes")
    return Amounts(
        request_micros=request, limit_micros=request, memory=Memory(bytes=memory * BLOCK)
    )
