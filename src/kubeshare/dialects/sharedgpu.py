"""KubeShare's second version: ``sharedgpu/…`` labels of plain pods.

:mod:`kubeshare.dialects.pod` calls this for all plain pods. Manifests that the published code
accepted although they could never run as written are rejected by the name of the label.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import MICROS, Memory, parse_count, parse_gpus
from kubeshare.dialects.amounts import Amounts
from kubeshare.dialects.priority_and_gang import Standing, standing_of
from kubeshare.dialects.requester.ref import RequesterRef
from kubeshare.dialects.shares import MAX_COUNT, NO_MEMORY

LIMIT: Final = "sharedgpu/gpu_limit"
REQUEST: Final = "sharedgpu/gpu_request"
MEMORY: Final = "sharedgpu/gpu_mem"
MODEL: Final = "sharedgpu/gpu_model"


class LabelledDemand(msgspec.Struct, frozen=True, kw_only=True):
    """The demand and the standing of a pod with labels.

    Attributes:
        demand: for a share of one GPU, or for several whole GPUs.
        standing: its priority and gang.
    """

    demand: Demand
    standing: Standing


def read(pod: Mapping[str, Any], models: Iterable[str] = ()) -> LabelledDemand | None:
    """What a pod requests by its labels; None if it requests no GPU.

    Args:
        pod: the object from the API server.
        models: the cluster's GPU models; a label has dashes in place of their spaces.

    Raises:
        InvalidValueError: a value is not acceptable; under the name of the label.
    """
    metadata = pod.get("metadata") or {}
    labels: Mapping[str, str] = {
        key: value for key, value in (metadata.get("labels") or {}).items() if value
    }
    amounts = _amounts(labels)
    if amounts is None:
        return None
    written = labels.get(MODEL, "")
    demand = Demand(
        **RequesterRef.of(metadata).fields(),
        model=next((model for model in models if model.replace(" ", "-") == written), written),
        **amounts,
    )
    return LabelledDemand(demand=demand, standing=standing_of(pod))


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
    if not (memory.micros or memory.bytes):
        raise InvalidValueError(MEMORY, NO_MEMORY)
    return Amounts(request_micros=request, limit_micros=limit, memory=memory)


def _whole(labels: Mapping[str, str], limit: int, request: int) -> Amounts:
    """Whole GPUs with all of their memory, for a limit above one."""
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
        request_micros=MICROS,
        limit_micros=MICROS,
        memory=Memory(micros=MICROS),
        count=limit // MICROS,
    )
