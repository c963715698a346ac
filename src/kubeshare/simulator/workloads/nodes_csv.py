"""Reads nodes from a CSV file: different GPUs, CPUs and memory."""

from pathlib import Path
from typing import Final

from kubeshare.core.errors import InvalidValueError
from kubeshare.core.ledger.device import FreeGpu
from kubeshare.core.units import GI, parse_size
from kubeshare.simulator.cluster import MAX_GPUS, SimulatedNode, gpu_count
from kubeshare.simulator.engine.host_room import HostCapacity
from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.workloads.table import Columns, Fields, Table, number, whole_number

COLUMNS: Final = Columns(
    required=("name", "gpus"), optional=("model", "gpu_memory", "cpu", "host_memory")
)

GPU_BYTES: Final = 16 * GI
"""The memory of each GPU where the file does not say it."""

MAX_GPUS_OF_NODE: Final = 64
"""The most GPUs of a node."""


def read_nodes(path: Path) -> list[SimulatedNode]:
    """The nodes of a file; ``docs/simulate.md`` has the columns.

    Raises:
        SimulationError: the file is invalid.
        OSError: it cannot be read.
    """
    nodes = list(Table(path, COLUMNS).read(_node))
    if not gpu_count(nodes):
        raise SimulationError(f"{path}: no node has a GPU")
    if gpu_count(nodes) > MAX_GPUS:
        raise SimulationError(f"{path}: {gpu_count(nodes)} GPUs are more than {MAX_GPUS}")
    if len({node.name for node in nodes}) < len(nodes):
        raise SimulationError(f"{path}: a name of a node occurs twice")
    if len({node.host is None for node in nodes}) > 1:
        raise SimulationError(f"{path}: give cpu and host_memory of all nodes, or of none")
    return nodes


def _node(line: int, row: Fields) -> SimulatedNode:
    del line
    if not row["name"]:
        raise InvalidValueError("name", "is missing")
    gpus = whole_number(row, "gpus")
    if gpus > MAX_GPUS_OF_NODE:
        raise InvalidValueError("gpus", f"{gpus} is more than {MAX_GPUS_OF_NODE}")
    model, memory = row.get("model", ""), row.get("gpu_memory")
    size = parse_size(memory, "gpu_memory") if memory else GPU_BYTES
    return SimulatedNode(
        name=row["name"], gpus=gpus, kind=FreeGpu(model, size), host=_host(row, model)
    )


def _host(row: Fields, model: str) -> HostCapacity | None:
    memory = row.get("host_memory")
    if not row.get("cpu") and not memory:
        return None
    if not row.get("cpu") or not memory:
        raise SimulationError("give both cpu and host_memory, or neither")
    return HostCapacity(
        cpu_millis=round(1000 * number(row, "cpu")),
        memory_bytes=parse_size(memory, "host_memory"),
        model=model,
    )
