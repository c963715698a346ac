"""Reads where gpushare or gpu-manager placed a running pod.

Both say so in annotations. KubeShare believes none when it places or starts a pod: these are read
only where an administrator moves a cluster of such a system, and checked against what the pod asks
for. GPUs are numbered as their device files (``/dev/nvidiaN``), which both device plugins use.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from kubeshare.core.demand import Demand, Share
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import parse_count
from kubeshare.dialects import gpushare, vcuda
from kubeshare.dialects.requester.ref import RequesterRef
from kubeshare.dialects.write_back import (
    GPUSHARE,
    GPUSHARE_ALLOCATION,
    VCUDA,
    VCUDA_ASSIGNED,
    VCUDA_INDEX,
)

INDEX: Final = GPUSHARE + "IDX"
"""gpushare's annotation with the GPU of a pod."""
_POD: Final = GPUSHARE + "POD"
_NODE: Final = VCUDA + "predicate-node"


class LegacyPlacement(msgspec.Struct, frozen=True):
    """What a pod has.

    Attributes:
        demand: what it asks for.
        gpus: the name of a share of the demand and the number of a GPU, one for each holder.
    """

    demand: Demand
    gpus: tuple[tuple[str, int], ...]


Reader = Callable[[Mapping[str, Any], int, int | None], LegacyPlacement]
"""Reads a placement: the pod, the bytes of a unit of ``aliyun.com/gpu-mem``, and the number of the
GPU of a node that has one only.

Raises ``InvalidValueError``: an annotation is missing, has another form, or does not agree with the
limits of the pod.
"""


def gpushare_placement_of(pod: Mapping[str, Any], unit: int, only: int | None) -> LegacyPlacement:
    """Where Alibaba's scheduler extender placed a pod; a :data:`Reader`.

    On a node with one GPU, that system starts a pod without an annotation too.
    """
    metadata, annotations = pod["metadata"], pod["metadata"].get("annotations") or {}
    asked = gpushare.units_of_containers(pod.get("spec") or {})
    written = annotations.get(_POD)
    if written is not None and parse_count(written, _POD) != asked:
        message = f"is {written}, and the containers ask for {asked} of {gpushare.GPU_MEMORY}"
        raise InvalidValueError(_POD, message)
    by_gpu = sorted(_units_by_gpu(annotations, asked, only).items())
    shares = tuple(_share(gpu, units, unit) for gpu, units in by_gpu)
    demand = Demand(
        **RequesterRef.of(metadata).fields(),
        family=gpushare.FAMILY,
        shares=shares,
    )
    if len(shares) == 1:
        return LegacyPlacement(demand.reduced_to(shares[0]), (("", by_gpu[0][0]),))
    held = tuple((share.name, gpu) for share, (gpu, _) in zip(shares, by_gpu, strict=True))
    return LegacyPlacement(demand, held)


def vcuda_placement_of(pod: Mapping[str, Any], _unit: int, _only: int | None) -> LegacyPlacement:
    """Where Tencent's gpu-manager placed a pod; a :data:`Reader`."""
    annotations, spec = pod["metadata"].get("annotations") or {}, pod.get("spec") or {}
    if annotations.get(VCUDA_ASSIGNED) != "true":
        message = "is not true: gpu-manager has not given the pod its GPUs"
        raise InvalidValueError(VCUDA_ASSIGNED, message)
    node = annotations.get(_NODE, spec.get("nodeName"))
    if node != spec.get("nodeName"):
        raise InvalidValueError(_NODE, f"is {node}, and the pod runs on {spec.get('nodeName')}")
    demand = vcuda.demand_of(pod)
    asking = vcuda.asking(spec)
    found: list[tuple[str, int]] = []
    for number, container in enumerate(spec.get("containers") or ()):
        if container["name"] in asking:
            share = demand.named(container["name"] if demand.shares else "")
            assert share is not None, "each asking container is a share"
            key = f"{VCUDA_INDEX}{number}"
            found += [(share.name, gpu) for gpu in _numbers(annotations, key, share.count)]
    return LegacyPlacement(demand, tuple(found))


def allocation_of(text: str) -> dict[int, int]:
    """The units on each GPU from the annotation of pods with several, of all containers.

    Raises:
        InvalidValueError: the annotation has another form.
    """
    sums: Counter[int] = Counter()
    try:
        for gpus in json.loads(text).values():
            sums.update({int(gpu): int(units) for gpu, units in gpus.items()})
    except (ValueError, AttributeError, TypeError, RecursionError):
        message = "is not a JSON object of containers with the units on each GPU"
        raise InvalidValueError(GPUSHARE_ALLOCATION, message) from None
    return dict(sums)


def _share(gpu: int, units: int, unit: int) -> Share:
    names = (gpushare.GPU_MEMORY, gpushare.GPU_COUNT)
    amounts = gpushare.amounts(units, unit=unit, names=names)
    return Share(
        name=f"gpu-{gpu}",
        limit_micros=amounts["limit_micros"],
        memory=amounts["memory"],
        proportional=amounts["proportional"],
    )


def _units_by_gpu(
    annotations: Mapping[str, Any], asked: int, only: int | None
) -> Mapping[int, int]:
    """The units that a pod has of each GPU; the sum is what it asks for."""
    if text := annotations.get(GPUSHARE_ALLOCATION):
        found = allocation_of(text)
        if sum(found.values()) != asked or any(units < 1 for units in found.values()):
            message = f"is {text}, and the containers ask for {asked} of {gpushare.GPU_MEMORY}"
            raise InvalidValueError(GPUSHARE_ALLOCATION, message)
        return found
    if INDEX not in annotations and only is not None:
        return {only: asked}
    [gpu] = _numbers(annotations, INDEX, 1)
    return {gpu: asked}


def _numbers(annotations: Mapping[str, Any], key: str, count: int) -> list[int]:
    """The numbers of so many different GPUs, separated by commas."""
    if key not in annotations:
        raise InvalidValueError(key, "is missing: nothing says which GPU the pod has")
    text = str(annotations[key])
    numbers = text.split(",")
    if len(text) > _MAX_LENGTH or not all(each.isascii() and each.isdigit() for each in numbers):
        raise InvalidValueError(key, f'is "{text[:_MAX_LENGTH]}", which names no GPU')
    gpus = sorted({int(each) for each in numbers})
    if len(gpus) != count or len(numbers) != count:
        raise InvalidValueError(key, f'is "{text}", and the pod asks for {count} GPUs there')
    return gpus


_MAX_LENGTH: Final = 256
