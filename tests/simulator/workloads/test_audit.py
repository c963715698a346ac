"""Audit logs: which requests become jobs, when these run, and what invalid lines get."""

import json
from pathlib import Path
from typing import Any

import pytest

from kubeshare.core.gang import Gang
from kubeshare.core.units import GI, MI, MICROS, Memory
from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.jobs import FOREVER, NO_HOST_REQUEST, HostRequest
from kubeshare.simulator.workloads.audit import AuditJobs

POD = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "500m"}}}]}


def sharepod(name: str, **labels: str) -> dict[str, Any]:
    gpu = {"request": "0.3", "limit": "0.6", "memory": "4Gi"}
    return {"metadata": {"name": name, "labels": labels}, "spec": {**POD, "gpu": gpu}}


def native(name: str, gpus: int) -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


def event(
    verb: str,
    second: float,
    name: str,
    answer: dict[str, Any] | None = None,
    *,
    kind: str = "sharepods",
    subresource: str = "",
    **fields: Any,
) -> str:
    about = {"resource": kind, "namespace": "team", "name": name, "subresource": subresource}
    about |= {"apiGroup": "kubeshare.nthu"} if kind == "sharepods" else {}
    made = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "RequestResponse",
        "stage": "ResponseComplete",
        "verb": verb,
        "objectRef": about,
        "responseStatus": {"code": 201},
        "stageTimestamp": f"2026-11-24T12:00:{second:09.6f}Z",
        "responseObject": answer,
    }
    return json.dumps({key: value for key, value in (made | fields).items() if value is not None})


def status(second: float, name: str, phase: str, kind: str = "sharepods") -> str:
    answer = {"status": {"phase": phase}}
    return event("patch", second, name, answer, kind=kind, subresource="status")


def log(folder: Path, *lines: str) -> Path:
    path = folder / "audit.log"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_a_sharepod_is_a_job_from_its_creation_to_its_end(tmp_path: Path) -> None:
    labels = {
        "sharedgpu/priority": "7",
        "sharedgpu/group_name": "g",
        "sharedgpu/min_available": "2",
    }
    path = log(
        tmp_path,
        event("create", 1, "first", sharepod("first")),
        event("create", 2.5, "train", sharepod("train", **labels)),
        status(4, "train", "Running"),
        status(5, "first", "Running"),
        status(9, "train", "Running"),
        status(10, "train", "Succeeded"),
        event("delete", 20, "train"),
        event("delete", 21, "unknown"),
    )
    first, train = AuditJobs(path, hosts=True).draw()
    assert (first.name, first.arrival_s, first.work_s) == ("first", 0, FOREVER)
    assert (train.arrival_s, train.work_s) == (1.5, 6)
    assert train.demand is not None
    assert train.demand.namespace == "team"
    assert (train.demand.request_micros, train.demand.limit_micros) == (300_000, 600_000)
    assert train.demand.memory == Memory(bytes=4 * GI)
    assert (train.priority, train.gang) == (7, Gang(name="g", min_available=2))
    assert train.host == HostRequest(cpu_millis=500)
    assert {job.host for job in AuditJobs(path).draw()} == {NO_HOST_REQUEST}


