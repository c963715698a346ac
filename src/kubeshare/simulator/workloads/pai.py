"""Reads the open trace of Alibaba PAI, 2020.

Source: ``pai_task_table.csv`` and ``pai_machine_spec.csv`` of alibaba/clusterdata,
cluster-trace-gpu-v2020, whose README describes them (Weng et al., USENIX NSDI '22). They are CSV
files without a header; the columns are those of the ``.header`` files beside them.

Used of a task: all columns but ``status``. Of a machine: all columns. ``plan_cpu`` and
``plan_gpu`` are in hundredths of a CPU and of a GPU, ``plan_mem`` and ``cap_mem`` in GB, times in
seconds.

What these tables do not have is assumed:

- The memory of GPUs is that of the model (:data:`GPU_BYTES`). No task says how much it asks for: a
  share of a GPU asks for the same share of its memory.
- A task arrives when it was launched (``start_time``): how long it waited before that is in the
  table of jobs, which is not read. The first one arrives at 0. A task without that time never ran.
- Each of its ``inst_num`` instances is a pod with all that the task plans, and runs until the
  ``end_time`` of the task, for ever without one. Several of them are a gang, as PAI starts them
  together. The tasks of one job are not bound to each other.
- ``gpu_type`` is the model of the GPUs that the task got, not always one that it asked for; its
  pods may use that model only. More than 100 of ``plan_gpu`` is as many whole GPUs, rounded up.
"""

import math
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.gang import Gang
from kubeshare.core.ledger.device import FreeGpu
from kubeshare.core.units import GI, MICROS, Memory
from kubeshare.simulator.cluster import SimulatedNode
from kubeshare.simulator.engine.host_room import HostCapacity
from kubeshare.simulator.jobs import FOREVER, HostRequest, Job
from kubeshare.simulator.workloads.table import (
    Columns,
    Fields,
    Place,
    Table,
    number,
    seconds,
)

TASKS_FILE: Final = "pai_task_table.csv"
MACHINES_FILE: Final = "pai_machine_spec.csv"

TASKS: Final = Columns(
    required=(
        *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
        *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
    )
)
MACHINES: Final = Columns(required=("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu"))

GPU_BYTES: Final[Mapping[str, int]] = {
    "T4": 16 * GI,
    "P100": 16 * GI,
    "V100": 16 * GI,
    "V100M32": 32 * GI,
    "MISC": 12 * GI,
}
"""The memory of a GPU by its model. ``MISC`` are K40m, K80 and M60: 12 GB, and less on an M60."""

OTHER_BYTES: Final = 16 * GI
"""That of other models."""

_NO_GPU: Final = frozenset({"", "CPU"})
"""Values of ``gpu_type`` of machines and tasks without GPUs."""

MAX_INSTANCES: Final = 10_000
"""The most instances of a task."""

MAX_GPUS: Final = 64
"""The most GPUs of a machine or an instance."""


class _Task(msgspec.Struct, frozen=True, kw_only=True):
    """A task: its launch in seconds, how many instances it has, and each of them."""

    start_s: float | None
    instances: int
    job: Job


def read_machines(folder: Path) -> list[SimulatedNode]:
    """The nodes of the table of machines in a folder.

    Raises:
        SimulationError: the file is invalid.
        OSError: it cannot be read.
    """
    return list(Table(folder / MACHINES_FILE, MACHINES, header=False).read(_machine))


