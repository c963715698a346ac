"""Escapes with a real token daemon, NVML and processes.

Only the cgroups are simulated: the test cannot choose those of this machine.
"""

import json
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Self

import msgspec
import pytest

from deadlines import DEADLINE_S, eventually
from fakes.session import MIB, Machine, Probe
from kubeshare import native
from kubeshare.tokens import client
from kubeshare.tokens.files.counters import FILE_BYTES_MAX
from kubeshare.tokens.files.grants import GRANT_VERSION, Grant, GrantedPod
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.session import Session
from kubeshare.tokens.wire.protocol import COUNTERS_HEADER, COUNTERS_SLOT, PROCESSES_MAX
from tokens.helpers import Page, RunningDaemon, prepared
from wakeups import Wakeups

pytestmark = [pytest.mark.native, pytest.mark.slow]

POD = GrantedPod(namespace="default", name="a", uid="0f3a7c1e-5b6d-4e8f-9a0b-1c2d3e4f5a6b")
LIMIT = 256 * MIB
TENTH = 100_000
"""Of the GPU: the pod's request and limit."""
OUT_OF_MEMORY = 2
FOREVER_US = 2_000_000_000
"""Half an hour: no test lasts so long."""
ELF_32_BIT = 1
CHARGED_MAX_S = 2.5
"""The two seconds that the documentation promises, with the checks' own time."""
REPORTED_MAX_S = 3.5
"""The three seconds, as above."""
_MARK_BYTES = 4
"""Of a slot: whether it is in use."""