def test_pods_with_whole_gpus_or_shares_are_jobs_and_others_are_not(tmp_path: Path) -> None:
    annotations = {"kubeshare.nthu/request": "0.5", "kubeshare.nthu/memory": "0.5"}
    sharing = native("sharing", 0)
    sharing["metadata"]["annotations"] = annotations
    sharing["spec"]["containers"][0]["resources"] = {"limits": {"kubeshare.nthu/vgpu": 1}}
    of_sharepod = native("of-sharepod", 1)
    of_sharepod["metadata"]["labels"] = {"kubeshare.nthu/role": "sharepod"}
    pods = [native("whole", 2), sharing, of_sharepod, native("web", 0)]
    lines = [event("create", 1, pod["metadata"]["name"], pod, kind="pods") for pod in pods]
    jobs = AuditJobs(log(tmp_path, *lines, event("delete", 4, "whole", kind="pods")))
    whole, shared = jobs.draw()
    assert whole.demand is not None
    assert (whole.name, whole.demand.count, whole.work_s) == ("whole", 2, 3)
    assert shared.demand is not None
    assert (shared.name, shared.demand.request_micros) == ("sharing", MICROS // 2)


def test_decisions_of_the_cluster_bind_nothing_here(tmp_path: Path) -> None:
    placed = sharepod("a")
    placed["spec"]["nodeName"] = "n1"
    placed["spec"]["gpu"] |= {"id": "x", "idGiven": True}
    (job,) = AuditJobs(log(tmp_path, event("create", 1, "a", placed))).draw()
    assert job.demand is not None
    assert (job.demand.nodes, job.demand.device_id) == (None, "")


def test_what_never_ran_or_failed_is_left_out(tmp_path: Path) -> None:
    path = log(
        tmp_path,
        event("create", 1, "refused", sharepod("refused"), responseStatus={"code": 409}),
        event("create", 1, "early", sharepod("early"), stage="RequestReceived"),
        event("create", 1, "ran", sharepod("ran")),
        event("create", 2, "waited", sharepod("waited")),
        status(3, "ran", "Running"),
        event("create", 5, "ran", kind="sharepods", subresource="eviction"),
        event("delete", 9, "waited"),
        "",
    )
    jobs = AuditJobs(path)
    (job,) = jobs.draw()
    assert (job.name, job.work_s, jobs.count, jobs.left_out) == ("ran", 2, 1, 1)


def test_a_name_may_be_used_again(tmp_path: Path) -> None:
    lines = [
        line
        for second in (1, 5)
        for line in (
            event("create", second, "", requestObject=sharepod("again"), level="Request"),
            event("delete", second + 2, "again"),
        )
    ]
    jobs = list(AuditJobs(log(tmp_path, *lines)).draw())
    assert [(job.arrival_s, job.work_s) for job in jobs] == [(0, 2), (4, 2)]
    assert len({job.uid for job in jobs}) == 2


def test_memory_of_gpushare_is_counted_in_the_unit(tmp_path: Path) -> None:
    limits = {"aliyun.com/gpu-mem": "2048"}
    asked = {
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
    }
    path = log(tmp_path, event("create", 1, "a", asked, kind="pods"))
    (by_default,), (in_mib,) = AuditJobs(path).draw(), AuditJobs(path, unit=MI).draw()
    assert by_default.demand is not None
    assert in_mib.demand is not None
    assert by_default.demand.memory == Memory(bytes=2048 * GI)
    assert in_mib.demand.memory == Memory(bytes=2048 * MI)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ("{", "Input data was truncated"),
        ("[]", "Expected `object`, got `array`"),
        (event("create", 1, "a", level="Metadata"), "level Metadata has no manifest"),
        (
            event("create", 1, "", requestObject=sharepod("")),
            "needs the level RequestResponse for pods and sharepods",
        ),
        (event("create", 1, "a", sharepod("a"), stageTimestamp="now"), "stageTimestamp: 'now' is"),
        (
            event("create", 1, "a", sharepod("a"), stageTimestamp="2026-11-24T12:00:00"),
            "has no zone",
        ),
        (
            event("create", 1, "a", {"metadata": {"name": "a"}, "spec": {"gpu": {"request": "x"}}}),
            "spec.gpu.request",
        ),
        (
            event("create", 1, "a", {"metadata": {"name": 5}}),
            "sharepods: Expected `str`, got `int`",
        ),
        (" " * (5 << 20), "the line is longer than 4194304 bytes"),
    ],
)
def test_an_invalid_line_is_named(tmp_path: Path, bad: str, error: str) -> None:
    path = log(tmp_path, event("create", 1, "good", sharepod("good")), bad)
    with pytest.raises(SimulationError) as raised:
        AuditJobs(path)
    assert str(raised.value).startswith(f"{path}:2: ")
    assert error in str(raised.value)
    lenient = AuditJobs(path, lenient=True)
    assert (lenient.count, lenient.skipped) == (1, 1)
