"""`kubeshare trace record`: the files of a cluster, and that the simulator reads them."""

import asyncio
import csv
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from deadlines import eventually
from kubeshare.api import configuration
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS
from kubeshare.cli.main import main
from kubeshare.cli.trace import recorder, recording
from kubeshare.cli.trace.command import nodes_file
from kubeshare.cli.trace.recorder import Counts
from kubeshare.core.units import GI
from kubeshare.explain.errors import NotInstalledError
from kubeshare.kube import logs
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ForbiddenError
from kubeshare.kube.resources import CONFIG_MAPS, NODES, PODS
from kubeshare.simulator.control import FakeApiServer, Fault, run_virtual
from kubeshare.simulator.jobs import Job
from kubeshare.simulator.workloads.csv_writer import JOB_COLUMNS
from kubeshare.simulator.workloads.jobs_csv import COLUMNS, JobsCsv
from kubeshare.simulator.workloads.nodes_csv import read_nodes

SMALL = {"model": "T4", "memoryBytes": 15 * GI}
LARGE = {"model": "V100", "memoryBytes": 32 * GI}
Script = Callable[[FakeApiServer], Awaitable[None]]


def node(server: FakeApiServer, name: str, *gpus: dict[str, Any]) -> None:
    status = {"allocatable": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": len(gpus)}}
    server.seed(NODES, {"metadata": {"name": name}, "spec": {}, "status": status})
    devices = [{"uuid": f"GPU-{name}-{at}", "index": at} | gpu for at, gpu in enumerate(gpus)]
    server.seed(GPUNODES, {"metadata": {"name": name}, "spec": {"devices": devices}})


def sharepod(server: FakeApiServer, name: str, phase: str = "", **gpu: str) -> None:
    ask = {"request": "0.3", "limit": "0.6", "memory": "4Gi"} | gpu
    container = {"name": "main", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    labels = {"sharedgpu/priority": "5", "sharedgpu/group_name": "g"}
    metadata = {
        "name": name,
        "namespace": "team",
        "labels": labels | {"sharedgpu/min_available": "2"},
    }
    spec = {"gpu": ask, "containers": [container]}
    server.seed(SHAREPODS, {"metadata": metadata, "spec": spec, "status": {"phase": phase}})


def pod(server: FakeApiServer, name: str, gpus: int, **labels: str) -> None:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": gpus} if gpus else {}}}
    metadata = {"name": name, "namespace": "team", "labels": labels}
    server.seed(PODS, {"metadata": metadata, "spec": {"containers": [container]}})


def has_phase(server: FakeApiServer, name: str, phase: str, kind: Any = SHAREPODS) -> None:
    def change(raw: dict[str, Any]) -> None:
        raw["status"] = {**raw.get("status", {}), "phase": phase}

    server.change(kind, name, "team", change)


def recorded(folder: Path, server: FakeApiServer, script: Script) -> tuple[Path, Counts]:
    """Record what a script does, to its end."""
    path = folder / "trace.csv"

    async def run() -> Counts:
        stop = asyncio.Event()
        async with server.client() as client:
            task = asyncio.create_task(recording.record(client, path, nodes_file(path), stop))
            await asyncio.sleep(10)
            await script(server)
            stop.set()
            return await task

    return path, run_virtual(run())


def jobs(path: Path) -> list[Job]:
    return list(JobsCsv(path).draw())


async def nothing(server: FakeApiServer) -> None:
    """The cluster stays as it is."""


def test_memory_of_gpushare_is_in_the_unit_of_the_configuration(
    tmp_path: Path, server: FakeApiServer
) -> None:
    data = {configuration.KEY: "gpushare: {memoryUnit: MiB}"}
    name = {"name": configuration.NAME, "namespace": NAMESPACE}
    server.seed(CONFIG_MAPS, {"metadata": name, "data": data})
    container = {"name": "main", "resources": {"limits": {"aliyun.com/gpu-mem": "512"}}}
    metadata = {"name": "small", "namespace": "team"}
    status = {"phase": "Running"}
    server.seed(PODS, {"metadata": metadata, "spec": {"containers": [container]}, "status": status})
    path, _ = recorded(tmp_path, server, nothing)
    [small] = jobs(path)
    assert small.demand is not None
    assert small.demand.memory.bytes == GI // 2


@pytest.fixture
def server() -> FakeApiServer:
    server = FakeApiServer()
    node(server, "n1", SMALL, SMALL)
    node(server, "n2", LARGE, SMALL, SMALL)
    return server


def test_jobs_have_their_times_and_their_demands(tmp_path: Path, server: FakeApiServer) -> None:
    async def script(server: FakeApiServer) -> None:
        sharepod(server, "train", model="T4")
        await asyncio.sleep(5)
        has_phase(server, "train", "Running")
        pod(server, "whole", 2)
        pod(server, "web", 0)
        pod(server, "of-train", 1, **{"kubeshare.nthu/role": "sharepod"})
        await asyncio.sleep(30)
        has_phase(server, "whole", "Running", PODS)
        has_phase(server, "train", "Succeeded")
        await asyncio.sleep(1)
        server.delete(SHAREPODS, "train", "team")
        await asyncio.sleep(14)

    path, counts = recorded(tmp_path, server, script)
    assert (counts.ended, counts.running, counts.left_out) == (1, 1, 0)
    train, whole = jobs(path)
    assert [train.arrival_s, train.work_s] == pytest.approx([10, 30])
    assert [whole.arrival_s, whole.work_s] == pytest.approx([15, 15])
    assert train.demand is not None
    assert (train.demand.request_micros, train.demand.limit_micros) == (300_000, 600_000)
    assert (train.demand.memory.bytes, train.demand.model) == (4 * GI, "T4")
    assert (train.priority, train.host.cpu_millis, train.host.memory_bytes) == (5, 500, GI)
    # No second member ran, and the gang would wait for it for ever.
    assert train.gang is not None
    assert train.gang.min_available == 1
    assert whole.demand is not None
    assert whole.demand.count == 2


def test_what_runs_already_arrives_at_once(tmp_path: Path, server: FakeApiServer) -> None:
    sharepod(server, "runs", "Running")
    sharepod(server, "ended", "Succeeded")
    sharepod(server, "waits")
    pod(server, "wrong", 0, **{"sharedgpu/priority": "9"})

    async def script(server: FakeApiServer) -> None:
        await asyncio.sleep(20)

    path, counts = recorded(tmp_path, server, script)
    (job,) = jobs(path)
    assert [job.arrival_s, job.work_s] == pytest.approx([0, 30])
    assert (counts.running, counts.left_out) == (1, 1)


def test_no_name_of_the_cluster_is_written(tmp_path: Path, server: FakeApiServer) -> None:
    async def script(server: FakeApiServer) -> None:
        sharepod(server, "secret", "Running", affinity="together", exclusion="mine")
        sharepod(server, "other", "Running", affinity="together")
        await asyncio.sleep(1)

    path, _ = recorded(tmp_path, server, script)
    text = path.read_text() + nodes_file(path).read_text()
    names = ("secret", "other", "team", "together", "mine", "n1", "n2", ",g,")
    assert not [name for name in names if name in text]
    one, other = jobs(path)
    assert one.demand is not None
    assert other.demand is not None
    assert one.demand.affinity == other.demand.affinity != ""
    assert one.demand.namespace == other.demand.namespace
    assert one.gang == other.gang
    again, _ = recorded(tmp_path, server, nothing)
    assert one.demand.affinity not in again.read_text()


def test_the_nodes_are_those_of_the_cluster(tmp_path: Path, server: FakeApiServer) -> None:
    path, _ = recorded(tmp_path, server, nothing)
    nodes = read_nodes(nodes_file(path))
    kinds = sorted(
        (each.kind.model, each.gpus, each.host and each.host.cpu_millis) for each in nodes
    )
    assert kinds == [("T4", 2, 5333), ("T4", 2, 8000), ("V100", 1, 2666)]
    assert {each.kind.memory_bytes for each in nodes} == {15 * GI, 32 * GI}


def test_the_simulator_replays_a_recording(
    tmp_path: Path, server: FakeApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    async def script(server: FakeApiServer) -> None:
        sharepod(server, "a", "Running")
        sharepod(server, "b", "Running")
        await asyncio.sleep(20)
        has_phase(server, "a", "Succeeded")
        server.delete(SHAREPODS, "b", "team")
        await asyncio.sleep(1)

    path, _ = recorded(tmp_path, server, script)
    assert main(["sim", str(path), "--nodes-from", str(nodes_file(path))]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("2 jobs, 5 GPUs, 1 run each\n")
    assert "never placed" not in shown


def test_the_file_is_whole_at_any_time(tmp_path: Path, server: FakeApiServer) -> None:
    path = tmp_path / "trace.csv"
    read: list[int] = []

    async def run() -> None:
        async with server.client() as client:
            stop = asyncio.Event()
            task = asyncio.create_task(recording.record(client, path, nodes_file(path), stop))
            for number in range(3):
                await asyncio.sleep(recording.PERIOD_S)
                read.append(len(jobs(path)))
                sharepod(server, f"job-{number}", "Running")
            task.cancel()  # as by a signal that nothing handles
            with pytest.raises(asyncio.CancelledError):
                await task

    run_virtual(run())
    assert read == [0, 0, 1]
    assert len(jobs(path)) == 2  # the last one came in the moment of the end
    assert sorted(each.name for each in tmp_path.iterdir()) == ["trace.csv", "trace.nodes.csv"]


def test_a_recording_takes_so_many_jobs_and_no_more(
    tmp_path: Path, server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "MAX_JOBS", 2)

    async def script(server: FakeApiServer) -> None:
        for number in range(4):
            sharepod(server, f"job-{number}", "Running")
        await asyncio.sleep(2 * recording.PERIOD_S)

    path, counts = recorded(tmp_path, server, script)
    assert counts.full
    assert len(jobs(path)) == 2


def test_a_watch_that_breaks_loses_no_job(tmp_path: Path, server: FakeApiServer) -> None:
    async def script(server: FakeApiServer) -> None:
        sharepod(server, "a", "Running")
        await asyncio.sleep(10)
        server.expire_watches()
        server.delete(SHAREPODS, "a", "team")
        sharepod(server, "b", "Running")
        await asyncio.sleep(20)

    path, counts = recorded(tmp_path, server, script)
    assert (counts.ended, counts.running) == (1, 1)
    assert len(jobs(path)) == 2


def test_a_cluster_without_kubeshare_is_said(tmp_path: Path, server: FakeApiServer) -> None:
    server.inject(Fault.answer(404, "NotFound"), verb="list", resource="gpunodes")
    with pytest.raises(NotInstalledError, match="kubeshare install"):
        recorded(tmp_path, server, nothing)


def test_a_missing_role_is_said_at_once(tmp_path: Path, server: FakeApiServer) -> None:
    server.inject(Fault.answer(403, "Forbidden"), verb="list", resource="pods")
    with pytest.raises(ForbiddenError):
        recorded(tmp_path, server, nothing)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_recording(
    tmp_path: Path,
    server: FakeApiServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
) -> None:
    path = tmp_path / "trace.csv"
    sharepod(server, "runs", "Running")

    def watched() -> int:
        return sum(request.verb == "watch" for request in list(server.requests))

    def end() -> None:
        eventually(lambda: watched() >= 2, "pods and SharePods are watched")
        os.kill(os.getpid(), number)

    monkeypatch.setattr(Client, "connect", lambda *_: server.client())
    monkeypatch.setattr(logs, "configure_logging", lambda *_, **__: None)
    thread = threading.Thread(target=end)
    thread.start()
    assert main(["trace", "record", "-o", str(path)]) == 0
    thread.join()
    assert f"Next: kubeshare sim {path} --nodes-from" in capsys.readouterr().out
    assert JobsCsv(path).count == 1


def test_the_columns_are_those_of_files_of_jobs() -> None:
    assert {*JOB_COLUMNS} <= {*COLUMNS.required, *COLUMNS.optional}


def test_a_file_that_is_there_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("mine")
    assert main(["trace", "record", "-o", str(path)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main(["trace", "record", "-o", str(tmp_path / "new.csv"), "--for", "soon"]) == 2
    assert '"soon" is no period such as 30m' in capsys.readouterr().err
    with path.open() as file:
        assert list(csv.reader(file)) == [["mine"]]
