"""Public traces: what is read of Philly and of PAI, and what invalid entries get."""

import json
from pathlib import Path
from typing import Any

import pytest

from kubeshare.core.gang import Gang
from kubeshare.core.units import GI, MICROS
from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.jobs import FOREVER
from kubeshare.simulator.workloads import pai, philly

# The columns and keys as published; the rows and entries are not from the traces.
MACHINES = "machineId,number of GPUs, single GPU mem\nm1,2, 12GB\nm2,8, 24GB\n"


def attempt(begin: str | None, end: str | None, *machines: int) -> dict[str, Any]:
    detail = [
        {"ip": f"m{number}", "gpus": [f"gpu{index}" for index in range(gpus)]}
        for number, gpus in enumerate(machines)
    ]
    times = [each and f"2017-10-07 {each}" for each in (begin, end)]
    return {"start_time": times[0], "end_time": times[1], "detail": detail}


def entry(name: str, submitted: str, *attempts: dict[str, Any]) -> dict[str, Any]:
    return {
        "status": "Pass",
        "vc": "vc1",
        "jobid": name,
        "attempts": attempts,
        "submitted_time": f"2017-10-07 {submitted}",
        "user": "u",
    }


def job_log(folder: Path, *entries: object) -> Path:
    path = folder / "cluster_job_log"
    path.write_text(json.dumps(entries))
    return path


def test_the_machines_of_philly_have_the_memory_of_their_gpus(tmp_path: Path) -> None:
    path = tmp_path / "cluster_machine_list"
    path.write_text(MACHINES)
    small, large = philly.read_machines(path)
    assert (small.name, small.gpus, small.kind.memory_bytes) == ("m1", 2, 12 * GI)
    assert (large.gpus, large.kind.model, large.host) == (8, "24GB", None)
    path.write_text(MACHINES + "m3,8,much\n")
    with pytest.raises(SimulationError, match=":4: single GPU mem: 'much' is not as 24GB"):
        philly.read_machines(path)
    path.write_text("rack," + MACHINES)
    with pytest.raises(SimulationError, match=":1: column 'rack' is not known; these are: machine"):
        philly.read_machines(path)


def test_a_job_of_philly_works_as_long_as_all_its_attempts(tmp_path: Path) -> None:
    again = entry(
        "again",
        "01:00:10",
        attempt("01:01:00", "01:02:00", 1),
        attempt(None, "01:03:00", 4),
        attempt("01:04:00", "01:04:30", 8),
    )
    first = entry("first", "01:00:00", attempt("01:00:00", "01:00:20", 2))
    one, two = philly.PhillyJobs(job_log(tmp_path, again, first)).draw()
    assert (one.name, one.arrival_s, one.work_s) == ("first", 0, 20)
    assert (two.name, two.arrival_s, two.work_s) == ("again", 10, 90)
    assert two.demand is not None
    assert (two.demand.count, two.demand.request_micros) == (8, MICROS)
    assert two.demand.memory.on(24 * GI) == 24 * GI
    assert two.demand.namespace == "vc1"


def test_a_job_of_philly_on_several_machines_is_a_gang(tmp_path: Path) -> None:
    jobs = philly.PhillyJobs(
        job_log(tmp_path, entry("wide", "01:00:00", attempt("01:00:00", "02:00:00", 8, 4)))
    )
    assert [job.name for job in jobs.draw()] == ["wide-0", "wide-1"]
    assert [job.demand and job.demand.count for job in jobs.draw()] == [8, 4]
    assert {job.gang for job in jobs.draw()} == {Gang(name="wide", min_available=2)}
    assert jobs.count == 2


def test_jobs_of_philly_that_never_ran_are_left_out_and_running_ones_stay(tmp_path: Path) -> None:
    jobs = philly.PhillyJobs(
        job_log(
            tmp_path,
            entry("queued", "01:00:00"),
            entry("nowhere", "01:00:00", attempt("01:00:00", "01:00:05")),
            entry("running", "01:00:00", attempt("01:00:00", None, 1)),
        )
    )
    (job,) = jobs.draw()
    assert (job.name, job.work_s) == ("running", FOREVER)
    assert (jobs.left_out, jobs.skipped) == (2, 0)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"jobid": "a"}, "entry 2: Object missing required field `submitted_time`"),
        (
            entry("a", "soon", attempt("01:00:00", "01:00:05", 1)),
            "entry 2: submitted_time: '2017-10-07 soon' is not as 2017-10-07 01:12:09",
        ),
        (
            entry("a", "01:00:00", attempt("01:00:00", "01:00:05", 65)),
            "entry 2: detail: more than 1024 machines or 64 GPUs each",
        ),
        ([], "entry 2: Expected `object`, got `array`"),
    ],
)
def test_an_invalid_entry_of_philly_is_named(tmp_path: Path, bad: object, error: str) -> None:
    good = entry("good", "01:00:00", attempt("01:00:00", "01:00:05", 1))
    path = job_log(tmp_path, good, bad)
    with pytest.raises(SimulationError) as raised:
        philly.PhillyJobs(path)
    assert f"{path}: {error}" in str(raised.value)
    lenient = philly.PhillyJobs(path, lenient=True)
    assert (lenient.count, lenient.skipped) == (1, 1)


