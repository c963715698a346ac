"""Tencent's Gaia: ``tencent.com/vcuda-core`` and ``tencent.com/vcuda-memory``.

A core is a hundredth of a GPU, a block of memory 256 MiB. Less than a hundred cores
are a share of one GPU; hundreds are whole GPUs, with all of their memory.
"""

from typing import Final

from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import MAX_BYTES, MI, MICROS, Memory, parse_count
from kubeshare.dialects.amounts import Amounts

CORES: Final = 100
"""How many cores make a whole GPU."""

BLOCK: Final = 256 * MI
"""Bytes of a block of memory."""


def amounts(
    cores: object, blocks: object, *, names: tuple[str, str] = ("cores", "memoryBlocks")
) -> Amounts:
    """What a container asks for.

    Args:
        cores: hundredths of a GPU, 1 to 99 or a multiple of 100; None where it does not say.
        blocks: of memory; of a share only, and None makes it the same share of the memory.
        names: what the two are called where they are written.

    Raises:
        InvalidValueError: not such a number.
    """
    name_of_cores, name_of_blocks = names
    wanted = 0 if cores is None else parse_count(cores, name_of_cores)
    memory = None if blocks is None else parse_count(blocks, name_of_blocks)
    if wanted == 0:
        raise InvalidValueError(name_of_cores, "asks for no part of a GPU")
    if wanted >= CORES:
        if wanted % CORES:
            raise InvalidValueError(
                name_of_cores, f"{cores} is more than one GPU and not a multiple of {CORES}"
            )
        whole = Memory(micros=MICROS)
        return Amounts(
            request_micros=MICROS, limit_micros=MICROS, memory=whole, count=wanted // CORES
        )
    request = wanted * (MICROS // CORES)
    if memory is None:
        return Amounts(request_micros=request, limit_micros=request, memory=Memory(micros=request))
    if memory == 0:
        raise InvalidValueError(name_of_blocks, "a share of a GPU needs some of its memory")
    if memory * BLOCK > MAX_BYTES:
        raise InvalidValueError(name_of_blocks, f"{blocks} blocks are past 2^63 - 1 bytes")
    return Amounts(
        request_micros=request, limit_micros=request, memory=Memory(bytes=memory * BLOCK)
    )
