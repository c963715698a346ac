"""`kubeshare sim` on public traces, and on nodes of a file."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kubeshare.cli.main import main
from kubeshare.cli.simulate.command import simulate


def as_json(*arguments: str) -> dict[str, Any]:
    found = CliRunner().invoke(
        simulate, [*arguments, "-o", "json"], catch_exceptions=False, standalone_mode=False
    )
    answer: dict[str, Any] = json.loads(found.stdout)
    return answer


@pytest.fixture
def philly(tmp_path: Path) -> list[str]:
    machines, log = tmp_path / "machines", tmp_path / "log"
    machines.write_text("machineId,number of GPUs,single GPU mem\nm1,2,12GB\nm2,4,24GB\n")
    times = {"start_time": "2017-10-07 01:00:00", "end_time": "2017-10-07 01:01:00"}
    ran = {"attempts": [times | {"detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]}]}
    jobs = [{"jobid": f"j{at}", "submitted_time": "2017-10-07 00:59:00"} | ran for at in range(4)]
    never = {"jobid": "never", "submitted_time": "2017-10-07 01:00:00", "attempts": []}
    log.write_text(json.dumps([*jobs, never, "?"]))
    return ["--philly", str(machines), str(log)]


def test_a_trace_has_its_own_nodes(philly: list[str]) -> None:
    answer = as_json(*philly, "--lenient")
    assert (answer["gpus"], answer["skipped_lines"], answer["left_out"]) == (6, 1, 1)
    (run,) = answer["runs"]
    assert (run["finished"], run["makespan_s"]) == (4, pytest.approx(120.5))


def test_what_never_ran_is_said(philly: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", *philly, "--lenient"]) == 0
    assert "1 job of the trace never ran: left out." in capsys.readouterr().err


def test_cpus_and_models_of_pai_count(tmp_path: Path) -> None:
    (tmp_path / "pai_machine_spec.csv").write_text("m1,T4,8,64,2\nm2,V100,8,64,1\n")
    (tmp_path / "pai_task_table.csv").write_text(
        "j1,w,2.0,Terminated,100,110,500,8,50,T4\nj2,w,1,Terminated,100,110,100,8,50,P100\n"
    )
    (run,) = as_json("--pai", str(tmp_path))["runs"]
    # The gang needs ten CPUs on a node with T4, which has eight; no node has P100.
    assert (run["finished"], run["waiting"], run["refused"]) == (0, 2, 1)


def test_nodes_of_a_file_differ(tmp_path: Path) -> None:
    nodes, jobs = tmp_path / "nodes.csv", tmp_path / "jobs.csv"
    nodes.write_text("name,gpus,model,gpu_memory\na,1,T4,15Gi\nb,2,V100,32Gi\n")
    jobs.write_text("arrival,duration,memory,gpus,model\n0,9,20Gi,1,\n0,9,1Gi,2,\n0,9,1Gi,2,T4\n")
    answer = as_json(str(jobs), "--nodes-from", str(nodes))
    (run,) = answer["runs"]
    assert (answer["gpus"], run["finished"], run["refused"]) == (3, 2, 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--philly", __file__, __file__, "--gpus", "2"], "--gpus is for a cluster of equal nodes"),
        (["--pai", "/tmp", "--nodes-from", __file__], "--nodes-from is for a cluster of equal"),
        (["--pai", "/tmp", "--jobs", "2"], "--jobs is for random jobs"),
        (["--memory-unit", "MiB"], "--memory-unit is for --audit"),
        (["--nodes-from", __file__, "--nodes", "2"], "--nodes is for equal nodes"),
        (["--pai", "/tmp", "--philly", __file__, __file__], "give either --philly or --pai"),
        ([__file__, "--openb", __file__, __file__], "give either JOBS_CSV or --openb"),
        (["--pai", str(Path(__file__).parent)], "pai_machine_spec.csv"),
    ],
)
def test_options_that_exclude_each_other_are_wrong_use(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main(["sim", *arguments]) in (2, 3)
    assert words in capsys.readouterr().err


def test_the_unit_of_gpushare_reaches_the_audit_log(tmp_path: Path) -> None:
    limits = {"aliyun.com/gpu-mem": "4096"}
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    made = {
        "stage": "ResponseComplete",
        "verb": "create",
        "objectRef": {"resource": "pods", "namespace": "a", "name": "train"},
        "responseStatus": {"code": 201},
        "stageTimestamp": "2026-11-24T12:00:00Z",
        "responseObject": {"metadata": {"name": "train"}, "spec": spec},
    }
    gone = {**made, "verb": "delete", "stageTimestamp": "2026-11-24T12:01:00Z"}
    path = tmp_path / "audit.log"
    path.write_text(f"{json.dumps(made)}\n{json.dumps(gone)}\n")
    (run,) = as_json("--audit", str(path), "--nodes", "1")["runs"]
    assert (run["finished"], run["refused"]) == (0, 1)
    (run,) = as_json("--audit", str(path), "--nodes", "1", "--memory-unit", "MiB")["runs"]
    assert (run["finished"], run["refused"]) == (1, 0)