def test_a_job_log_that_is_no_list_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text('{"a": 1}')
    with pytest.raises(SimulationError, match="is no list of jobs in JSON"):
        philly.PhillyJobs(path, lenient=True)


def pai_folder(folder: Path, *tasks: str) -> Path:
    (folder / pai.MACHINES_FILE).write_text(
        "m1,T4,96,512,2\nm2,V100M32,64,256.5,8\nm3,CPU,32,128,0\n"
    )
    (folder / pai.TASKS_FILE).write_text("".join(f"{task}\n" for task in tasks))
    return folder


def test_the_machines_of_pai_have_the_memory_of_their_model(tmp_path: Path) -> None:
    first, second, third = pai.read_machines(pai_folder(tmp_path))
    assert (first.name, first.gpus, first.kind.model) == ("m1", 2, "T4")
    assert [node.kind.memory_bytes // GI for node in (first, second)] == [16, 32]
    assert third.gpus == 0
    assert second.host is not None
    assert (second.host.cpu_millis, second.host.memory_bytes) == (64_000, 513 * GI // 2)


def test_the_tasks_of_pai_arrive_in_the_order_of_their_launch(tmp_path: Path) -> None:
    folder = pai_folder(
        tmp_path,
        "j1,worker,2.0,Terminated,150.0,190.5,600.0,29.296875,50.0,T4",
        "j1,ps,1.0,Terminated,100.0,190.0,400.0,10.0,,",
        "j2,tensorflow,1.0,Failed,,,600.0,29.3,100.0,V100",
        "j3,PyTorchWorker,1.0,Running,120.0,,800.0,60.0,250.0,V100M32",
    )
    tasks = pai.PaiTasks(folder)
    ps, torch, *workers = tasks.draw()
    assert (tasks.count, tasks.left_out) == (4, 1)
    assert (ps.name, ps.arrival_s, ps.work_s, ps.demand) == ("j1/ps", 0, 90, None)
    assert (ps.host.cpu_millis, ps.host.models) == (4000, frozenset())
    assert torch.demand is not None
    assert (torch.arrival_s, torch.work_s) == (20, FOREVER)
    assert (torch.demand.count, torch.demand.request_micros) == (3, MICROS)
    assert torch.host.models == {"V100M32"}
    assert [job.name for job in workers] == ["j1/worker-0", "j1/worker-1"]
    for job in workers:
        assert job.demand is not None
        assert (job.demand.uid, job.demand.request_micros) == (job.uid, MICROS // 2)
        assert job.demand.memory.on(16 * GI) == 8 * GI
        assert (job.arrival_s, job.work_s) == (50, 40.5)
        assert job.gang == Gang(name="task-1", min_available=2)
    assert list(tasks.draw(1)) == list(tasks.draw(2))


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ("a,b,1", "3 fields, and the header has 10"),
        ("a,b,1,Failed,5,1,1,1,1,T4", "end_time: 1 is before 5"),
        ("a,b,0,Failed,1,5,1,1,1,T4", "inst_num: 0 is less than 1"),
        ("a,b,1e9,Failed,1,5,1,1,1,T4", "inst_num: 1e9 is not from 0 to 10000"),
        ("a,b,1,Failed,1,5,1,1,-1,T4", "plan_gpu: -1 is not from 0 to 6400"),
        ("a,b,1,Failed,1,5,some,1,1,T4", "plan_cpu: 'some' is not a number"),
        ('"a,b,1,Failed,1,5,1,1,1,T4', "unexpected end of data"),
    ],
)
def test_an_invalid_task_of_pai_is_named(tmp_path: Path, row: str, error: str) -> None:
    folder = pai_folder(tmp_path, "a,b,1,Terminated,1,5,1,1,1,T4", row)
    with pytest.raises(SimulationError, match=f"{pai.TASKS_FILE}:2: {error}"):
        pai.PaiTasks(folder)
    lenient = pai.PaiTasks(folder, lenient=True)
    assert (lenient.count, lenient.skipped, len(list(lenient.draw()))) == (1, 1, 1)