class PaiTasks:
    """The instances of the table of tasks in a folder.

    Memory is that of two numbers for each task: rows are read again when they arrive.

    Args:
        folder: has the file.
        lenient: whether invalid rows are skipped.

    Attributes:
        count: how many instances there are.
        skipped: how many rows were skipped.
        left_out: how many tasks never ran.

    Raises:
        SimulationError: the file is invalid.
        OSError: it cannot be read.
    """

    def __init__(self, folder: Path, *, lenient: bool = False) -> None:
        self._path = folder / TASKS_FILE
        table = Table(self._path, TASKS, lenient=lenient, header=False)
        starts, lines, offsets = array("d"), array("q"), array("q")
        self.count = self.left_out = 0
        for task in table.read(_task):
            if task.start_s is None:
                self.left_out += 1
                continue
            starts.append(task.start_s)
            lines.append(table.at.line)
            offsets.append(table.at.offset)
            self.count += task.instances
        self.skipped = table.skipped
        order = array("q", sorted(range(len(starts)), key=starts.__getitem__))
        self._begin_s = starts[order[0]] if order else 0.0
        self._lines, self._offsets = array("q"), array("q")
        for at in order:
            self._lines.append(lines[at])
            self._offsets.append(offsets[at])

    def draw(self, seed: int = 0) -> Iterator[Job]:
        """The instances in the order of their launch; a trace has no randomness."""
        del seed
        table = Table(self._path, TASKS, header=False)
        places = map(Place, self._lines, self._offsets)
        for task in table.read_at(places, _task):
            assert task.start_s is not None
            yield from _instances(task, task.start_s - self._begin_s)


def _machine(line: int, row: Fields) -> SimulatedNode:
    del line
    model = "" if row["gpu_type"] in _NO_GPU else row["gpu_type"]
    gpus = math.ceil(number(row, "cap_gpu", most=MAX_GPUS))
    host = HostCapacity(
        cpu_millis=round(1000 * number(row, "cap_cpu")),
        memory_bytes=round(number(row, "cap_mem") * GI),
        model=model,
    )
    kind = FreeGpu(model, GPU_BYTES.get(model, OTHER_BYTES))
    return SimulatedNode(name=row["machine"], gpus=gpus, kind=kind, host=host)


def _task(line: int, row: Fields) -> _Task:
    begun = seconds(row, "start_time") if row["start_time"] else None
    ended = seconds(row, "end_time", default=FOREVER)
    if begun is not None and ended < begun:
        raise InvalidValueError("end_time", f"{ended:g} is before {begun:g}, the start_time")
    text = row["inst_num"]
    instances = math.ceil(number(row, "inst_num", most=MAX_INSTANCES)) if text else 1
    if instances < 1:
        raise InvalidValueError("inst_num", f"{text} is less than 1")
    demand = _demand(line, row)
    has_model = demand is not None and row["gpu_type"] not in _NO_GPU
    job = Job(
        uid=f"task-{line}",
        name=f"{row['job_name']}/{row['task_name']}",
        arrival_s=0.0,
        work_s=FOREVER if begun is None else ended - begun,
        demand=demand,
        need_micros=demand.request_micros if demand else MICROS,
        host=HostRequest(
            cpu_millis=round(10 * number(row, "plan_cpu")),
            memory_bytes=round(number(row, "plan_mem") * GI),
            models=frozenset([row["gpu_type"]]) if has_model else frozenset(),
        ),
    )
    return _Task(start_s=begun, instances=instances, job=job)


def _demand(line: int, row: Fields) -> Demand | None:
    hundredths = number(row, "plan_gpu", most=100 * MAX_GPUS)
    if not hundredths:
        return None
    whole = hundredths > 100
    micros = MICROS if whole else max(1, round(hundredths * MICROS / 100))
    return Demand(
        uid=f"task-{line}",
        name=f"{row['job_name']}/{row['task_name']}",
        request_micros=micros,
        memory=Memory(micros=micros),
        count=math.ceil(hundredths / 100),
    )


def _instances(task: _Task, arrival_s: float) -> Iterator[Job]:
    job, several = task.job, task.instances > 1
    for instance in range(task.instances):
        uid = f"{job.uid}-{instance}" if several else job.uid
        name = f"{job.name}-{instance}" if several else job.name
        demand = job.demand and msgspec.structs.replace(job.demand, uid=uid, name=name)
        # Pods without GPUs are placed one by one.
        gang = Gang(name=job.uid, min_available=task.instances) if several and demand else None
        yield msgspec.structs.replace(
            job, uid=uid, name=name, arrival_s=arrival_s, demand=demand, gang=gang
        )
