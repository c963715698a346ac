"""Rows of the SharePods and pods that ask for shares of GPUs."""

from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec import Struct, to_builtins

from kubeshare.api import sharepods
from kubeshare.api.demands import Demands
from kubeshare.api.types.constants import (
    CONDITION_ALLOCATED,
    CONDITION_POD_SCHEDULED,
    CONDITION_READY,
    CONDITION_SCHEDULED,
    LABEL_ROLE,
    ROLE_POD,
)
from kubeshare.api.types.core_v1 import Pod
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.kube.conditions import find_condition
from kubeshare.kube.meta import Condition, ObjectMeta
from kubeshare.kube.resources import PODS, Raw

SHAREPOD: Final = "SharePod"
POD: Final = PODS.kind

WAITING, STARTING, RUNNING, ENDED = "waiting", "starting", "running", "ended"


class PodRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """A SharePod or plain pod that asks for a share.

    Attributes:
        id: ``Kind/namespace/name``.
        state: ``waiting`` for a GPU, ``starting``, ``running`` or ``ended``.
        node: where it is; "" while it waits.
        gpuids: of its GPUs.
        request: of each GPU, as people write it; as are ``limit`` and ``memory``.
        count: the number of its GPUs.
        reason: why it waits or has not started, in one word.
        message: the same in full.
        created: RFC 3339.
        uid: of the object.
    """

    id: str
    kind: str
    namespace: str
    name: str
    uid: str
    state: str
    node: str = ""
    gpuids: tuple[str, ...] = ()
    request: str = ""
    limit: str = ""
    memory: str = ""
    count: int = 1
    reason: str = ""
    message: str = ""
    created: str = ""


def sharepod_row(raw: Raw, demands: Demands) -> PodRow | None:
    """The row of a SharePod; None if it asks for no share."""
    found = sharepods.view(raw)
    demand, problem = _demand(partial(demands.of_sharepod, raw))
    if demand is None and problem is None:
        return None
    status = found.status
    decided = sharepods.decided(found)
    if sharepods.finished(found):
        state = ENDED
    elif decided or status.gpus:
        ready = find_condition(status.conditions, CONDITION_READY)
        state = RUNNING if ready is not None and ready.status == "True" else STARTING
    else:
        state = WAITING
    kinds = {
        WAITING: (CONDITION_SCHEDULED,),
        STARTING: (CONDITION_ALLOCATED, CONDITION_READY, CONDITION_SCHEDULED),
        ENDED: (CONDITION_READY,),
    }
    blocker = _unmet(status.conditions, kinds.get(state, ()))
    node, gpuids = found.spec.node_name, sharepods.gpuids(found)
    return _row(
        SHAREPOD,
        found.metadata,
        demand,
        state=state,
        problem=problem,
        blocker=blocker,
        node=node,
        gpuids=gpuids,
    )


def pod_row(pod: Pod, demands: Demands, unit: int) -> PodRow | None:
    """The row of a plain pod; None if it asks for no share, or has a SharePod that does.

    ``unit`` is the bytes of a unit of ``aliyun.com/gpu-mem``.
    """
    if not is_plain(pod):
        return None
    demand, problem = _demand(partial(demands.of_pod, to_builtins(pod), unit=unit))
    if demand is None and problem is None:
        return None
    if pod.terminal:
        state = ENDED
    elif pod.gated:
        state = WAITING
    else:
        state = RUNNING if pod.status.phase == "Running" else STARTING
    blocker = _unmet(pod.status.conditions, (CONDITION_POD_SCHEDULED, "PodScheduled", "Ready"))
    shown = blocker if state in (WAITING, STARTING) else None
    return _row(
        POD,
        pod.metadata,
        demand,
        state=state,
        problem=problem,
        blocker=shown,
        node=pod.spec.node_name,
        gpuids=pod.gpuids,
    )


def is_plain(pod: Pod) -> bool:
    """Whether a pod asks for shares itself, by the label that admission gives it."""
    return pod.metadata.labels.get(LABEL_ROLE) == ROLE_POD


def _demand(parse: Callable[[], Demand | None]) -> tuple[Demand | None, str | None]:
    """The demand, or what is wrong with it."""
    try:
        return parse(), None
    except InvalidValueError as error:
        return None, str(error)


def _unmet(conditions: tuple[Condition, ...], kinds: tuple[str, ...]) -> Condition | None:
    """The first of these conditions that is not met."""
    found = (find_condition(conditions, kind) for kind in kinds)
    return next((each for each in found if each is not None and each.status != "True"), None)


def _row(  # noqa: PLR0913 - the parts of a row
    kind: str,
    metadata: ObjectMeta,
    demand: Demand | None,
    *,
    state: str,
    problem: str | None,
    blocker: Condition | None,
    node: str,
    gpuids: tuple[str, ...],
) -> PodRow:
    amounts = sharepods.share_status(demand) if demand else {}
    return PodRow(
        id=f"{kind}/{metadata.namespace}/{metadata.name}",
        kind=kind,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        state=state,
        node=node,
        gpuids=gpuids,
        request=amounts.get("request", ""),
        limit=amounts.get("limit", ""),
        memory=amounts.get("memory", ""),
        count=len(demand.per_gpu()) if demand else 1,
        reason="Invalid" if problem else blocker.reason if blocker else "",
        message=problem or (blocker.message if blocker else ""),
        created=metadata.creation_timestamp or "",
    )
