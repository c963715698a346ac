"""The watcher's events, log, metrics and kills."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from deadlines import DEADLINE_S
from fakes.node import A_GPU, FixedGpus
from kubeshare.kube.controller.events import EventRecorder
from kubeshare.kube.resources import EVENTS
from kubeshare.node.escapes.detection import detect
from kubeshare.node.escapes.policy import EscapePolicy
from kubeshare.node.escapes.sampling import Sampler
from kubeshare.node.escapes.watcher import INTERVAL_SECONDS, RESEND_SAMPLES, EscapeWatch
from kubeshare.node.gpus.discovery import DiscoveryError, GpuProcess
from kubeshare.node.process_kill import kill
from kubeshare.simulator.control import FakeApiServer
from kubeshare.tokens import client
from kubeshare.tokens.files import counters
from kubeshare.tokens.files.grants import (
    GRANT_VERSION,
    Grant,
    GrantedPod,
    GrantedShare,
    process_start_time,
    write_grant,
)
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.wire.protocol import CELLS_MAX, COUNTERS_HEADER, COUNTERS_SLOT

POD = GrantedPod(namespace="default", name="a", uid="0f3a7c1e-5b6d-4e8f-9a0b-1c2d3e4f5a6b")
OTHER_UID = "5d0c7c1a-9a52-4f4a-9a0f-0c9ad7c1f3e2"
CONTAINER = "ab" * 32
LIMIT = 1 << 30


class Node:
    """A node with a pod that has a grant, and a driver whose answers the test defines.

    Attributes:
        gpus: what the driver says.
        places: pid → the text of its cgroup.
        mounted: pid → the claims that it has mounted.
    """

    def __init__(self, run: Path, policy: EscapePolicy = "report") -> None:
        gpu = GrantedShare(
            uuid=A_GPU.uuid,
            memory_total_bytes=16 << 30,
            request_micros=1,
            limit_micros=1,
            memory_bytes=LIMIT,
        )
        write_grant(Paths(run), Grant(version=GRANT_VERSION, claim="claim", gpus=(gpu,), pod=POD))
        self.gpus = FixedGpus()
        self.places: dict[int, str] = {}
        self.server = FakeApiServer()
        self.registry = CollectorRegistry()
        self.mounted: dict[int, tuple[str, ...]] = {}
        claims = self.mounted.get
        self._use = Sampler(
            Paths(run), self.gpus.processes, self._cgroup, lambda pid: claims(pid, ())
        )
        self._policy = policy

    def _cgroup(self, pid: int) -> str:
        if pid not in self.places:
            raise ProcessLookupError(pid)
        return self.places[pid]

    def uses(self, pid: int, memory: int, *, of_pod: bool = True, mps: bool = False) -> None:
        """A process is on the GPU."""
        self.gpus.used_by.append(GpuProcess(A_GPU.uuid, pid, memory, mps))
        self.places[pid] = f"0::/kubepods/pod{POD.uid}/{CONTAINER}" if of_pod else "0::/"

    def look(self, times: int = 2) -> list[str]:
        """Take so many samples; returns the events, ``reason: note``."""

        async def main() -> None:
            recorder = EventRecorder(self.server.client(), "test", "test")
            watch = EscapeWatch(self._use, self._containers, recorder, policy=lambda: self._policy)
            watch.register_metrics(self.registry)
            for _ in range(times):
                await watch.check()
            await recorder.flush()

        asyncio.run(main())
        return [f"{each['reason']}: {each['note']}" for each in self.server.all(EVENTS)]

    def _containers(self) -> Mapping[str, tuple[str, str]]:
        return {CONTAINER: (POD.uid, "main")}

    def counted(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


@contextmanager
def running() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing until it is killed."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def strict_node(tmp_path: Path) -> Node:
    return Node(tmp_path, "kill")


def test_one_that_is_not_held_is_an_event_of_its_pod_with_its_pid_and_a_number(node: Node) -> None:
    node.uses(os.getpid(), 64 << 20)
    [event] = node.look()
    assert event == (
        f"UnheldProcess: process {os.getpid()} of container main uses 64Mi of {A_GPU.uuid} without "
        "KubeShare's device library, so neither its time nor its memory is held. Programs that are "
        "static, use musl or are built for another architecture cannot be held: link it to glibc, "
        "do not unset its preloading, or give it a whole GPU"
    )
    [stored] = node.server.all(EVENTS)
    assert stored["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "default",
        "name": "a",
        "uid": POD.uid,
    }
    assert stored["type"] == "Warning"
    labels = {"reason": "UnheldProcess", "namespace": "default", "pod": "a"}
    assert node.counted("kubeshare_node_escaping", **labels) == 1
    assert node.counted("kubeshare_node_escapes_total", reason="UnheldProcess") == 1


def test_the_samples_that_show_an_escape_are_taken_within_five_seconds(node: Node) -> None:
    node.uses(os.getpid(), 64 << 20)
    samples = 2
    assert len(node.look(times=samples)) == 1
    assert samples * INTERVAL_SECONDS < 5


def test_the_log_says_it_with_pod_and_pid(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    node.uses(os.getpid(), 64 << 20)
    node.look()
    printed = capsys.readouterr().out
    assert "default/a" in printed
    assert f"pid={os.getpid()}" in printed


def test_one_look_is_not_enough(node: Node) -> None:
    node.uses(os.getpid(), 64 << 20)
    assert node.look(times=1) == []


def test_too_much_memory_is_told_with_the_numbers(node: Node) -> None:
    node.uses(os.getpid(), 3 * LIMIT)
    events = node.look(times=5)
    [over] = [event for event in events if event.startswith("MemoryOverLimit")]
    assert over == (
        f"MemoryOverLimit: the pod uses 3Gi of {A_GPU.uuid}, more than its limit of 1Gi; most of "
        f"what the device library does not track is of process {os.getpid()} of container main. "
        "Give the pod more memory, or find out what allocates past the library"
    )


def test_who_is_of_no_pod_with_a_grant_is_left_alone(strict_node: Node) -> None:
    with running() as process:
        strict_node.uses(process.pid, 99 * LIMIT, of_pod=False)
        assert strict_node.look(times=3) == []
        assert process.poll() is None


@pytest.mark.parametrize("policy", ["report", "kill"])
def test_a_process_of_another_pod_with_the_claim_is_an_event_of_the_claims_pod(
    tmp_path: Path, policy: EscapePolicy
) -> None:
    node = Node(tmp_path, policy)
    with running() as process:
        node.uses(process.pid, 64 << 20, of_pod=False)
        node.places[process.pid] = f"0::/kubepods/pod{OTHER_UID}/{'cd' * 32}"
        node.mounted[process.pid] = ("claim",)
        [event] = node.look()
        said = f"ForeignProcess: process {process.pid} is of another pod and uses 64Mi of"
        advice = (
            "A share belongs to one pod: delete the other pod, and let it ask for a share itself"
        )
        ended = "The process is ended, as this cluster's administrator asked for"
        assert event.startswith(said)
        assert event.endswith(f" by this pod's share. {ended if policy == 'kill' else advice}")
        labels = {"reason": "ForeignProcess", "namespace": "default", "pod": "a"}
        assert node.counted("kubeshare_node_escaping", **labels) == 1
        if policy == "kill":
            assert process.wait(DEADLINE_S) == -9
        else:
            assert process.poll() is None


def test_a_client_of_an_mps_server_is_an_event_and_never_ended(
    strict_node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running() as process:
        connected = {"claim": [process.pid]}
        monkeypatch.setattr(client, "ask_connections", lambda _: connected)
        strict_node.uses(process.pid, 64 << 20, mps=True)
        [event] = strict_node.look(times=3)
        assert event.startswith(f"MpsClient: process {process.pid} of container main uses")
        assert event.partition(" uses ")[2] == (
            f"{A_GPU.uuid} through an MPS server: a fatal error of any client of that server ends "
            "this process, and one of this process ends them. KubeShare starts no MPS server: end "
            "the one that this pod has found, or give its clients whole GPUs"
        )
        assert strict_node.counted("kubeshare_node_escapes_total", reason="MpsClient") == 1
        assert process.poll() is None


@pytest.mark.parametrize("policy", ["report", "kill"])
def test_a_kernel_that_never_ends_is_an_event_and_its_process_is_ended_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: EscapePolicy
) -> None:
    node = Node(tmp_path, policy)
    with running() as process:
        monkeypatch.setattr(client, "ask_connections", lambda _: {"claim": [process.pid]})
        monkeypatch.setattr(client, "ask_hung", lambda _: {"claim": {A_GPU.uuid: []}})
        node.uses(process.pid, 64 << 20)
        [event] = node.look(times=2)
        assert event.startswith(f"HungKernel: process {process.pid} of container main has work on")
        assert node.counted("kubeshare_node_escapes_total", reason="HungKernel") == 1
        if policy == "kill":
            assert "is ended" in event
            assert process.wait(DEADLINE_S) == -9
        else:
            assert "until its work ends the pod is charged" in event
            assert process.poll() is None


def test_of_several_processes_that_may_have_hung_none_is_ended(
    strict_node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running() as process, running() as other:
        pids = [process.pid, other.pid]
        monkeypatch.setattr(client, "ask_connections", lambda _: {"claim": pids})
        monkeypatch.setattr(client, "ask_hung", lambda _: {"claim": {A_GPU.uuid: []}})
        for pid in pids:
            strict_node.uses(pid, 64 << 20)
        [event] = strict_node.look(times=3)
        assert event.startswith("HungKernel: one of several processes, possibly process")
        assert "or end it" in event
        assert [process.poll(), other.poll()] == [None, None]


@contextmanager
def running_with(file: Path, first: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A process that has a file mapped, as the device library has."""
    program = (
        "import fcntl, mmap, os, struct, sys\n"
        f"with open({str(file)!r}, 'r+b') as file, mmap.mmap(file.fileno(), 0):\n"
        f"    {first or 'pass'}\n"
        "    print(flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def costly_counters(run: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the claim has a slot in use, and any read of a slot takes too long."""
    file = Paths(run).counters("claim")
    file.parent.mkdir(parents=True, exist_ok=True)
    counters.make(file)
    with file.open("r+b") as opened:
        opened.seek(COUNTERS_HEADER.size)
        opened.write(b"\1")
    monkeypatch.setattr(counters, "BUDGET_NS", 0)
    return file


def test_who_makes_counters_costly_is_an_event_though_it_uses_no_gpu(
    strict_node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    costly_counters(tmp_path, monkeypatch)
    [event] = strict_node.look(times=3)
    assert event == (
        "CostlyCounters: the file in which the pod's processes count their memory takes too long "
        "to read, as with thousands of locks, and is left out for a minute. Find the program of "
        "this pod that locks parts of the file in KUBESHARE_COUNTERS, and end it"
    )


def test_who_makes_counters_costly_gets_no_process_ended_that_has_the_library(
    strict_node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does one without it escape so."""
    file = costly_counters(tmp_path, monkeypatch)
    with running_with(file) as held, running() as other:
        for process in (held, other):
            strict_node.uses(process.pid, 64 << 20)
            strict_node.mounted[process.pid] = ("claim",)
        costly, unheld = sorted(strict_node.look(times=3))
        assert unheld.startswith(f"UnheldProcess: process {other.pid} of container main uses 64Mi")
        assert costly == (
            "CostlyCounters: the file in which the pod's processes count their memory takes too "
            "long to read, as with thousands of locks, and is left out for a minute; on "
            f"{A_GPU.uuid} all 128Mi count as used past the device library. Find the program of "
            "this pod that locks parts of the file in KUBESHARE_COUNTERS, and end it"
        )
        assert other.wait(DEADLINE_S) == -9
        assert held.poll() is None


def test_one_that_has_lost_its_name_in_the_counters_is_held_and_its_memory_is_tracked(
    strict_node: Node, tmp_path: Path
) -> None:
    """As after it has closed all of its descriptors."""
    file, memory = Paths(tmp_path).counters("claim"), 64 << 20
    file.parent.mkdir(parents=True, exist_ok=True)
    counters.make(file)
    slot = COUNTERS_SLOT.pack(1, 0, 0, 0, memory, *[0] * (2 * CELLS_MAX - 1))
    with file.open("r+b") as opened:
        opened.seek(COUNTERS_HEADER.size)
        opened.write(slot)
    lives = f"struct.pack('hhqqi4x', fcntl.F_WRLCK, os.SEEK_SET, {COUNTERS_HEADER.size + 1}, 1, 0)"
    with running_with(file, f"fcntl.fcntl(file, 37, {lives})") as held, running() as other:
        (nameless,) = counters.processes(file)
        assert nameless.pid == 0
        strict_node.uses(held.pid, memory)
        strict_node.mounted[held.pid] = ("claim",)
        strict_node.uses(other.pid, 1)
        [event] = strict_node.look(times=3)
        assert event.startswith(f"UnheldProcess: process {other.pid} ")
        assert held.poll() is None
        assert detect(strict_node._use.sample({}))[1] == {("claim", A_GPU.uuid): 1}


def test_by_default_nobody_is_ended(node: Node) -> None:
    with running() as process:
        node.uses(process.pid, 3 * LIMIT)
        node.look(times=3)
        assert process.poll() is None


def test_on_request_it_is_ended_and_it_alone(strict_node: Node) -> None:
    with running() as process, running() as other:
        strict_node.uses(process.pid, 64 << 20)
        strict_node.uses(other.pid, 64 << 20, of_pod=False)
        [event] = strict_node.look()
        assert "is ended" in event
        assert process.wait(DEADLINE_S) == -9
        assert other.poll() is None
        assert strict_node.counted("kubeshare_node_escapes_ended_total", reason="UnheldProcess")


def test_one_that_has_left_the_pod_meanwhile_is_not_ended(strict_node: Node) -> None:
    with running() as process:
        strict_node.uses(process.pid, 64 << 20)
        asked = iter(["0::/kubepods/pod" + POD.uid] * 2)
        strict_node._use._cgroup = lambda _: next(asked, "0::/")
        strict_node.look()
        assert process.poll() is None


def test_one_is_not_ended_where_the_driver_does_not_confirm_it(strict_node: Node) -> None:
    with running() as process:
        strict_node.uses(process.pid, 64 << 20)
        answers = iter([list(strict_node.gpus.used_by)] * 2)

        def processes() -> list[GpuProcess]:
            found = next(answers, None)
            if found is None:
                raise DiscoveryError("NVML does not answer")
            return found

        strict_node._use._processes = processes
        assert len(strict_node.look()) == 1
        assert process.poll() is None


def test_a_pid_that_is_another_process_now_is_not_ended() -> None:
    with running() as process:
        started = process_start_time(process.pid)
        assert started is not None
        assert not kill(process.pid, started - 1, lambda: True)
        assert not kill(process.pid, started, lambda: False)
        assert process.poll() is None
        assert kill(process.pid, started, lambda: True)
        assert process.wait(DEADLINE_S) == -9
        assert not kill(process.pid, started, lambda: True)


def test_overheads_are_sent_until_they_arrive_then_when_they_change_and_now_and_then() -> None:
    sent: list[tuple[str, str, int]] = []
    arrives = iter([False])

    def report(claim: str, uuid: str, overhead: int) -> bool:
        sent.append((claim, uuid, overhead))
        return next(arrives, True)

    sampler: Any = SimpleNamespace(report_overhead=report)
    events: Any = None
    watch = EscapeWatch(sampler, dict, events)

    async def send(first: int, second: int) -> list[tuple[str, str, int]]:
        sent.clear()
        await watch._send_overheads({("a", "GPU-0"): first, ("b", "GPU-0"): second})
        return list(sent)

    async def main() -> None:
        a, b = ("a", "GPU-0", 5), ("b", "GPU-0", 6)
        assert await send(5, 6) == [a, b]
        assert await send(5, 6) == [a]
        assert await send(5, 7) == [("b", "GPU-0", 7)]
        assert await send(8, 7) == [("a", "GPU-0", 8)]
        often = [await send(8, 7) for _ in range(RESEND_SAMPLES)]
        assert sorted(map(len, often)) == [0] * (RESEND_SAMPLES - 1) + [2]

    asyncio.run(main())


def test_a_driver_that_does_not_answer_is_told_once_and_tried_again(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    node.gpus.fault = "NVML does not answer"
    assert node.look(times=3) == []
    assert capsys.readouterr().out.count("NVML does not answer") == 1


def test_without_a_grant_the_driver_is_not_asked(node: Node, tmp_path: Path) -> None:
    Paths(tmp_path).grant("claim").unlink()
    node.gpus.fault = "NVML does not answer"
    assert node.look() == []


def test_a_grant_that_cannot_be_read_hides_no_other(node: Node, tmp_path: Path) -> None:
    (Paths(tmp_path).grants / "broken.json").write_text("{")
    node.uses(os.getpid(), 64 << 20)
    assert len(node.look()) == 1


def test_the_pod_is_known_by_its_uid_before_the_api_server_names_the_container(
    node: Node,
) -> None:
    node.uses(os.getpid(), 64 << 20)
    node.places[os.getpid()] = f"0::/kubepods/pod{POD.uid}/{'cd' * 32}"
    [event] = node.look()
    assert event.startswith(f"UnheldProcess: process {os.getpid()} uses 64Mi")
