"""What is written of jobs and nodes is read again."""

from pathlib import Path

import msgspec
import pytest

from kubeshare.core.demand import Demand, Share
from kubeshare.core.gang import Gang
from kubeshare.core.ledger.device import FreeGpu
from kubeshare.core.units import GI, MICROS, Memory
from kubeshare.simulator.cluster import SimulatedNode
from kubeshare.simulator.engine.host_room import HostCapacity
from kubeshare.simulator.jobs import HostRequest, Job
from kubeshare.simulator.workloads.csv_writer import (
    JOB_COLUMNS,
    NODE_COLUMNS,
    job_row,
    node_row,
    write_rows,
)
from kubeshare.simulator.workloads.jobs_csv import JobsCsv
from kubeshare.simulator.workloads.nodes_csv import read_nodes

DEMAND = Demand(
    uid="job-2",
    name="a",
    namespace="team",
    request_micros=333_333,
    limit_micros=600_000,
    memory=Memory(bytes=4 * GI + 1),
    count=2,
    model="Tesla V100",
    affinity="red",
    anti_affinity="green",
    exclusion="blue",
)
JOB = Job(
    uid="job-2",
    name="a",
    arrival_s=1.5,
    work_s=2.25,
    demand=DEMAND,
    need_micros=333_333,
    host=HostRequest(cpu_millis=1500, memory_bytes=2 * GI),
    priority=7,
    preemptible=True,
    gang=Gang(name="g", min_available=2),
)


def again(folder: Path, job: Job) -> Job:
    path = folder / "jobs.csv"
    write_rows(path, JOB_COLUMNS, [job_row(job, 16 * GI)])
    (found,) = JobsCsv(path).draw()
    return found


@pytest.mark.parametrize("memory", [Memory(bytes=4 * GI + 1), Memory(micros=MICROS // 4)])
def test_a_job_is_read_as_it_was(tmp_path: Path, memory: Memory) -> None:
    job = msgspec.structs.replace(JOB, demand=msgspec.structs.replace(DEMAND, memory=memory))
    assert again(tmp_path, job) == job


def test_different_shares_become_equal_ones_of_the_largest(tmp_path: Path) -> None:
    shares = (
        Share(name="a", request_micros=MICROS // 2, memory=Memory(bytes=GI), limit_micros=600_000),
        Share(name="b", request_micros=0, memory=Memory(bytes=8 * GI), proportional=True, count=2),
    )
    demand = Demand(uid="job-2", name="a", shares=shares)
    found = again(tmp_path, msgspec.structs.replace(JOB, demand=demand)).demand
    assert found is not None
    assert (found.count, found.request_micros, found.limit_micros) == (3, MICROS // 2, MICROS)
    assert found.memory == Memory(bytes=8 * GI)


def test_a_value_of_two_lines_stays_in_one(tmp_path: Path) -> None:
    demand = msgspec.structs.replace(DEMAND, model="two\nlines")
    found = again(tmp_path, msgspec.structs.replace(JOB, demand=demand)).demand
    assert found is not None
    assert found.model == "two lines"


def test_a_node_is_read_as_it_was(tmp_path: Path) -> None:
    host = HostCapacity(cpu_millis=7910, memory_bytes=64 * GI, model="T4")
    nodes = [SimulatedNode(name="n", gpus=2, kind=FreeGpu("T4", 15 * GI), host=host)]
    path = tmp_path / "nodes.csv"
    write_rows(path, NODE_COLUMNS, map(node_row, nodes))
    assert read_nodes(path) == nodes
