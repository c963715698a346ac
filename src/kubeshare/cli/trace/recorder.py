"""Follows SharePods and pods with GPUs, and makes rows of them."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from kubeshare.api.state.stripping import strip
from kubeshare.api.types.core_v1 import TERMINAL_PHASES
from kubeshare.cli.trace.pseudonyms import Pseudonyms
from kubeshare.core.errors import InvalidValueError
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.resources import Raw
from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.jobs import Job
from kubeshare.simulator.workloads.csv_writer import JOB_COLUMNS, JobRow, job_row
from kubeshare.simulator.workloads.manifests import Kind, Life, ask_of, phase_of

MAX_JOBS: Final = 200_000
"""The most jobs of a recording: rows of some hundred bytes each in memory."""

_ARRIVAL: Final = JOB_COLUMNS.index("arrival")
_GANG: Final = JOB_COLUMNS.index("gang")
_MIN_AVAILABLE: Final = JOB_COLUMNS.index("min_available")


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs a recording has.

    Attributes:
        ended: that ended.
        running: that still run; they end with the recording.
        left_out: that never ran.
        unreadable: objects whose demand KubeShare does not accept.
        full: whether there are as many as a recording takes.
    """

    ended: int
    running: int
    left_out: int
    unreadable: int
    full: bool


class Recorder:
    """The jobs of a recording.

    Memory is that of what is alive, and a row for each job that ended.

    Args:
        clock: seconds; of the same clock is when the recording began.
        pseudonyms: of all names.
        gpu_bytes: the memory of the usual GPU.
        unit: the bytes of a unit of ``aliyun.com/gpu-mem``.
    """

    def __init__(
        self, clock: Callable[[], float], pseudonyms: Pseudonyms, gpu_bytes: int, unit: int
    ) -> None:
        self._clock, self._pseudonyms, self._gpu_bytes = clock, pseudonyms, gpu_bytes
        self._unit = unit
        self._begin_s = clock()
        self._alive: dict[str, Life] = {}  # by uid
        self._rows: list[JobRow] = []
        self._left_out = self._unreadable = 0

    @property
    def full(self) -> bool:
        """Whether it takes no more jobs."""
        return len(self._rows) + len(self._alive) >= MAX_JOBS

    @property
    def counts(self) -> Counts:
        """How many jobs there are."""
        ran = sum(life.started_s is not None for life in self._alive.values())
        return Counts(
            ended=len(self._rows),
            running=ran,
            left_out=self._left_out + len(self._alive) - ran,
            unreadable=self._unreadable,
            full=self.full,
        )

    def handler(self, kind: Kind) -> Callable[[Change[Raw]], None]:
        """What follows the changes of a kind."""
        return lambda change: self._follow(kind, change)

    def rows(self) -> list[JobRow]:
        """The rows of all jobs that ran, by arrival; what still runs ends now.

        Of a gang as many members are needed as were seen to run, if those are fewer.
        """
        now = self._clock()
        running = (self._row(life, now) for life in self._alive.values())
        rows = [*self._rows, *(row for row in running if row is not None)]
        members = Counter(row[_GANG] for row in rows)
        rows.sort(key=lambda row: float(row[_ARRIVAL]))
        return [_with_members(row, members[row[_GANG]]) for row in rows]

    def _follow(self, kind: Kind, change: Change[Raw]) -> None:
        raw, now = change.object, self._clock()
        uid = str(raw["metadata"].get("uid") or "")
        phase = phase_of(raw)
        ended = change.type == DELETED or phase in TERMINAL_PHASES
        life = self._alive.get(uid)
        if life is None:
            if ended or self.full:
                return
            life = self._born(kind, raw, uid, self._begin_s if change.initial else now)
            if life is None:
                return
        # A pod that succeeded has run, if too shortly for a watch to show it.
        if life.started_s is None and phase in {"Running", "Succeeded"}:
            life.started_s = self._begin_s if change.initial else now
        if ended:
            life.ended_s = now
            self._end(uid, life)

    def _born(self, kind: Kind, raw: Raw, uid: str, now: float) -> Life | None:
        try:
            ask = ask_of(kind, raw, uid, unit=self._unit)
        except InvalidValueError:
            self._unreadable += 1
            return None
        if ask is None:
            return None
        life = self._alive[uid] = Life(ask=ask, created_s=now)
        return life

    def _end(self, uid: str, life: Life) -> None:
        del self._alive[uid]
        row = self._row(life, self._clock())
        if row is None:
            self._left_out += 1
        else:
            self._rows.append(row)

    def _row(self, life: Life, now: float) -> JobRow | None:
        try:
            job = life.job(self._begin_s, now)
        except SimulationError:
            return None
        return None if job is None else job_row(self._anonymous(job), self._gpu_bytes)

    def _anonymous(self, job: Job) -> Job:
        of, demand = self._pseudonyms.of, job.demand
        assert demand is not None
        space = demand.namespace
        gang = job.gang and msgspec.structs.replace(job.gang, name=of(space, job.gang.name))
        # Labels of GPUs count across namespaces, or within one: whichever is so, it stays.
        hidden = msgspec.structs.replace(
            demand,
            namespace=of(space),
            affinity=of(demand.affinity),
            anti_affinity=of(demand.anti_affinity),
            exclusion=of(demand.exclusion),
        )
        return msgspec.structs.replace(
            job, name=of(space, job.name, job.uid), demand=hidden, gang=gang
        )


def only_gpus(kind: Kind) -> Callable[[Raw], Raw]:
    """What a cache keeps of objects of a kind: of those without a GPU, who they are."""

    def transform(raw: Raw) -> Raw:
        try:
            asks = ask_of(kind, raw, "uid") is not None
        except InvalidValueError:
            asks = True
        return strip(raw) if asks else {"metadata": _identity(raw["metadata"])}

    return transform


def _identity(metadata: Mapping[str, Any]) -> dict[str, Any]:
    names = ("name", "namespace", "uid", "resourceVersion")
    return {name: metadata[name] for name in names if name in metadata}


def _with_members(row: JobRow, members: int) -> JobRow:
    needed = row[_MIN_AVAILABLE]
    if not needed or int(needed) <= members:
        return row
    return (*row[:_MIN_AVAILABLE], str(members), *row[_MIN_AVAILABLE + 1 :])
