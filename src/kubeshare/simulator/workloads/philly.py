"""Reads the open trace of Microsoft's Philly clusters.

Source: ``cluster_job_log`` and ``cluster_machine_list`` of msr-fiddle/philly-traces, whose README
describes them (Jeon et al., USENIX ATC '19).

Used of the job log, a JSON list: ``jobid``, ``vc`` (the namespace), ``submitted_time``, and of each
of ``attempts`` its ``start_time``, ``end_time``, and the ``gpus`` of each machine of ``detail``.
``status`` and ``user`` are not used. Of the machine list, a CSV file: all three columns.

What the trace does not have is assumed:

- Jobs have whole GPUs, of any memory: they ask for all of it. The machine list has the memory of
  the GPUs and no model, so ``12GB`` or ``24GB`` is the model.
- Nothing is known of the CPUs and the memory that jobs ask of machines: they count for nothing.
- A job works for as long as all its attempts took, on the GPUs of the last one that had any. An
  attempt without both times, which the README calls an error of logging, took no time; the last
  one without an end was still running, so the job never ends. A job without any GPU never ran.
- A job on several machines is a gang of one pod a machine.
- Times have no zone. They are taken as UTC, as only the time between them matters; the hour that
  was turned back on 2017-11-05 is not accounted for.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Final

import msgspec

from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.gang import Gang
from kubeshare.core.ledger.device import FreeGpu
from kubeshare.core.units import GI, MICROS, Memory
from kubeshare.simulator.cluster import SimulatedNode
from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.jobs import FOREVER, Job
from kubeshare.simulator.workloads.table import Columns, Fields, Table, whole_number

MACHINES: Final = Columns(required=("machineId", "number of GPUs", "single GPU mem"))

MAX_BYTES: Final = 1 << 30
"""The most bytes of a job log, which is read at once; the published one has a tenth of it."""

MAX_MACHINES: Final = 1024
"""The most machines of a job."""

MAX_GPUS: Final = 64
"""The most GPUs of a machine."""

_MEMORY: Final = re.compile(r"([1-9][0-9]{0,3}) ?GB")
_NO_TIME: Final = frozenset({None, "", "None"})


class _Machine(msgspec.Struct, frozen=True):
    """A machine of an attempt, and its GPUs that the attempt had."""

    gpus: Sequence[str] = ()


class _Attempt(msgspec.Struct, frozen=True):
    """A try to run a job."""

    start_time: str | None = None
    end_time: str | None = None
    detail: Sequence[_Machine] = ()


class _Entry(msgspec.Struct, frozen=True):
    """A job of the log."""

    jobid: str
    submitted_time: str
    vc: str = ""
    attempts: Sequence[_Attempt] = ()


def read_machines(path: Path) -> list[SimulatedNode]:
    """The nodes of a machine list.

    Raises:
        SimulationError: the file is invalid.
    """
    return list(Table(path, MACHINES).read(_machine))


class PhillyJobs:
    """The jobs of a job log.

    Args:
        path: the file.
        lenient: whether invalid entries are skipped.

    Attributes:
        count: how many pods there are.
        skipped: how many entries were skipped.
        left_out: how many jobs never ran.

    Raises:
        SimulationError: the file is invalid.
    """

    def __init__(self, path: Path, *, lenient: bool = False) -> None:
        self.skipped = self.left_out = 0
        jobs: list[Job] = []
        for number, raw in enumerate(_entries(path), 1):
            try:
                found = list(_jobs(msgspec.json.decode(raw, type=_Entry)))
            except (InvalidValueError, SimulationError, msgspec.DecodeError) as error:
                if not lenient:
                    raise SimulationError(f"{path}: entry {number}: {error}") from error
                self.skipped += 1
                continue
            self.left_out += not found
            jobs += found
        jobs.sort(key=attrgetter("arrival_s"))
        begin = jobs[0].arrival_s if jobs else 0.0
        self._jobs = [msgspec.structs.replace(job, arrival_s=job.arrival_s - begin) for job in jobs]
        self.count = len(jobs)

    def draw(self, seed: int = 0) -> Iterator[Job]:
        """The jobs in the order of their submission; a trace has no randomness."""
        del seed
        return iter(self._jobs)


def _machine(line: int, row: Fields) -> SimulatedNode:
    del line
    gpus = whole_number(row, "number of GPUs")
    if gpus > MAX_GPUS:
        raise InvalidValueError("number of GPUs", f"{gpus} is more than {MAX_GPUS}")
    memory = _MEMORY.fullmatch(row["single GPU mem"])
    if memory is None:
        raise InvalidValueError("single GPU mem", f"{row['single GPU mem']!r} is not as 24GB")
    kind = FreeGpu(f"{memory[1]}GB", int(memory[1]) * GI)
    return SimulatedNode(name=row["machineId"], gpus=gpus, kind=kind)


def _entries(path: Path) -> list[msgspec.Raw]:
    if path.stat().st_size > MAX_BYTES:
        raise SimulationError(f"{path}: is larger than {MAX_BYTES} bytes")
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[msgspec.Raw])
    except msgspec.DecodeError as error:
        raise SimulationError(f"{path}: is no list of jobs in JSON: {error}") from error


def _jobs(entry: _Entry) -> Iterator[Job]:
    """A job for each machine of an entry; none if it never ran."""
    arrival = _time(entry.submitted_time, "submitted_time")
    placed = [each for each in entry.attempts if any(machine.gpus for machine in each.detail)]
    work = _work(entry.attempts)
    if arrival is None:
        raise InvalidValueError("submitted_time", "is missing")
    if not placed or not work:
        return
    machines = [len(machine.gpus) for machine in placed[-1].detail if machine.gpus]
    if len(machines) > MAX_MACHINES or max(machines) > MAX_GPUS:
        raise SimulationError(f"detail: more than {MAX_MACHINES} machines or {MAX_GPUS} GPUs each")
    several = len(machines) > 1
    gang = Gang(name=entry.jobid, min_available=len(machines)) if several else None
    for number, gpus in enumerate(machines):
        name = f"{entry.jobid}-{number}" if several else entry.jobid
        yield Job(
            uid=name,
            name=name,
            arrival_s=arrival,
            work_s=work,
            gang=gang,
            demand=Demand(
                uid=name,
                name=name,
                namespace=entry.vc,
                request_micros=MICROS,
                memory=Memory(micros=MICROS),
                count=gpus,
            ),
        )


def _work(attempts: Sequence[_Attempt]) -> float:
    """The seconds that all attempts took; ``FOREVER`` if the last one has not ended."""
    work = 0.0
    for attempt in attempts:
        begun, ended = _time(attempt.start_time, "start_time"), _time(attempt.end_time, "end_time")
        if begun is not None and ended is None and attempt is attempts[-1]:
            return FOREVER
        if begun is not None and ended is not None:
            work += max(0.0, ended - begun)
    return work


def _time(text: str | None, field: str) -> float | None:
    """Seconds since the epoch; None if there is no time."""
    if text is None or text in _NO_TIME:
        return None
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise InvalidValueError(field, f"{text!r} is not as 2017-10-07 01:12:09") from None