@pytest.fixture(scope="module")
def static_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that uses a GPU, with all of libc in it."""
    program = tmp_path_factory.mktemp("static") / "escape"
    source = Path(__file__).parents[3] / "native/tests/escape.c"
    subprocess.run(
        ["gcc", "-static", "-o", str(program), str(source)], check=True, capture_output=True
    )
    return program


@pytest.fixture(scope="module")
def foreign_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program of another architecture."""
    program = tmp_path_factory.mktemp("foreign") / "foreign"
    source = Path(__file__).parents[3] / "native/tests/foreign.c"
    command = ["gcc", "-m32", "-nostdlib", "-static", "-o", str(program), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return program


class Node:
    """A node with a fake GPU, a token daemon, and a pod that shares the GPU."""

    def __init__(self, folder: Path) -> None:
        (folder / "gpus").mkdir()
        self._cgroups = folder / "cgroups"
        self._cgroups.mkdir()
        self._driver = folder / "driver"
        libraries = self._driver / "usr/lib64"
        libraries.mkdir(parents=True)
        shutil.copy(native.path("fakegpu/libnvidia-ml.so.1"), libraries)
        self.paths = Paths(folder / "run")
        self.machine = Machine(folder / "gpus")
        self._stack = ExitStack()
        self.daemon = self._stack.enter_context(RunningDaemon(self.paths))
        part = msgspec.structs.replace(
            self.machine.grant(memory=LIMIT, request=TENTH), limit_micros=TENTH
        )
        self.daemon.grant(Grant(version=GRANT_VERSION, claim="claim", gpus=(part,), pod=POD))

    def close(self) -> None:
        self._stack.close()

    @property
    def overhead(self) -> int:
        """What the daemon shows to the library."""
        return Page(self.paths.claim("claim") / "page").cell()[-1]

    def start(self, memory: int, *, held: bool, of_pod: bool = True) -> Probe:
        """A process that takes memory of the GPU, with the library in it or not."""
        preload = None if held else ""
        return self._take(self._run(["probe", "dlsym"], preload=preload, of_pod=of_pod), memory)

    def start_beside(self, memory: int) -> Probe:
        """A process of another claim on the same GPU, with the library in it."""
        part = self.machine.grant(memory=LIMIT, request=1_000_000 - TENTH)
        self.daemon.grant(Grant(version=GRANT_VERSION, claim="other", gpus=(part,)))
        probe = self._run(["probe", "dlsym"], preload=None, of_pod=False, claim="other")
        return self._take(probe, memory)

    def start_interposed(self, memory: int, *names: str) -> Probe:
        """The same under an object that comes before the library.

        Args:
            memory: in bytes.
            names: the functions of the driver that it keeps from the library; all, if none.
        """
        preload = f"{native.path('tests/libinterposer.so')} {self.machine.library}"
        chosen = {"INTERPOSED": ",".join(names)} if names else {}
        return self._take(self._run(["probe", "dlsym"], chosen, preload=preload), memory)

    @staticmethod
    def _take(probe: Probe, memory: int) -> Probe:
        probe.do("init")
        probe.do("retain", 0)
        probe.do("alloc", memory)
        return probe

    def start_static(self, program: Path, *then: Path) -> Probe:
        """A process of the pod that should preload the library, but is static.

        Args:
            program: it; on the GPU.
            then: what it becomes, if anything.
        """
        probe = self._run([str(program), *map(str, then)], preload=None)
        assert probe.answer()["result"] == 0
        return probe

    def write_zeros(self, *, keeps_marks: bool) -> None:
        """Write over the claim's counters, as a program in its container can.

        Args:
            keeps_marks: whether slots that are in use stay so.
        """
        with self.paths.counters("claim").open("r+b") as file:
            file.seek(COUNTERS_HEADER.size)
            before = file.read()
            zeros = bytearray(len(before))
            for slot in range(PROCESSES_MAX if keeps_marks else 0):
                mark = slice(slot * COUNTERS_SLOT.size, slot * COUNTERS_SLOT.size + _MARK_BYTES)
                zeros[mark] = before[mark]
            file.seek(COUNTERS_HEADER.size)
            file.write(zeros)

    def _run(
        self,
        command: list[str],
        extra: Mapping[str, str] = MappingProxyType({}),
        *,
        preload: str | None,
        of_pod: bool = True,
        claim: str = "claim",
    ) -> Probe:
        environment = {
            **extra,
            "KUBESHARE_CLAIM": str(self.paths.claim(claim)),
            "KUBESHARE_COUNTERS": str(self.paths.counters(claim)),
        }
        probe = self._stack.enter_context(self.machine.run(command, environment, preload=preload))
        cgroup = f"0::/kubepods/burstable/pod{POD.uid}/{'ab' * 32}\n" if of_pod else "0::/\n"
        (self._cgroups / str(probe.process.pid)).write_text(cgroup)
        return probe

    def watch(self, policy: str = "report") -> "Watch":
        """Start the watch."""
        arguments = [self._driver, self.paths.root, self._cgroups, policy]
        environment = self.machine.environment() | {"PYTHONPATH": ":".join(sys.path)}
        return self._stack.enter_context(Watch(arguments, environment))


class Watch:
    """The running watcher, and its events."""

    def __init__(self, arguments: list[object], environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", "fakes.node.watch_program", *map(str, arguments)]
        self._process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        self.reported: list[tuple[str, str, str]] = []

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        assert json.loads(self._process.stdout.readline()) == []
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def within(self, seconds: float, count: int) -> list[tuple[str, str, str]]:
        """Its next events (reason, pod, note): so many, or those of so many seconds."""
        deadline = time.monotonic() + seconds
        assert self._process.stdout is not None
        while len(self.reported) < count and (left := deadline - time.monotonic()) > 0:
            if select.select([self._process.stdout], [], [], left)[0]:
                line = self._process.stdout.readline()
                assert line, self._process.communicate()[1].decode()
                self.reported.append(tuple(json.loads(line)))
        return self.reported


class Charges:
    """What the token daemon has charged, with the times around its answer."""

    def __init__(self, paths: Paths) -> None:
        self.asked_ns = time.monotonic_ns()
        self._claims = client.ask_snapshot(paths)["claims"]
        self.told_ns = time.monotonic_ns()

    def of(self, claim: str) -> int:
        """In ns."""
        return next(int(each["chargedNs"]) for each in self._claims if each["claim"] == claim)


def seconds_until_seen(
    node: Node, watch: Watch, charged: int, *, count: int
) -> tuple[float, float]:
    """How long it takes until so many bytes are charged to the claim, and until the reports."""
    began = time.monotonic()
    eventually(lambda: node.overhead >= charged, "what the counters hide is charged")
    charged_s = time.monotonic() - began
    watch.within(DEADLINE_S, count)
    return charged_s, time.monotonic() - began


@pytest.fixture
def node() -> Iterator[Node]:
    folder = Path(tempfile.mkdtemp(prefix="kubeshare-", dir="/dev/shm"))
    made = Node(folder)
    yield made
    made.close()
    shutil.rmtree(folder)


def test_a_static_program_is_reported(node: Node, static_program: Path) -> None:
    node.start(8 * MIB, held=True)
    node.start(8 * MIB, held=False, of_pod=False)
    watch = node.watch()
    escaped = node.start_static(static_program)
    [(reason, pod, note)] = watch.within(DEADLINE_S, count=1)
    assert (reason, pod) == ("UnheldProcess", "a")
    assert f"process {escaped.process.pid} " in note


def test_a_program_of_another_architecture_is_reported(
    node: Node, static_program: Path, foreign_program: Path
) -> None:
    watch = node.watch()
    escaped = node.start_static(static_program, foreign_program)
    running = Path(f"/proc/{escaped.process.pid}/exe").resolve()
    assert running == foreign_program
    assert running.read_bytes()[4] == ELF_32_BIT
    [(reason, pod, note)] = watch.within(DEADLINE_S, count=1)
    assert (reason, pod) == ("UnheldProcess", "a")
    assert f"process {escaped.process.pid} " in note


@pytest.mark.serial
def test_who_has_all_calls_pass_the_library_by_is_reported_within_three_seconds(node: Node) -> None:
    node.start(8 * MIB, held=True)
    watch = node.watch()
    began = time.monotonic()
    escaped = node.start_interposed(8 * MIB)
    maps = Path(f"/proc/{escaped.process.pid}/maps").read_text()
    assert "libinterposer" in maps
    assert native.DEVICE_LIBRARY in maps
    with Wakeups() as wakeups:
        [(reason, pod, note)] = watch.within(DEADLINE_S, count=1)
    assert (reason, pod) == ("UnheldProcess", "a")
    assert f"process {escaped.process.pid} " in note
    assert time.monotonic() - began < REPORTED_MAX_S + wakeups.lost_seconds


@pytest.mark.serial
def test_who_is_connected_and_allocates_past_the_library_is_seen_by_its_memory_and_charged_in_time(
    node: Node,
) -> None:
    held = node.start(8 * MIB, held=True)
    watch = node.watch()
    escaped = node.start_interposed(MIB, "cuMemAlloc_v2")
    eventually(lambda: node.overhead > 0, "a check has just ended: what follows waits longest")
    escaped.do("alloc", 300 * MIB)
    with Wakeups() as wakeups:
        charged_s, reported_s = seconds_until_seen(node, watch, 300 * MIB, count=1)
    [(reason, pod, note)] = watch.reported
    assert (reason, pod) == ("MemoryOverLimit", "a")
    assert f"process {escaped.process.pid}" in note
    held.do("alloc", MIB, expect=OUT_OF_MEMORY)
    assert watch.within(0.5, count=2) == watch.reported[:1], "it has a connection"
    assert charged_s < CHARGED_MAX_S + wakeups.lost_seconds
    assert reported_s < REPORTED_MAX_S + wakeups.lost_seconds


def test_memory_past_the_library_is_told_and_charged_as_long_as_it_is_held(node: Node) -> None:
    held = node.start(8 * MIB, held=True)
    watch = node.watch()
    escaped = node.start(300 * MIB, held=False)
    reported = watch.within(DEADLINE_S, count=2)
    assert sorted(reason for reason, _, _ in reported) == ["MemoryOverLimit", "UnheldProcess"]
    assert all(f"process {escaped.process.pid}" in note for _, _, note in reported)
    eventually(lambda: node.overhead >= 300 * MIB, "what it has is charged to the claim")
    held.do("alloc", MIB, expect=OUT_OF_MEMORY)
    escaped.kill()
    eventually(lambda: node.overhead < 300 * MIB, "what it had is not charged any more")
    held.do("alloc", MIB)
    assert watch.within(0.5, count=3) == reported, "of the others there is nothing to report"


@pytest.mark.serial
@pytest.mark.parametrize("keeps_marks", [True, False])
def test_who_writes_zeros_over_its_counters_is_seen_by_its_memory_and_charged_in_time(
    node: Node, monkeypatch: pytest.MonkeyPatch, *, keeps_marks: bool
) -> None:
    monkeypatch.setattr(Session, "pids", [])  # a daemon sees none of processes in containers
    watch = node.watch()
    held = node.start(200 * MIB, held=True)
    node.write_zeros(keeps_marks=keeps_marks)
    held.do("alloc", 200 * MIB)
    expected = ["MemoryOverLimit", *(() if keeps_marks else ("UnheldProcess",))]
    with Wakeups() as wakeups:
        charged_s, reported_s = seconds_until_seen(node, watch, 200 * MIB, count=len(expected))
    assert sorted(reason for reason, _, _ in watch.reported) == expected
    assert all(f"process {held.process.pid}" in note for _, _, note in watch.reported)
    held.do("alloc", MIB, expect=OUT_OF_MEMORY)
    assert charged_s < CHARGED_MAX_S + wakeups.lost_seconds
    assert reported_s < REPORTED_MAX_S + wakeups.lost_seconds


def test_thousands_of_locks_on_the_counters_end_nobody_who_has_the_library(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "pids", [])  # a daemon sees none of processes in containers
    held = node.start(8 * MIB, held=True)
    locks = (
        "import fcntl, sys\n"
        f"file = open({str(node.paths.counters('claim'))!r}, 'r+b', buffering=0)\n"
        f"for slot in range({PROCESSES_MAX}):\n"
        f"    file.seek({COUNTERS_HEADER.size} + slot * {COUNTERS_SLOT.size})\n"
        "    file.write(b'\\1')\n"
        "for lock in range(15_000):\n"
        f"    fcntl.lockf(file, fcntl.LOCK_EX, 1, {FILE_BYTES_MAX} + 2 * lock)\n"
    )
    with prepared(locks):
        escaped = node.start(8 * MIB, held=False)
        watch = node.watch("kill")
        assert escaped.process.wait(DEADLINE_S) == -9
        reasons = sorted(reason for reason, _, _ in watch.within(DEADLINE_S, count=2))
        assert reasons == ["CostlyCounters", "UnheldProcess"]
        held.do("alloc", MIB)


def test_on_request_it_is_ended_and_the_others_stay(node: Node, static_program: Path) -> None:
    held = node.start(8 * MIB, held=True)
    other = node.start(8 * MIB, held=False, of_pod=False)
    escaped = node.start_static(static_program)
    watch = node.watch("kill")
    assert escaped.process.wait(DEADLINE_S) == -9
    assert [reason for reason, _, _ in watch.within(DEADLINE_S, count=1)] == ["UnheldProcess"]
    held.do("alloc", MIB)
    other.do("alloc", MIB)


@pytest.mark.serial
def test_a_kernel_that_never_ends_is_reported_within_five_seconds_and_ended_on_request(
    node: Node,
) -> None:
    hung = node.start(8 * MIB, held=True)
    hung.do("launch", "kernel", FOREVER_US, 1)
    watch = node.watch()
    beside = node.start_beside(8 * MIB)
    beside.do("launch", "kernel", 1000, 1)  # waits until the kernel is bypassed
    began = time.monotonic()
    with Wakeups() as wakeups:
        [(reason, pod, note)] = watch.within(DEADLINE_S, count=1)
    assert time.monotonic() - began < 5 + wakeups.lost_seconds
    assert (reason, pod) == ("HungKernel", "a")
    assert f"process {hung.process.pid} " in note
    assert "until its work ends the pod is charged" in note

    before = Charges(node.paths)
    beside.do("launch", "kernel", 500_000, 1)
    beside.do("sync")  # takes twice as long: the GPU divides its time among the two
    after = Charges(node.paths)
    by_the_clock = after.of("claim") - before.of("claim")
    assert after.asked_ns - before.told_ns <= by_the_clock <= after.told_ns - before.asked_ns
    assert 0 < after.of("other") - before.of("other") <= by_the_clock

    killer = node.watch("kill")
    assert hung.process.wait(DEADLINE_S) == -9
    [(reason, pod, note)] = killer.within(DEADLINE_S, count=1)
    assert (reason, pod) == ("HungKernel", "a")
    assert "is ended" in note
    beside.do("launch", "kernel", 1000, 1)
    beside.do("sync")
