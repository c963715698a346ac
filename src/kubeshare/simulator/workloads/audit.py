"""Reads Kubernetes audit logs: SharePods and pods with GPUs are jobs.

The log is that of the API server's log backend: a line for each ``Event`` of ``audit.k8s.io/v1``
(https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/). Used are the events of stage
``ResponseComplete`` that succeeded:

- ``create`` of a SharePod or pod: a job arrives, if its manifest asks for a GPU. The manifest is
  the ``responseObject``, or the ``requestObject``, so the level is ``RequestResponse`` or
  ``Request``; the latter has no names for pods with ``generateName``.
- ``update`` and ``patch`` of the ``status``: with the phase ``Running`` the job starts, with
  ``Succeeded`` or ``Failed`` it ends.
- ``delete`` and ``create`` of an ``eviction``: the job ends, if it has not before.

What a log does not have is assumed. Where no status is logged, a job starts when it is created:
its time in the log then includes how long it waited. What has not ended by the end of the log runs
for ever. Deletions of a collection name no objects, so these jobs end with the status of their
pods, or never. What was created before the log began is not in it.
"""

from collections.abc import Iterator
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import msgspec

from kubeshare.api.types.constants import GROUP
from kubeshare.api.types.core_v1 import TERMINAL_PHASES
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import GI
from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.jobs import NO_HOST_REQUEST, Job
from kubeshare.simulator.workloads.manifests import Kind, Life, ask_of, phase_of
from kubeshare.simulator.workloads.table import read_lines

MAX_LINE: Final = 4 << 20
"""The most bytes of an event: those of the largest object, twice, and the rest."""

MAX_JOBS: Final = 1_000_000
"""The most jobs of a log; all are in memory."""

_GROUPS: Final[dict[tuple[str, str], Kind]] = {
    ("", "pods"): "pods",
    (GROUP, "sharepods"): "sharepods",
}


class _Reference(msgspec.Struct, frozen=True, rename="camel"):
    """The object of a request."""

    resource: str = ""
    api_group: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class _Status(msgspec.Struct, frozen=True):
    """The response."""

    code: int = 0


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    """An event; objects are decoded where they are used."""

    stage: str
    verb: str
    stage_timestamp: str
    level: str = ""
    object_ref: _Reference | None = None
    response_status: _Status | None = None
    request_object: msgspec.Raw = msgspec.Raw()
    response_object: msgspec.Raw = msgspec.Raw()

    @property
    def succeeded(self) -> bool:
        """Whether the request is complete, and changed something."""
        status = self.response_status
        return self.stage == "ResponseComplete" and bool(status and 200 <= status.code < 300)


class AuditJobs:
    """The jobs of an audit log.

    Args:
        path: the file.
        lenient: whether invalid lines are skipped.
        hosts: whether the CPU and memory that pods request count.
        unit: bytes of a unit of ``aliyun.com/gpu-mem``, as gpushare's device plugin counts it.

    Attributes:
        count: how many jobs there are.
        skipped: how many lines were skipped.
        left_out: how many jobs never ran.

    Raises:
        SimulationError: the file is invalid.
        OSError: it cannot be read.
    """

    def __init__(
        self, path: Path, *, lenient: bool = False, hosts: bool = False, unit: int = GI
    ) -> None:
        self.skipped = 0
        log = _Log(unit)
        for line, _, content in read_lines(path, MAX_LINE):
            try:
                log.read(line, content)
            except (InvalidValueError, SimulationError, msgspec.DecodeError) as error:
                if not lenient:
                    raise SimulationError(f"{path}:{line}: {error}") from error
                self.skipped += 1
        found = log.jobs()
        self._jobs = sorted(
            (each if hosts else _without_host(each) for each in found),
            key=attrgetter("arrival_s"),
        )
        self.count = len(self._jobs)
        self.left_out = len(log.lives) - self.count

    def draw(self, seed: int = 0) -> Iterator[Job]:
        """The jobs in the order of their creation; a log has no randomness."""
        del seed
        return iter(self._jobs)


