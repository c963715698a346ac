"""Tencent's Gaia: ``tencent.com/vcuda-core`` and ``tencent.com/vcuda-memory``.

A core is a hundredth of a GPU, a block of memory 256 MiB. Fewer than a hundred cores are a share
of one GPU, and need blocks of its memory; multiples of a hundred are whole GPUs with all of their
memory. Each container asks for itself. As published, init containers get no GPU.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kubeshare.core.demand import Demand, Share
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import MAX_BYTES, MI, MICROS, Memory, parse_count, parse_share
from kubeshare.dialects.amounts import Amounts
from kubeshare.dialects.containers import asking_containers, share_of
from kubeshare.dialects.family_fields import check_other_forms, constraints, own_spellings
from kubeshare.dialects.requester.ref import RequesterRef
from kubeshare.dialects.share_fields import POD_PREFIX, mapping, present
from kubeshare.dialects.shares import check_together, read_flag

FAMILY: Final = "vcuda"
"""The family of these demands."""

CORE: Final = "tencent.com/vcuda-core"
MEMORY: Final = "tencent.com/vcuda-memory"
CORE_LIMIT: Final = "tencent.com/vcuda-core-limit"
"""The annotation with the limit of all containers that have a share of a GPU, in cores."""

LIMIT_ALONE: Final = POD_PREFIX + "limit-alone"
"""The annotation with the limit while a share is the only one on its GPU, or ``true`` for all."""
_LIMITS_ALONE: Final = (LIMIT_ALONE, POD_PREFIX + "limitAlone")
"""Both spellings: the second is that of the other plain pods."""

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


def demand_of(pod: Mapping[str, Any]) -> Demand:
    """The demand of a pod whose containers ask for cores or blocks.

    Args:
        pod: the object from the API server, whose PodSpec has a valid form.

    Raises:
        InvalidValueError: a value is not acceptable, no container asks for cores, or the pod
            requests a share in another form too; under the name of the resource, annotation or
            label.
    """
    metadata = mapping(pod.get("metadata"), "metadata")
    annotations = present(mapping(metadata.get("annotations"), "metadata.annotations"))
    labels = present(mapping(metadata.get("labels"), "metadata.labels"))
    check_other_forms(CORE, annotations, labels, (POD_PREFIX + "request", POD_PREFIX + "limit"))
    shares = container_shares(pod)
    if not shares:
        raise InvalidValueError(CORE, "asks for no share of a GPU in any container")
    demand = Demand(
        **RequesterRef.of(metadata).fields(),
        family=FAMILY,
        shares=shares,
        **constraints(own_spellings(annotations)),
    )
    return demand if len(shares) > 1 else demand.reduced_to(shares[0])


def container_shares(pod: Mapping[str, Any]) -> tuple[Share, ...]:
    """A share for each container that asks for cores, with the name of the container.

    A container that asks for no cores and no memory has no share.

    Args:
        pod: the object from the API server.

    Raises:
        InvalidValueError: an amount or the limit in the annotation is not acceptable.
    """
    annotations = present((pod.get("metadata") or {}).get("annotations") or {})
    limit, alone = _core_limit(annotations.get(CORE_LIMIT)), _limit_alone(annotations)
    spellings = own_spellings(annotations, ("latencySensitive",))
    latency_sensitive = spellings.read("latencySensitive", read_flag) or False
    shares = []
    for name, asked, fields in asking_containers(pod.get("spec") or {}, [CORE, MEMORY]):
        if all(parse_count(amount, fields[key]) == 0 for key, amount in asked.items()):
            continue
        names = (fields[CORE], fields[MEMORY])
        share = share_of(name, amounts(asked.get(CORE), asked.get(MEMORY), names=names))
        if share.request_micros < MICROS:
            if MEMORY not in asked:
                needed = f"is missing: {asked[CORE]} cores are a share of a GPU, which needs memory"
                raise InvalidValueError(fields[MEMORY], needed)
            share = msgspec.structs.replace(
                _limited(share, limit, alone), latency_sensitive=latency_sensitive
            )
        shares.append(share)
    return check_together(shares, "spec.containers")


def asking(spec: Mapping[str, Any]) -> frozenset[str]:
    """The names of the containers that ask for cores, from a valid PodSpec."""
    found = asking_containers(spec, [CORE])
    return frozenset(name for name, asked, _ in found if str(asked[CORE]) != "0")


def _limited(share: Share, limit: int | None, alone: int | None) -> Share:
    """A share of a GPU with the limits of its pod, in micros."""
    if limit is None:
        limit = share.limit_micros
    if limit < share.request_micros:
        message = f"{_cores(limit)} is less than the cores of container {share.name}"
        raise InvalidValueError(f"metadata.annotations[{CORE_LIMIT}]", message)
    if alone is not None and alone < limit:
        message = (
            f"is less than the {_cores(limit)} cores that container {share.name} may always use"
        )
        raise InvalidValueError(f"metadata.annotations[{LIMIT_ALONE}]", message)
    return msgspec.structs.replace(share, limit_micros=limit, limit_alone_micros=alone)


def _cores(micros: int) -> int:
    return micros * CORES // MICROS


def _limit_alone(annotations: Mapping[str, Any]) -> int | None:
    """The limit while alone in micros; None without one."""
    found = {
        key: MICROS if annotations[key] == "true" else parse_share(annotations[key], key)
        for key in _LIMITS_ALONE
        if key in annotations
    }
    if len(set(found.values())) > 1:
        first, second = found
        raise InvalidValueError(first, f"and {second} differ: give one of them, or the same value")
    return next(iter(found.values()), None)


def _core_limit(value: object) -> int | None:
    """The limit in micros; None without one."""
    if value is None:
        return None
    field = f"metadata.annotations[{CORE_LIMIT}]"
    cores = parse_count(value, field)
    if not 1 <= cores <= CORES:
        raise InvalidValueError(field, f"{value} is not a number of cores from 1 to {CORES}")
    return cores * (MICROS // CORES)
