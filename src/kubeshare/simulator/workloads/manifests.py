"""Makes jobs of SharePods and pods, from manifests and when they ran."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from kubeshare.api import pod_state
from kubeshare.api.predicates import pod_requests
from kubeshare.api.types.constants import LABEL_ROLE, ROLE_POD
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import GI, MICROS, Memory
from kubeshare.dialects import pod, sharepod
from kubeshare.dialects.priority_and_gang import Standing, standing_of
from kubeshare.simulator.jobs import FOREVER, HostRequest, Job

Kind = Literal["pods", "sharepods"]

KINDS: Final[tuple[Kind, ...]] = ("pods", "sharepods")
"""The plural names of the kinds of which jobs are made."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What a SharePod or pod asks for.

    Attributes:
        demand: of GPUs; nowhere in particular, wherever it was placed.
        standing: its priority, gang and preemptibility.
        host: the CPU and memory that it requests.
    """

    demand: Demand
    standing: Standing
    host: HostRequest


class Life(msgspec.Struct, kw_only=True):
    """What a SharePod or pod asks for, and when it did what.

    Attributes:
        ask: what it asks for.
        created_s: when it was created.
        started_s: when it was first seen running; None before.
        ended_s: when it ended or was deleted; None before.
    """

    ask: Ask
    created_s: float
    started_s: float | None = None
    ended_s: float | None = None

    def job(self, begin_s: float, now_s: float | None = None) -> Job | None:
        """The job of this life; None if it never ran.

        Args:
            begin_s: what is time 0 of the trace; what was created before arrives then.
            now_s: the end of one that still runs; None if it runs for ever.
        """
        if self.started_s is None:
            return None
        started = max(self.started_s, begin_s)
        end = now_s if self.ended_s is None else self.ended_s
        ask, demand = self.ask, self.ask.demand
        return Job(
            arrival_s=max(0.0, self.created_s - begin_s),
            work_s=FOREVER if end is None else max(0.0, end - started),
            uid=demand.uid,
            name=demand.name,
            demand=demand,
            need_micros=demand.request_micros or demand.limit_micros or MICROS,
            host=ask.host,
            priority=ask.standing.priority,
            preemptible=ask.standing.preemptible,
            gang=ask.standing.gang,
        )


def ask_of(kind: Kind, raw: Mapping[str, Any], uid: str, *, unit: int = GI) -> Ask | None:
    """What a manifest asks for; None if that is no GPU, or another object asks for it.

    A pod that requests ``nvidia.com/gpu`` asks for whole GPUs. The pod of a SharePod and
    KubeShare's own pods are not jobs of their own.

    Args:
        kind: the kind of object.
        raw: the object, from the API server or to be created.
        uid: identifies it in the trace.
        unit: the bytes of a unit of ``aliyun.com/gpu-mem``.

    Raises:
        InvalidValueError: a value is not acceptable.
    """
    try:
        view = pod_state.view(raw)
    except msgspec.ValidationError as error:
        raise InvalidValueError(kind, str(error)) from None
    if kind == "pods" and view.metadata.labels.get(LABEL_ROLE, ROLE_POD) != ROLE_POD:
        return None
    is_sharepod = kind == "sharepods"
    demand = sharepod.demand_of(raw) if is_sharepod else pod.demand_of(raw, unit=unit)
    if demand is None:
        if is_sharepod or not view.whole_gpus:
            return None
        demand = Demand(
            uid=uid,
            name=view.metadata.name,
            namespace=view.metadata.namespace,
            request_micros=MICROS,
            memory=Memory(micros=MICROS),
            count=view.whole_gpus,
        )
    requests = pod_requests.needs(view)
    return Ask(
        demand=_anywhere(demand, uid),
        standing=standing_of(raw),
        host=HostRequest(cpu_millis=requests["cpu"], memory_bytes=requests["memory"] // 1000),
    )


def phase_of(raw: Mapping[str, Any]) -> str:
    """The phase in the status of an object or of a patch; "" if it has none."""
    status = raw.get("status")
    phase = status.get("phase") if isinstance(status, Mapping) else None
    return phase if isinstance(phase, str) else ""


def _anywhere(demand: Demand, uid: str) -> Demand:
    """A demand without the GPUs and nodes that it names: those of a simulation are others."""
    return msgspec.structs.replace(
        demand, uid=uid, device_id="", device_nodes=None, nodes=None, attempt=0, family=""
    )
