"""Reads jobs from a CSV file in the order of arrival."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.gang import Gang
from kubeshare.core.units import MICROS, Memory, parse_amount, parse_memory, parse_share, parse_size
from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.jobs import HostRequest, Job
from kubeshare.simulator.workloads.table import (
    Columns,
    Fields,
    Table,
    number,
    seconds,
    whole_number,
)

COLUMNS: Final = Columns(
    required=("arrival", "duration"),
    optional=(
        *("name", "namespace", "request", "limit", "memory", "gpus", "model", "need", "kind"),
        *("rate", "service_time"),
        *("affinity", "anti_affinity", "exclusion"),
        *("priority", "preemptible", "gang", "min_available", "cpu", "host_memory"),
    ),
)

MAX_CPUS: Final = 100_000
"""The most CPUs that a job may request."""


class JobsCsv:
    """The jobs of a file; ``docs/simulate.md`` has the columns.

    Args:
        path: the file.
        lenient: whether invalid lines are skipped.

    Raises:
        SimulationError: the file is invalid.
    """

    def __init__(self, path: Path, *, lenient: bool = False) -> None:
        self._table = Table(path, COLUMNS, lenient=lenient)
        # All of it is read once before anything is simulated: an error comes at once.
        for _ in self.draw():
            pass
        self.count = self._table.count
        self.skipped = self._table.skipped

    def draw(self, seed: int = 0) -> Iterator[Job]:
        """The jobs; a file has no randomness."""
        del seed
        latest = 0.0

        def parse(line: int, row: Fields) -> Job:
            nonlocal latest
            job = _job(line, row)
            if job.arrival_s < latest:
                raise InvalidValueError("arrival", "is before that of the line above: sort by it")
            latest = job.arrival_s
            return job

        return self._table.read(parse)


def _job(line: int, row: Fields) -> Job:
    uid = f"job-{line}"
    name = row.get("name") or uid
    gpus = whole_number(row, "gpus", default=1)
    demand = _demand(uid, name, gpus, row) if gpus else None
    service_s = seconds(row, "service_time", default=0)
    return Job(
        uid=uid,
        name=name,
        arrival_s=seconds(row, "arrival"),
        work_s=seconds(row, "duration"),
        demand=demand,
        need_micros=_need(row, demand, service_s),
        service_s=service_s,
        host=_host(row),
        priority=whole_number(row, "priority", lowest=-1),
        preemptible=_flag(row, "preemptible"),
        gang=_gang(row),
        kind=row.get("kind", ""),
    )


def _need(row: Fields, demand: Demand | None, service_s: float) -> int:
    """The part of each GPU that a job uses: that of its requests, if it serves any."""
    rate = number(row, "rate")
    if bool(rate) != bool(service_s):
        raise SimulationError("rate, service_time: a job that serves requests needs both")
    if demand is None:
        return MICROS
    text = row.get("need")
    if rate and text:
        raise SimulationError("need: that of a job that serves requests is rate x service_time")
    if rate:
        return parse_share(f"{rate * service_s:.6f}", "rate x service_time")
    if text:
        return parse_share(text, "need")
    return demand.request_micros or demand.limit_micros


def _demand(uid: str, name: str, gpus: int, row: Fields) -> Demand:
    request = parse_share(row.get("request") or "1", "request")
    memory = row.get("memory")
    return Demand(
        uid=uid,
        name=name,
        namespace=row.get("namespace", ""),
        request_micros=request,
        limit_micros=parse_share(row.get("limit") or "1", "limit"),
        memory=parse_memory(memory, "memory") if memory else Memory(micros=request),
        count=gpus,
        model=row.get("model", ""),
        affinity=row.get("affinity", ""),
        anti_affinity=row.get("anti_affinity", ""),
        exclusion=row.get("exclusion", ""),
    )


def _host(row: Fields) -> HostRequest:
    cpus, memory = row.get("cpu"), row.get("host_memory")
    amount = parse_amount(cpus, "cpu") if cpus else 0
    if amount > MAX_CPUS:
        raise InvalidValueError("cpu", f"{cpus} is more than {MAX_CPUS}")
    size = parse_size(memory, "host_memory") if memory else 0
    return HostRequest(cpu_millis=round(amount * 1000), memory_bytes=size)


def _gang(row: Fields) -> Gang | None:
    name = row.get("gang")
    if not name:
        return None
    if not row.get("min_available"):
        raise SimulationError("min_available: a gang needs it")
    return Gang(name=name, min_available=whole_number(row, "min_available", lowest=1))


def _flag(row: Fields, column: str) -> bool:
    text = row.get(column) or "false"
    if text not in ("true", "false"):
        raise InvalidValueError(column, f"{text!r} is neither true nor false")
    return text == "true"
