"""KubeShare's second version: ``sharedgpu/…`` labels of plain pods.

The door is that of all plain pods (:mod:`kubeshare.dialects.pod`). Where the published
code let a manifest through that could never run as it says, the pod is refused by the
name of the label.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import MICROS, Memory, parse_count, parse_gpus
from kubeshare.dialects.amounts import Amounts
from kubeshare.dialects.spellings import MAX_COUNT

LIMIT: Final = "sharedgpu/gpu_limit"
REQUEST: Final = "sharedgpu/gpu_request"
MEMORY: Final = "sharedgpu/gpu_mem"
MODEL: Final = "sharedgpu/gpu_model"
PRIORITY: Final = "sharedgpu/priority"
GROUP_NAME: Final = "sharedgpu/group_name"
GROUP_HEADCOUNT: Final = "sharedgpu/group_headcount"
GROUP_THRESHOLD: Final = "sharedgpu/group_threshold"
MIN_AVAILABLE: Final = "sharedgpu/min_available"

LOWEST_PRIORITY: Final = -1
HIGHEST_PRIORITY: Final = 100


class Gang(msgspec.Struct, frozen=True, kw_only=True):
    """Pods of one namespace that start together or not at all.

    Attributes:
        name: the same for all of them.
        min_available: how many must have room before any starts, at least one.
        headcount: how many there are to be; 0 where that is not said.
    """

    name: str
    min_available: int
    headcount: int = 0


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the labels of a pod ask for.

    Attributes:
        demand: of a GPU, or of several whole ones.
        priority: -1 to 100; up to 0 takes what is left, above 0 is guaranteed.
        gang: the pods with which it starts, if there are any.
    """

    demand: Demand
    priority: int = 0
    gang: Gang | None = None


def read(pod: Mapping[str, Any], models: Iterable[str] = ()) -> Asked | None:
    """What a pod asks for by its labels.

    Args:
        pod: the object as the API server gives it.
        models: the cluster's GPU models; a label has dashes for their spaces.

    Returns:
        None for a pod that asks for nothing of a GPU.

    Raises:
        InvalidValueError: a value is not acceptable, under the label's name.
    """
    metadata = pod.get("metadata") or {}
    labels: Mapping[str, str] = {
        key: value for key, value in (metadata.get("labels") or {}).items() if value
    }
    amounts = _amounts(labels)
    if amounts is None:
        return None
    name, namespace = str(metadata.get("name", "")), str(metadata.get("namespace", ""))
    written = labels.get(MODEL, "")
    demand = Demand(
        uid=metadata.get("uid") or f"{namespace}/{name}",
        name=name,
        namespace=namespace,
        model=next((model for model in models if model.replace(" ", "-") == written), written),
        **amounts,
    )
    return Asked(demand=demand, priority=_priority(labels), gang=_gang(labels))


def _amounts(labels: Mapping[str, str]) -> Amounts | None:
    if LIMIT not in labels:
        if given := [key for key in (REQUEST, MEMORY) if key in labels]:
            raise InvalidValueError(LIMIT, f"missing beside {' and '.join(given)}")
        return None
    limit = parse_gpus(labels[LIMIT], LIMIT)
    request = parse_gpus(labels.get(REQUEST, "0"), REQUEST)
    if limit > MICROS:
        return _whole(labels, limit, request)
    if request > limit:
        raise InvalidValueError(
            REQUEST, f"{labels[REQUEST]} is more than {labels[LIMIT]} in {LIMIT}"
        )
    if limit == 0:
        return None
    memory = Memory(micros=request)
    if MEMORY in labels:
        memory = Memory(bytes=parse_count(labels[MEMORY], MEMORY))
    return Amounts(request=request, limit=limit, memory=memory)


def _whole(labels: Mapping[str, str], limit: int, request: int) -> Amounts:
    """More than one GPU is a number of whole ones, with all of their memory."""
    if limit % MICROS:
        words = f"{labels[LIMIT]} is more than one GPU and not a whole number of them"
        raise InvalidValueError(LIMIT, words)
    if limit > MAX_COUNT * MICROS:
        raise InvalidValueError(LIMIT, f"{labels[LIMIT]} is more than {MAX_COUNT} GPUs")
    if request != limit:
        given = labels.get(REQUEST, "nothing")
        words = f"{given} differs from {labels[LIMIT]} in {LIMIT}: whole GPUs are all guaranteed"
        raise InvalidValueError(REQUEST, words)
    return Amounts(
        request=MICROS, limit=MICROS, memory=Memory(micros=MICROS), count=limit // MICROS
    )


def _priority(labels: Mapping[str, str]) -> int:
    text = labels.get(PRIORITY, "0")
    try:
        priority = int(text)
    except ValueError:
        raise InvalidValueError(PRIORITY, f"{text} is not a whole number") from None
    if not LOWEST_PRIORITY <= priority <= HIGHEST_PRIORITY:
        words = f"{text} is not from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}"
        raise InvalidValueError(PRIORITY, words)
    return priority


def _gang(labels: Mapping[str, str]) -> Gang | None:
    """The group; none where not all is said that makes one, as published."""
    if GROUP_NAME not in labels:
        return None
    headcount = parse_count(labels.get(GROUP_HEADCOUNT, "0"), GROUP_HEADCOUNT)
    needed = _threshold(labels, headcount)
    if MIN_AVAILABLE in labels:
        said = parse_count(labels[MIN_AVAILABLE], MIN_AVAILABLE)
        if needed not in (None, said):
            words = f"{said} differs from {needed}, which {GROUP_THRESHOLD} makes of the headcount"
            raise InvalidValueError(MIN_AVAILABLE, words)
        needed = said
    if not needed:
        return None
    if headcount and needed > headcount:
        field = MIN_AVAILABLE if MIN_AVAILABLE in labels else GROUP_THRESHOLD
        words = f"{needed} of {headcount} pods can never be there: nothing would start"
        raise InvalidValueError(field, words)
    return Gang(name=labels[GROUP_NAME], min_available=needed, headcount=headcount)


def _threshold(labels: Mapping[str, str], headcount: int) -> int | None:
    """The pods that a threshold makes of a headcount, halves rounded up; None without both."""
    if GROUP_THRESHOLD not in labels or GROUP_HEADCOUNT not in labels:
        return None
    if headcount < 1:
        raise InvalidValueError(GROUP_HEADCOUNT, f"{headcount} is less than one pod")
    threshold = parse_gpus(labels[GROUP_THRESHOLD], GROUP_THRESHOLD)
    if threshold == 0:
        raise InvalidValueError(GROUP_THRESHOLD, f"{labels[GROUP_THRESHOLD]} is not above 0")
    return (threshold * headcount + MICROS // 2) // MICROS
