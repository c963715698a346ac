"""Alibaba's gpushare: ``aliyun.com/gpu-mem`` and ``aliyun.com/gpu-count``.

A pod requests memory only, in the limits of its containers; together they use one GPU. Compute
follows: the reserved share of a GPU's time is the share of its memory, and the limit is the whole
GPU, unless the annotations ``kubeshare.nthu/request`` and ``limit`` say otherwise. With the label
``aliyun.com/gpu-count: M`` the memory is divided among M GPUs of one node.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import MAX_BYTES, MI, MICROS, Memory, parse_count, parse_share
from kubeshare.dialects.amounts import Amounts
from kubeshare.dialects.family_fields import check_other_forms, constraints, own_spellings
from kubeshare.dialects.pod_spec import check_form
from kubeshare.dialects.requester.ref import RequesterRef
from kubeshare.dialects.share_fields import (
    POD_PREFIX,
    Spellings,
    mapping,
    present,
)
from kubeshare.dialects.shares import read_flag

FAMILY: Final = "gpushare"
"""The family of these demands."""

GPU_MEMORY: Final = "aliyun.com/gpu-mem"
"""The resource that a container requests: units of GPU memory."""
GPU_COUNT: Final = "aliyun.com/gpu-count"
"""The number of GPUs of a node; as the resource of a container it has no effect."""

MAX_COUNT: Final = 1024
"""The most GPUs that one pod may request."""

_OF_TIME: Final = ("request", "limit", "limitAlone", "latencySensitive")


def requests(spec: Mapping[str, Any]) -> bool:
    """Whether a container of a PodSpec names the resource, be it with a valid amount or not."""
    return any(True for _ in _limits(spec))


def first_requesting(spec: Mapping[str, Any]) -> int:
    """The index of the first container with the resource; 0 if only init containers have it."""
    limits = [
        (container.get("resources") or {}).get("limits") or {}
        for container in spec.get("containers") or ()
    ]
    return next((index for index, each in enumerate(limits) if GPU_MEMORY in each), 0)


def demand_of(pod: Mapping[str, Any], unit: int) -> Demand | None:
    """The demand of a pod whose containers request GPU memory; None if none does.

    Args:
        pod: the object from the API server.
        unit: bytes of a unit of memory.

    Raises:
        InvalidValueError: a value is not acceptable, or the pod requests a share in another form
            too; under the name of the resource, annotation or label.
    """
    spec = mapping(pod.get("spec"), "spec")
    check_form(spec)
    if not requests(spec):
        return None
    metadata = mapping(pod.get("metadata"), "metadata")
    annotations = present(mapping(metadata.get("annotations"), "metadata.annotations"))
    labels = present(mapping(metadata.get("labels"), "metadata.labels"))
    check_other_forms(GPU_MEMORY, annotations, labels)
    spellings = own_spellings(annotations, _OF_TIME)
    try:
        return Demand(
            **RequesterRef.of(metadata).fields(),
            family=FAMILY,
            **constraints(spellings),
            **(_memory(spec, labels, unit) | _compute(spellings)),
        )
    except InvalidValueError as error:
        raise error.under(spellings.written.get(error.field, error.field)) from None


def units_at_once(spec: Mapping[str, Any]) -> int:
    """The most units that a pod uses at any time, as kube-scheduler counts them.

    Init containers run one after the other before the containers; those that always restart run
    beside all that start after them.

    Raises:
        InvalidValueError: an amount is not a whole number.
    """
    beside = most = 0
    for container, units in _containers(spec, ("initContainers",)):
        if container.get("restartPolicy") == "Always":
            beside += units
            most = max(most, beside)
        else:
            most = max(most, beside + units)
    beside += units_of_containers(spec)
    return max(most, beside)


def units_of_containers(spec: Mapping[str, Any]) -> int:
    """The units in the limits of a pod's containers: the amount by which gpushare counts it.

    Raises:
        InvalidValueError: an amount is not a whole number.
    """
    return sum(units for _, units in _containers(spec, ("containers",)))


def _memory(spec: Mapping[str, Any], labels: Mapping[str, Any], unit: int) -> Amounts:
    """The memory on each GPU, and the number of GPUs."""
    units = units_at_once(spec)
    count = labels.get(GPU_COUNT, "1")
    gpus = parse_count(count, GPU_COUNT)
    if gpus and units % gpus:
        raise InvalidValueError(
            GPU_COUNT, f"{units} units of {GPU_MEMORY} are no whole number on each of {gpus} GPUs"
        )
    each = units // gpus if gpus else units
    return amounts(each, count, unit=unit, names=(GPU_MEMORY, GPU_COUNT))


def _compute(spellings: Spellings) -> Amounts:
    """The compute that annotations request, no amounts if it follows the memory."""
    request = spellings.read("request", parse_share)
    latency_sensitive = spellings.read("latencySensitive", read_flag) or False
    limits = {field: spellings.read(field, parse_share) for field in ("limit", "limitAlone")}
    if request is None:
        for field, limit in limits.items():
            if limit is not None:
                needed = f"needs {POD_PREFIX}request beside it: without, compute follows the memory"
                raise InvalidValueError(POD_PREFIX + field, needed)
        return Amounts(latency_sensitive=latency_sensitive)
    limit, alone = limits["limit"], limits["limitAlone"]
    return Amounts(
        request_micros=request,
        limit_micros=MICROS if limit is None else limit,
        limit_alone_micros=alone,
        latency_sensitive=latency_sensitive,
        proportional=False,
    )


def _containers(
    spec: Mapping[str, Any], kinds: tuple[str, ...] = ("initContainers", "containers")
) -> Iterator[tuple[Mapping[str, Any], int]]:
    """The containers that request units, with their number."""
    for container, amount in _limits(spec, kinds):
        yield container, parse_count(amount, f"{GPU_MEMORY} of container {container['name']}")


def _limits(
    spec: Mapping[str, Any], kinds: tuple[str, ...] = ("initContainers", "containers")
) -> Iterator[tuple[Mapping[str, Any], object]]:
    """The containers whose limits name the resource, with the amount as it is written."""
    for kind in kinds:
        for container in spec.get(kind) or ():
            limits = (container.get("resources") or {}).get("limits") or {}
            if GPU_MEMORY in limits:
                yield container, limits[GPU_MEMORY]


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
