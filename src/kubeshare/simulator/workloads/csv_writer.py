"""Writes jobs and nodes as the CSV files that ``kubeshare sim`` reads."""

import csv
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from kubeshare.core.demand import Demand
from kubeshare.core.units import MICROS, format_share
from kubeshare.simulator.cluster import SimulatedNode
from kubeshare.simulator.jobs import Job
from kubeshare.simulator.workloads import nodes_csv

JOB_COLUMNS: Final = (
    *("name", "namespace", "arrival", "duration", "request", "limit", "memory", "gpus", "model"),
    *("affinity", "anti_affinity", "exclusion", "priority", "preemptible"),
    *("gang", "min_available", "cpu", "host_memory"),
)
"""The columns of :data:`jobs_csv.COLUMNS` that are written: nobody recorded the others."""

NODE_COLUMNS: Final = (*nodes_csv.COLUMNS.required, *nodes_csv.COLUMNS.optional)

JobRow = tuple[str, ...]
"""The text of each of :data:`JOB_COLUMNS`."""


def job_row(job: Job, gpu_bytes: int) -> JobRow:
    """A job with an end, to the millisecond.

    A demand for different shares becomes as many equal ones as large as the largest, since a file
    has none of those. A request that follows the memory becomes that of a GPU of a size.

    Args:
        job: the job.
        gpu_bytes: the memory of such a GPU.
    """
    demand, gang, host = job.demand, job.gang, job.host
    assert demand is not None
    request, limit, memory = _largest(demand, gpu_bytes)
    return (
        *(job.name, demand.namespace, f"{job.arrival_s:.3f}", f"{job.work_s:.3f}"),
        *(format_share(request), format_share(limit), memory),
        *(str(len(demand.per_gpu())), demand.model),
        *(demand.affinity, demand.anti_affinity, demand.exclusion),
        *(str(job.priority), "true" if job.preemptible else "false"),
        *((gang.name, str(gang.min_available)) if gang else ("", "")),
        format_share(host.cpu_millis * (MICROS // 1000)) if host.cpu_millis else "",
        f"{-(-host.memory_bytes // 1024)}Ki" if host.memory_bytes else "",
    )


def node_row(node: SimulatedNode) -> tuple[str, ...]:
    """A node: the text of each of :data:`NODE_COLUMNS`."""
    host = node.host
    return (
        *(node.name, str(node.gpus), node.kind.model, _kibibytes(node.kind.memory_bytes)),
        format_share(host.cpu_millis * (MICROS // 1000)) if host else "",
        _kibibytes(host.memory_bytes) if host else "",
    )


def write_rows(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a file at once, so that whoever reads it, at any time, finds a whole one.

    Raises:
        OSError: it cannot be written.
    """
    new = path.with_name(f".{path.name}.new")
    with new.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        # A row is a line: a value that somebody wrote in two lines gets one.
        writer.writerows([" ".join(cell.split()) for cell in row] for row in rows)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _largest(demand: Demand, gpu_bytes: int) -> tuple[int, int, str]:
    """Request and limit in micros, and the memory as text, of its largest share."""
    shares = demand.per_gpu()
    largest = max(shares, key=lambda share: share.memory.on(gpu_bytes))
    request = max(
        min(MICROS, share.memory.on(gpu_bytes) * MICROS // gpu_bytes)
        if share.proportional
        else share.request_micros
        for share in shares
    )
    limit = max(request, *(share.limit_micros for share in shares))
    micros, size = largest.memory.micros, largest.memory.bytes
    # A number up to 1 is a share of the GPU, and above it bytes.
    return request, limit, format_share(micros) if micros is not None else str(max(2, size or 0))


def _kibibytes(size: int) -> str:
    return f"{max(1, size // 1024)}Ki"
