"""The library under the sanitizers: memory, undefined behaviour, races."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from driver_api import rows
from driver_api.rows import GENERATED

from deadlines import DEADLINE_S
from fakes.session import MIB, FakeSession, Machine, Probe, eventually
from kubeshare import native
from kubeshare.tokens.wire.protocol import MessageType

pytestmark = [pytest.mark.native, pytest.mark.slow]

# The names of native/tests/probe_memory.c for what takes memory of the GPU.
FORMS = [
    *("linear", "linear-in-stream", "pitched", "managed", "stream", "stream-at-once", "pool"),
    *("pool-destroyed", "physical", "mapped", "retained", "side-by-side", "array", "array-3d"),
    *("array-layered", "array-compressed", "mipmapped", "graph", "graph-that-frees", "captured"),
]
OUT_OF_MEMORY = 2

SOURCES = Path(__file__).parents[3] / "native"


@pytest.fixture(scope="module", params=["asan", "tsan"])
def variant(request: pytest.FixtureRequest) -> str:
    """The name of a sanitizer; everything is built with it."""
    name = str(request.param)
    subprocess.run(
        ["make", "--silent", "-C", SOURCES, name, f"ZIG={sys.executable} -m ziglang"],
        env={key: os.environ[key] for key in os.environ if not key.startswith("MAKE")},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return name


@pytest.fixture
def machine(folder: Path, variant: str) -> Machine:
    state = folder / "gpus"
    state.mkdir()
    return Machine(state, variant=variant)


def preload(machine: Machine, variant: str) -> str:
    asked = ["gcc", f"-print-file-name=lib{variant}.so"]
    runtime = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    return f"{runtime} {machine.library}"


def start(machine: Machine, session: FakeSession, variant: str) -> Probe:
    return machine.start(session.environment, preload=preload(machine, variant))


def assert_ended_well(probe: Probe) -> None:
    code = probe.finish()
    assert probe.errors() == ""
    assert code == 0


def test_threads_that_launch_and_allocate_while_turns_come_and_go(
    machine: Machine, session: FakeSession, variant: str
) -> None:
    assert native.folder() / variant in machine.library.parents
    with start(machine, session, variant) as probe:
        probe.do("init")
        probe.do("retain", 0)
        connection = session.accept()
        session.open()
        probe.send("hammer", 8, 300 * MIB, 1000)
        for _ in range(10):
            session.drain(connection)
            connection.expect(MessageType.WANT)
            session.open()
            connection.send(MessageType.WATCH, 0, session.page.epoch(0))
        assert probe.answer()["result"] == 0
        assert_ended_well(probe)


def test_a_daemon_that_goes_and_comes_back(
    machine: Machine, session: FakeSession, variant: str
) -> None:
    with start(machine, session, variant) as probe:
        probe.do("init")
        probe.do("retain", 0)
        session.accept()
        session.open()
        probe.do("work", 1000, 20, 4)
        session.stop()
        probe.do("work", 1000, 60, 4)
        session.close()
        session.listen()
        session.accept()
        session.open()
        probe.do("work", 1000, 20, 4)
        assert_ended_well(probe)


def test_contexts_that_come_and_go_and_a_fork(
    machine: Machine, session: FakeSession, variant: str
) -> None:
    with start(machine, session, variant) as probe:
        probe.do("init")
        probe.do("retain", 0)
        connection = session.accept()
        session.open()
        for _ in range(3):
            probe.do("create", 0)
            probe.do("alloc", MIB)
            probe.do("launch", "kernel", 1000, 3)
            session.drain(connection)
            session.open()
            probe.do("destroy")
        probe.do("nvml")
        probe.do("fork", "alloc", MIB, expect=None)
        probe.do("release", 0)
        assert_ended_well(probe)


def test_contexts_that_end_while_their_work_is_drained(
    machine: Machine, session: FakeSession, variant: str
) -> None:
    with machine.run(["work"], session.environment, preload=preload(machine, variant)) as work:
        work.do("init")
        connection = session.accept()
        session.open()
        work.send("contexts", 60, 2000)
        for _ in range(20):
            session.drain(connection)
            session.open()
            connection.send(MessageType.WATCH, 0, session.page.epoch(0))
        assert work.answer()["result"] == 0
        assert_ended_well(work)


def test_threads_that_retain_and_release_a_primary_context_while_its_work_is_drained(
    machine: Machine, session: FakeSession, variant: str
) -> None:
    with machine.run(["work"], session.environment, preload=preload(machine, variant)) as work:
        work.do("init")
        work.do("release")
        connection = session.accept()
        session.open()
        work.send("primary", 3, 100, 500)
        for _ in range(20):
            session.drain(connection)
            session.open()
            connection.send(MessageType.WATCH, 0, session.page.epoch(0))
        assert work.answer()["result"] == 0
        assert session.charged() == 0
        assert machine.gpu()["used_memory"] == 0
        assert_ended_well(work)


def test_captures_while_turns_come_and_go(
    machine: Machine, session: FakeSession, variant: str
) -> None:
    with machine.run(["work"], session.environment, preload=preload(machine, variant)) as work:
        work.do("init")
        connection = session.accept()
        for _ in range(5):
            session.open()
            connection.send(MessageType.WATCH, 0, session.page.epoch(0))
            work.do("launch", 1, 1000, 3)
            work.send("begin", 0, 0)
            session.drain(connection)
            work.answer()
            work.do("launch", 0, 100, 20)
            session.open()
            work.do("thread", 1, 100, 20)
            work.do("end", 0)
            work.do("graph", 0)
            session.drain(connection)
        assert_ended_well(work)


def test_every_way_to_hold_memory(machine: Machine, session: FakeSession, variant: str) -> None:
    with start(machine, session, variant) as probe:
        probe.do("init")
        probe.do("retain", 0)
        session.accept()
        session.open()
        for form in FORMS:
            index = probe.do("hold", form, 8 * MIB)["index"]
            probe.do("hold", form, 2048 * MIB, expect=OUT_OF_MEMORY)
            probe.do("drop", index)
        assert session.charged() == 0
        assert_ended_well(probe)


def test_a_storm_of_allocations_at_the_limit(
    machine: Machine, session: FakeSession, variant: str
) -> None:
    probes = [
        machine.run(
            ["memory-storm", "8", str(seed)],
            session.environment,
            preload=preload(machine, variant),
        )
        for seed in range(3)
    ]
    most, began = 0, time.monotonic()
    while time.monotonic() - began < (3 if most > 512 * MIB else DEADLINE_S):
        most = max(most, machine.gpu()["used_memory"])
    for probe in probes:
        with probe:
            assert_ended_well(probe)
    assert 512 * MIB < most <= 1024 * MIB
    assert session.charged() == 0


def test_the_table_of_allocations(variant: str) -> None:
    program = native.folder() / variant / "tests" / "allocations-test"
    done = subprocess.run(
        [program], capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("barrier", ["kernel", "launches"])
def test_no_launch_passes_a_closed_gate_unseen(variant: str, barrier: str) -> None:
    program = native.folder() / variant / "tests" / "marks-test"
    done = subprocess.run(
        [program, barrier, "500"], capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("order", ["right", "wrong", "twice", "tried"])
def test_a_thread_that_breaks_the_order_of_locks_is_stopped(variant: str, order: str) -> None:
    program = native.folder() / variant / "tests" / "lock-order-test"
    done = subprocess.run(
        [program, order], capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )
    assert (done.returncode == 0) == (order in {"right", "tried"})
    assert ("lock order: rank" in done.stderr) == (order in {"wrong", "twice"})


# Python itself leaks, and has races of its own.
@pytest.mark.parametrize("variant", ["asan"], indirect=True)
def test_all_functions_that_submit_and_all_lists_of_processes(
    machine: Machine, session: FakeSession, variant: str
) -> None:
    here = Path(__file__).parent
    names = sorted(row.symbol for row in rows.read() if row.body == GENERATED)
    environment = session.environment | {
        "ASAN_OPTIONS": "detect_leaks=0",
        "STUB_UUID": machine.grant().uuid,
    }
    session.open()
    calling = [sys.executable, str(here / "clients" / "all_at_once.py"), *names]
    with machine.run(calling, environment, preload=preload(machine, variant)) as probe:
        assert eventually(lambda: probe.do("returned", expect=None)["returned"] == names)
        probe.do("copy", 0, expect=None)
        assert_ended_well(probe)
    fake = machine.environment()["LD_LIBRARY_PATH"]
    environment["LD_LIBRARY_PATH"] = f"{native.path('tests/stub')}:{fake}"
    asking = [sys.executable, str(here / "nvml_lists.py")]
    with machine.run(asking, environment, preload=preload(machine, variant)) as probe:
        probe.do("alloc", MIB)
        for room in (0, 1, 3, 8):
            for kind in ("Compute", "Graphics", "MPSCompute"):
                for version in ("-", "_v2", "_v3"):
                    probe.do("list", kind, version, room, expect=None)
            for question in ("samples", "usages"):
                probe.do(question, room, expect=None)
            probe.do("details", room % 4, 8, expect=None)
        assert_ended_well(probe)
