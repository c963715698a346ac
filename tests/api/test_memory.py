"""What is kept of each object is little, and nothing is kept of one that is gone."""

import asyncio
import gc
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kubeshare.kube
from deadlines import DEADLINE_S
from kubeshare.api.state.informers import Informers, start_informers
from kubeshare.api.types.constants import LABEL_ROLE, LABEL_SHAREPOD_UID, LABEL_VGPU, ROLE_SHAREPOD
from kubeshare.api.types.v1 import SHAREPODS, VGPUS
from kubeshare.kube.controller.events import EventRecorder
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.resources import PODS, Raw
from kubeshare.lab.control_plane.certificates import Authority
from kubeshare.lab.control_plane.kubeconfig import write_kubeconfig
from kubeshare.simulator.control import FakeApiServer, run_virtual, until

_TIME = "2026-11-21T23:50:00Z"
_PACKAGE = Path(kubeshare.kube.__file__).parents[1]
_OURS = str(_PACKAGE / "*")
_SIMULATOR = str(_PACKAGE / "simulator" / "*")
_FEW, _MANY = 20, 120


def _uid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


def _notes() -> list[dict[str, Any]]:
    """Who wrote which field, as the API server adds it to each object."""
    fields: Raw = {f"f:field{number}": {"f:value": {}, "f:kind": {}} for number in range(20)}
    return [{"manager": f"m{number}", "fieldsV1": {"f:spec": fields}} for number in range(3)]


def _metadata(number: int, **more: Any) -> dict[str, Any]:
    name, uid = f"share-{number}", _uid(number)
    known = {"namespace": "default", "creationTimestamp": _TIME, "managedFields": _notes()}
    return {"name": name, "uid": uid} | known | more


def sharepod(number: int) -> Raw:
    """One that runs."""
    place = {"nodeName": f"node-{number // 20}"}
    gpu = {"request": "0.1", "memory": "1Gi", "id": f"vgpu-{number // 10}", "attempt": 1}
    common = {"status": "True", "lastTransitionTime": _TIME, "observedGeneration": 2}
    kinds = ("Scheduled", "Allocated", "Ready")
    words = {"reason": "PodReady", "message": f"it shares vGPU {number // 10} of a node"}
    conditions = [common | words | {"type": kind} for kind in kinds]
    status = {"conditions": conditions, "phase": "Running", "startTime": _TIME} | place
    containers = [{"name": "main", "image": "train:1", "args": ["--epochs", "10"]}]
    spec = {"gpu": gpu, "containers": containers} | place
    return {"metadata": _metadata(number), "spec": spec, "status": status}


def pod(number: int) -> Raw:
    """Its pod, with what an API server, kube-scheduler and a kubelet add."""
    labels = {
        LABEL_ROLE: ROLE_SHAREPOD,
        LABEL_SHAREPOD_UID: _uid(number),
        LABEL_VGPU: f"vgpu-{number // 10}",
    }
    owner = {"apiVersion": "kubeshare.nthu/v1", "kind": "SharePod", "controller": True}
    owners = [owner | {"name": f"share-{number}", "uid": _uid(number)}]
    mounts = [{"name": "token", "mountPath": "/var/run/secrets", "readOnly": True}]
    share = {"kubeshare.nthu/vgpu": "1"}
    container: Raw = {"name": "main", "image": "train:1", "volumeMounts": mounts}
    container |= {"resources": {"limits": share, "requests": share}}
    spec = {"nodeName": f"node-{number // 20}", "containers": [container], "volumes": mounts}
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready", "PodReadyToStartContainers")
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": _TIME} for kind in kinds]
    state = {"running": {"startedAt": _TIME}}
    containers = [{"name": "main", "containerID": "c" * 64, "imageID": "i" * 64, "state": state}]
    status: Raw = {"phase": "Running", "startTime": _TIME, "podIP": f"10.0.0.{number}"}
    status |= {"conditions": conditions, "containerStatuses": containers}
    metadata = _metadata(number + 100_000, name=f"share-{number}")
    metadata |= {"labels": labels, "ownerReferences": owners}
    return {"metadata": metadata, "spec": spec, "status": status}


def vgpu(number: int) -> Raw:
    """One that ten SharePods hold."""
    holders = [
        {"demand": _uid(each), "podUid": _uid(each + 100_000), "namespace": "default"}
        | {"name": f"share-{each}", "requestMicros": 100_000, "memoryBytes": 1 << 30}
        for each in range(number * 10, number * 10 + 10)
    ]
    spec = {"nodeName": f"node-{number // 2}", "uuid": f"GPU-{_uid(number)}", "model": "V100"}
    metadata = {"name": f"vgpu-{number}", "uid": _uid(number + 200_000)}
    status = {"phase": "Active", "holders": holders}
    return {"metadata": metadata, "spec": spec, "status": status}