class _Log:
    """The lives of the objects of a log.

    Args:
        unit: bytes of a unit of ``aliyun.com/gpu-mem``.

    Attributes:
        lives: all.
    """

    def __init__(self, unit: int) -> None:
        self._unit = unit
        self.lives: list[Life] = []
        self._alive: dict[tuple[Kind, str, str], Life] = {}  # kind, namespace and name
        self._has_status = False

    def read(self, line: int, content: bytes) -> None:
        """Follow an event.

        Raises:
            DecodeError: it is no event in JSON.
            InvalidValueError: a value of it is not acceptable.
            SimulationError: its level leaves something out.
        """
        if len(content) > MAX_LINE:
            raise SimulationError(f"the line is longer than {MAX_LINE} bytes")
        if not content.strip():
            return
        event = msgspec.json.decode(content, type=_Event)
        about = event.object_ref
        kind = _GROUPS.get((about.api_group, about.resource)) if about else None
        if about is None or kind is None or not event.succeeded:
            return
        now = _time(event.stage_timestamp)
        if event.verb == "create" and not about.subresource:
            self._create(line, kind, about, event, now)
            return
        life = self._alive.get((kind, about.namespace, about.name))
        if event.verb == "delete" or (event.verb, about.subresource) == ("create", "eviction"):
            self._end((kind, about.namespace, about.name), now)
        elif about.subresource == "status" and event.verb in {"update", "patch"}:
            phase = phase_of(_object(event))
            # What succeeded has run, if too shortly for a status in between.
            if phase == "Succeeded" and life is not None and life.started_s is None:
                life.started_s = now
            if phase in TERMINAL_PHASES:
                self._end((kind, about.namespace, about.name), now)
            elif phase == "Running":
                self._has_status = True
                if life is not None and life.started_s is None:
                    life.started_s = now

    def jobs(self) -> list[Job]:
        """The jobs of all lives that ran; the first one arrives at 0."""
        begin = min((life.created_s for life in self.lives), default=0.0)
        if not self._has_status:
            for life in self.lives:
                life.started_s = life.created_s
        found = (life.job(begin) for life in self.lives)
        return [job for job in found if job is not None]

    def _create(self, line: int, kind: Kind, about: _Reference, event: _Event, now: float) -> None:
        raw = _object(event)
        if not raw:
            raise SimulationError(
                f"an event of level {event.level or 'Metadata'} has no manifest: the audit policy "
                "needs the level Request or RequestResponse for pods and sharepods"
            )
        metadata = dict(raw.get("metadata") or {})
        name = metadata.get("name") or about.name
        if not name:
            raise SimulationError(
                "the API server made the name, which an event of level Request does not have: "
                "the audit policy needs the level RequestResponse for pods and sharepods"
            )
        metadata |= {"name": name, "namespace": about.namespace, "uid": f"event-{line}"}
        ask = ask_of(kind, raw | {"metadata": metadata}, metadata["uid"], unit=self._unit)
        if ask is None:
            return
        if len(self.lives) >= MAX_JOBS:
            raise SimulationError(f"more than {MAX_JOBS} jobs: give a part of the log")
        life = Life(ask=ask, created_s=now)
        self.lives.append(life)
        self._alive[kind, about.namespace, name] = life

    def _end(self, key: tuple[Kind, str, str], now: float) -> None:
        life = self._alive.pop(key, None)
        if life is not None:
            life.ended_s = now


def _object(event: _Event) -> dict[str, Any]:
    """The object after the request, or what was requested; empty if the level has neither."""
    for raw in (event.response_object, event.request_object):
        found = msgspec.json.decode(raw) if bytes(raw) else None
        if isinstance(found, dict) and found.get("kind") != "Status":
            return found
    return {}


def _time(text: str) -> float:
    """Seconds since the epoch."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidValueError("stageTimestamp", f"{text!r} is no time") from None
    if at.tzinfo is None:
        raise InvalidValueError("stageTimestamp", f"{text!r} has no zone")
    return at.timestamp()


def _without_host(job: Job) -> Job:
    return msgspec.structs.replace(job, host=NO_HOST_REQUEST)
