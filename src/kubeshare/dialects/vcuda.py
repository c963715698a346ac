"""Tencent's Gaia: ``tencent.com/vcuda-core`` and ``tencent.com/vcuda-memory``.

A core is a hundredth of a GPU, a block of memory 256 MiB. Fewer than a hundred cores are a share
of one GPU; multiples of a hundred are whole GPUs with all of their memory. Each container asks for
itself.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kubeshare.core.demand import Share
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import MAX_BYTES, MI, MICROS, Memory, parse_count
from kubeshare.dialects.amounts import Amounts
from kubeshare.dialects.containers import asking_containers, share_of
from kubeshare.dialects.shares import check_together

CORE: Final = "tencent.com/vcuda-core"
MEMORY: Final = "tencent.com/vcuda-memory"
CORE_LIMIT: Final = "tencent.com/vcuda-core-limit"
"""The annotation with the limit of all containers that have a share of a GPU, in cores."""

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


def container_shares(pod: Mapping[str, Any]) -> tuple[Share, ...]:
    """A share for each container that asks for cores, with the name of the container.

    A container that asks for no cores and no memory has no share.

    Args:
        pod: the object from the API server.

    Raises:
        InvalidValueError: an amount or the limit in the annotation is not acceptable.
    """
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    limit = _core_limit(annotations.get(CORE_LIMIT))
    shares = []
    for name, asked, fields in asking_containers(pod.get("spec") or {}, [CORE, MEMORY]):
        if all(parse_count(amount, fields[key]) == 0 for key, amount in asked.items()):
            continue
        names = (fields[CORE], fields[MEMORY])
        share = share_of(name, amounts(asked.get(CORE), asked.get(MEMORY), names=names))
        if limit is not None and share.request_micros < MICROS:
            if limit < share.request_micros:
                message = f"{annotations[CORE_LIMIT]} is less than the cores of container {name}"
                raise InvalidValueError(f"metadata.annotations[{CORE_LIMIT}]", message)
            share = msgspec.structs.replace(share, limit_micros=limit)
        shares.append(share)
    return check_together(shares, "spec.containers")


def _core_limit(value: object) -> int | None:
    """The limit in micros; None without one."""
    if value in (None, ""):
        return None
    field = f"metadata.annotations[{CORE_LIMIT}]"
    cores = parse_count(value, field)
    if not 1 <= cores <= CORES:
        raise InvalidValueError(field, f"{value} is not a number of cores from 1 to {CORES}")
    return cores * (MICROS // CORES)
