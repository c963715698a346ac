"""Processes fork, and programs without a GPU notice nothing."""

import os
import signal
import subprocess
import sys

import pytest

from deadlines import DEADLINE_S
from fakes.session import MIB, FakeSession, Machine, Probe, eventually
from kubeshare.tokens.files import counters
from kubeshare.tokens.wire.protocol import MessageType

pytestmark = pytest.mark.native

NOT_INITIALIZED = 3
OUT_OF_MEMORY = 2


def test_a_forked_child_leaves_connection_and_account_to_its_parent(
    session: FakeSession, probe: Probe
) -> None:
    probe.do("init")
    probe.do("retain", 0)
    connection = session.accept()
    session.open()
    probe.do("alloc", 2 * MIB)
    probe.do("fork", "alloc", MIB, expect=None)
    assert session.charged() == 2 * MIB
    assert connection.is_quiet()
    probe.do("launch", "kernel", 1000, 1)
    session.drain(connection)
    probe.do("alloc", 1022 * MIB)
    assert session.charged() == 1024 * MIB


@pytest.mark.parametrize("descriptors", [0, 64])
def test_a_process_that_closes_the_counters_keeps_its_charge(
    machine: Machine, session: FakeSession, probe: Probe, descriptors: int
) -> None:
    probe.do("init")
    probe.do("retain", 0)
    probe.do("alloc", 1024 * MIB)
    probe.do("touch", session.counters, descriptors)
    assert session.charged() == 1024 * MIB
    with machine.start(session.environment) as other:
        other.do("init")
        other.do("retain", 0)
        other.do("alloc", MIB, expect=OUT_OF_MEMORY)
        assert session.charged() == 1024 * MIB


def test_files_of_a_program_in_place_of_the_librarys_are_left_alone(
    machine: Machine, session: FakeSession, probe: Probe
) -> None:
    """As after `close_range(3, ~0)`: connection and account go on by other descriptors."""
    probe.do("init")
    probe.do("retain", 0)
    connection = session.accept()
    session.open()
    probe.do("alloc", 1024 * MIB)
    assert probe.do("usurp")["count"] == 2

    assert probe.do("info")["free"] == 0
    probe.do("alloc", 1, expect=OUT_OF_MEMORY)
    with machine.start(session.environment) as other:
        other.do("init")
        other.do("retain", 0)
        session.accept()
        other.do("alloc", 1, expect=OUT_OF_MEMORY)
    session.close()
    renewed = session.accept()
    assert connection.is_closed()
    probe.send("launch", "kernel", 1000, 1)
    renewed.expect(MessageType.WANT)
    session.open()
    assert probe.answer()["result"] == 0
    probe.do("usurped")


def test_a_process_that_has_lost_its_name_gets_it_back(session: FakeSession, probe: Probe) -> None:
    probe.do("init")
    probe.do("retain", 0)
    probe.do("alloc", 2 * MIB)
    probe.do("touch", session.counters, 0)
    (nameless,) = counters.processes(session.counters)
    assert (nameless.pid, nameless.memory_bytes[0]) == (0, 2 * MIB)
    probe.do("info")
    (named,) = counters.processes(session.counters)
    assert named.pid == probe.process.pid


def test_a_charge_ends_with_its_process_though_a_child_lives_on(
    machine: Machine, session: FakeSession, probe: Probe
) -> None:
    probe.do("init")
    probe.do("retain", 0)
    probe.do("alloc", 1024 * MIB)
    child = int(probe.do("orphan")["child"])
    try:
        probe.kill()
        assert session.charged() == 0
        with machine.start(session.environment) as other:
            other.do("init")
            other.do("retain", 0)
            other.do("alloc", 1024 * MIB)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_child_forked_before_the_gpu_was_used_is_a_process_of_its_own(
    session: FakeSession, probe: Probe
) -> None:
    probe.do("fork", "init")
    assert session.nobody_connects()
    probe.do("init")
    probe.do("retain", 0)
    assert session.accept().hello.pid == probe.process.pid


@pytest.mark.slow
def test_the_child_of_a_gpu_program_cannot_use_its_parents_gpu(
    session: FakeSession, probe: Probe
) -> None:
    probe.do("init")
    probe.do("retain", 0)
    session.accept()
    answer = probe.do("fork", "launch", "kernel", 1000, 1, expect=None)
    assert answer["result"] == NOT_INITIALIZED


def test_programs_that_use_no_gpu_behave_as_before(machine: Machine) -> None:
    program = (
        "import ctypes, subprocess, threading\n"
        "libc = ctypes.CDLL(None)\n"
        "assert libc.getpid() > 0\n"
        "assert subprocess.run(['sh', '-c', 'exit 7']).returncode == 7\n"
        "try:\n"
        "    libc.no_such_function\n"
        "except AttributeError as error:\n"
        "    assert 'no_such_function' in str(error), error\n"
        "else:\n"
        "    raise SystemExit(1)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=machine.environment() | {"LD_PRELOAD": str(machine.library)},
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_end_of_a_process_frees_its_slot(machine: Machine, session: FakeSession) -> None:
    for _ in range(3):
        with machine.start(session.environment) as probe:
            probe.do("init")
            probe.do("retain", 0)
            connection = session.accept()
            probe.do("alloc", 1024 * MIB)
            assert probe.finish() == 0
            assert connection.is_closed()
            assert eventually(lambda: session.charged() == 0)


@pytest.mark.slow
def test_a_process_with_many_threads_is_drained(
    machine: Machine, session: FakeSession, probe: Probe
) -> None:
    probe.do("init")
    probe.do("retain", 0)
    connection = session.accept()
    session.open()
    probe.send("hammer", 40, 4096, 1000)
    assert eventually(lambda: machine.gpu()["busy_ns"] > 0)
    for _ in range(10):
        session.drain(connection)
        busy_ns = machine.gpu()["busy_ns"]
        connection.expect(MessageType.WANT)
        assert machine.gpu()["busy_ns"] == busy_ns
        session.open()
    assert probe.answer()["result"] == 0