class Room:
    """A cluster, and what a program that watches it allocates."""

    def __init__(self) -> None:
        self.server = FakeApiServer()
        self.count = 0

    def fill(self, count: int) -> None:
        """Have so many SharePods with their pods, and a tenth as many vGPUs."""
        for number in range(self.count, count):
            self.server.seed(SHAREPODS, sharepod(number))
            self.server.seed(PODS, pod(number))
            if number % 10 == 0:
                self.server.seed(VGPUS, vgpu(number // 10))
        self.count = count

    def empty(self) -> None:
        """Have all of them gone."""
        for number in range(self.count):
            self.server.remove(SHAREPODS, f"share-{number}", "default")
            self.server.remove(PODS, f"share-{number}", "default")
            if number % 10 == 0:
                self.server.remove(VGPUS, f"vgpu-{number // 10}", "")
        self.count = 0

    async def measure(self, *steps: Callable[[], None]) -> list[int]:
        """Bytes that a program keeps after each of some steps."""
        client = self.server.client()
        program = Program("test", client)
        watched = start_informers(
            program, client, "test", EventRecorder(client, "test", "test"), lambda: None
        )
        reflectors = (watched.sharepods, watched.pods, watched.vgpus, watched.nodes)
        tasks = [asyncio.create_task(reflector.run()) for reflector in reflectors]
        tasks.append(asyncio.create_task(watched.gpunodes.run()))
        for reflector in reflectors:
            await reflector.wait_for_sync()
        found = []
        for step in steps:
            step()
            await until(lambda: self._is_seen_by(watched))
            watched.cluster_state.ledger()
            found.append(_kept())
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return found

    def _is_seen_by(self, watched: Informers) -> bool:
        stores = (watched.sharepods.store, watched.pods.store)
        vgpus = len(watched.vgpus.store) == -(-self.count // 10)
        return vgpus and all(len(store) == self.count for store in stores)


def _kept() -> int:
    """Bytes that our own code has allocated and that are still there."""
    gc.collect()
    # The fake API server keeps every object as well.
    filters = (tracemalloc.Filter(True, _OURS), tracemalloc.Filter(False, _SIMULATOR))
    taken = tracemalloc.take_snapshot().filter_traces(filters)
    return sum(trace.size for trace in taken.traces)


MOST = 4500
"""Bytes that a SharePod may take with its pod and its tenth of a vGPU."""


@pytest.fixture
def _traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.usefixtures("_traced")
def test_a_sharepod_that_a_watch_tells_of_takes_little_memory_and_none_when_it_is_gone() -> None:
    async def main() -> None:
        room = Room()
        few, many, none = await room.measure(
            lambda: room.fill(_FEW), lambda: room.fill(_MANY), room.empty
        )
        assert (many - few) / (_MANY - _FEW) < MOST
        assert none < few

    run_virtual(main())


@pytest.mark.slow
@pytest.mark.usefixtures("_traced")
def test_a_sharepod_that_is_listed_takes_no_more() -> None:
    async def main() -> None:
        kept = []
        for count in (_FEW, _MANY):
            room = Room()
            room.fill(count)
            kept += await room.measure(lambda: None)
        few, many = kept
        assert (many - few) / (_MANY - _FEW) < MOST

    run_virtual(main())


@pytest.mark.slow
@pytest.mark.parametrize("program", ["scheduler", "device_manager"])
def test_a_program_loads_no_library_that_it_does_not_use(program: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    user = authority.identity("user", "someone")
    url, config = "https://127.0.0.1:1", tmp_path / "kubeconfig"
    write_kubeconfig(config, "test", url, authority.certificate, user)
    code = (
        f"import json, sys, kubeshare.{program}.__main__, kubeshare.{program}.program\n"
        "from kubeshare.kube.client.connection import connect\n"
        f"connect({str(config)!r})\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    argv = [sys.executable, "-c", code]
    loaded = subprocess.run(
        argv, check=True, capture_output=True, text=True, timeout=DEADLINE_S
    ).stdout
    unused = {"rich", "pygments", "click", "grpc", "pynvml", "matplotlib", "httpcore2", "anyio"}
    assert unused.isdisjoint(json.loads(loaded))
