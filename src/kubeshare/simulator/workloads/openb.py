"""The open trace ``openb`` (Alibaba, cluster-trace-gpu-v2023), from files that the user has.

The node list has a line for each node, the pod lists one for each pod; times are in seconds. A
pod runs from its creation for as long as it did in the trace: from the time when it was
scheduled, or created, to its deletion, or for ever if there is none. Some variants have no times
at all: their pods are for :class:`kubeshare.simulator.workloads.filled.Filled`. The trace has no
GPU memory: a share of a GPU asks for the same share of its memory.
"""

from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Final

from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.ledger.device import FreeGpu
from kubeshare.core.units import GI, MI, MICROS, Memory
from kubeshare.simulator.cluster import SimulatedNode
from kubeshare.simulator.engine.host_room import HostCapacity
from kubeshare.simulator.jobs import FOREVER, HostRequest, Job
from kubeshare.simulator.workloads.table import Columns, Fields, Table, seconds, whole_number

NODES: Final = Columns(required=("sn", "cpu_milli", "memory_mib", "gpu"), optional=("model",))
PODS: Final = Columns(
    required=("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"),
    optional=(
        *("gpu_spec", "qos", "pod_phase"),
        *("creation_time", "deletion_time", "scheduled_time"),
    ),
)

GPU_BYTES: Final = 16 * GI
"""The memory of every GPU: the trace does not have it, and shares ask for it in proportion."""

MAX_GPUS: Final = 64
"""The most GPUs of a node."""


def read_nodes(path: Path) -> list[SimulatedNode]:
    """The nodes of a node list.

    Raises:
        SimulationError: the file is invalid.
    """
    return list(Table(path, NODES).read(_node))


class OpenbPods:
    """The pods of a pod list.

    Args:
        path: the file.
        lenient: whether invalid lines are skipped.

    Raises:
        SimulationError: the file is invalid.
    """

    def __init__(self, path: Path, *, lenient: bool = False) -> None:
        table = Table(path, PODS, lenient=lenient)
        self._jobs = sorted(table.read(_pod), key=attrgetter("arrival_s"))
        self.count = table.count
        self.skipped = table.skipped

    def draw(self, seed: int = 0) -> Iterator[Job]:
        """The pods in the order of their creation; a trace has no randomness."""
        del seed
        return iter(self._jobs)


def _node(line: int, row: Fields) -> SimulatedNode:
    del line
    gpus = whole_number(row, "gpu")
    if gpus > MAX_GPUS:
        raise InvalidValueError("gpu", f"{gpus} is more than {MAX_GPUS}")
    model = row.get("model", "")
    host = HostCapacity(
        cpu_millis=whole_number(row, "cpu_milli"),
        memory_bytes=whole_number(row, "memory_mib") * MI,
        model=model,
    )
    return SimulatedNode(name=row["sn"], gpus=gpus, kind=FreeGpu(model, GPU_BYTES), host=host)


def _pod(line: int, row: Fields) -> Job:
    uid, gpus = f"pod-{line}", whole_number(row, "num_gpu")
    milli = whole_number(row, "gpu_milli")
    if gpus and not 0 < milli <= 1000:
        raise InvalidValueError("gpu_milli", f"{milli} is not from 1 to 1000, a whole GPU")
    if gpus > 1 and milli != 1000:
        raise InvalidValueError("gpu_milli", f"{milli} of each of {gpus} GPUs: they are whole")
    micros = milli * (MICROS // 1000)
    demand = (
        Demand(
            uid=uid,
            name=row["name"],
            request_micros=micros,
            memory=Memory(micros=micros),
            count=gpus,
        )
        if gpus
        else None
    )
    created = seconds(row, "creation_time", default=0.0)
    begun = seconds(row, "scheduled_time", default=created)
    ended = seconds(row, "deletion_time", default=FOREVER)
    if ended < begun:
        raise InvalidValueError("deletion_time", f"{ended:g} is before {begun:g}, its begin")
    models = frozenset(filter(None, row.get("gpu_spec", "").split("|"))) if gpus else frozenset()
    return Job(
        uid=uid,
        name=row["name"],
        arrival_s=created,
        work_s=ended - begun,
        demand=demand,
        need_micros=micros if gpus else MICROS,
        host=HostRequest(
            cpu_millis=whole_number(row, "cpu_milli"),
            memory_bytes=whole_number(row, "memory_mib") * MI,
            models=models,
        ),
    )
