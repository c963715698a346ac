"""Alibaba's gpushare: ``aliyun.com/gpu-mem`` and ``aliyun.com/gpu-count``.

A pod requests memory only. Compute follows: the reserved share of a GPU's time is the share of
its memory, and the limit is the whole GPU.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubeshare.core.demand import Demand, Share
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import MAX_BYTES, MI, MICROS, Memory, parse_count
from kubeshare.dialects.amounts import Amounts
from kubeshare.dialects.containers import asking_containers, share_of
from kubeshare.dialects.pod_spec import check_form
from kubeshare.dialects.share_fields import RequesterRef, mapping
from kubeshare.dialects.shares import check_together

GPU_MEMORY: Final = "aliyun.com/gpu-mem"
"""The resource that a container requests: units of GPU memory."""
GPU_COUNT: Final = "aliyun.com/gpu-count"
"""The number of GPUs of a node; as the resource of a container it has no effect."""

GPU_MEMORY: Final = "aliyun.com/gpu-mem"
"""The resource that a container requests: units of GPU memory."""
GPU_COUNT: Final = "aliyun.com/gpu-count"
"""The number of GPUs of a node; as the resource of a container it has no effect."""

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


def demand_of(pod: Mapping[str, Any], unit: int) -> Demand | None:
    """The demand of a pod: the memory of all its containers on one GPU; None if it asks for none.

    As published, only limits count. Init containers run before the containers and use the same
    share, so the pod asks for the most that runs at one time.

    Args:
        pod: the object from the API server.
        unit: bytes of a unit of memory.

    Raises:
        InvalidValueError: a limit is not a whole number, or all of them are 0.
    """
    spec = mapping(pod.get("spec"), "spec")
    check_form(spec)
    limits = list(_limits(spec, "containers"))
    first = list(_limits(spec, "initContainers"))
    if not limits and not first:
        return None
    requester = RequesterRef.of(mapping(pod.get("metadata"), "metadata"))
    units = max([sum(limits), *first])
    return Demand(
        uid=requester.uid,
        name=requester.name,
        namespace=requester.namespace,
        **amounts(units, unit=unit, names=(GPU_MEMORY, GPU_COUNT)),
    )


def _limits(spec: Mapping[str, Any], kind: str) -> Iterator[int]:
    """The units of each container that has a limit."""
    for container in spec.get(kind) or ():
        found = ((container.get("resources") or {}).get("limits") or {}).get(GPU_MEMORY)
        if found is not None:
            yield parse_count(found, f"{GPU_MEMORY} of container {container['name']}")


def container_shares(spec: Mapping[str, Any], *, unit: int = MI) -> tuple[Share, ...]:
    """A share for each container that asks for memory, with the name of the container.

    Such shares may be on different GPUs, unlike the only one of :func:`demand_of`. A container
    that asks for none has no share.

    Args:
        spec: the PodSpec.
        unit: bytes of a unit of memory.

    Raises:
        InvalidValueError: an amount is not whole, negative, or too large.
    """
    shares = []
    for name, asked, fields in asking_containers(spec, [GPU_MEMORY]):
        units, field = asked[GPU_MEMORY], fields[GPU_MEMORY]
        if parse_count(units, field):
            shares.append(share_of(name, amounts(units, unit=unit, names=(field, GPU_COUNT))))
    return check_together(shares, "spec.containers")
