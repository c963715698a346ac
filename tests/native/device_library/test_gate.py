"""Launches pass when the gate is open, and wait when it is not."""

import subprocess
from pathlib import Path

import pytest

from deadlines import DEADLINE_S
from fakes.session import FakeSession, Machine, Probe
from kubeshare import native
from kubeshare.tokens.wire.protocol import VERSION, GrantState, MessageType

pytestmark = pytest.mark.native

PATHS = [
    "direct",
    "default",
    "dlsym",
    "dlsym-ptsz",
    "dlvsym",
    "address",
    "address-v2",
    "address-ptsz",
]
NOT_PERMITTED = 800
MICROSECONDS = 1000


@pytest.mark.parametrize("barrier", ["kernel", "launches", "forbidden"])
def test_no_launch_passes_a_closed_gate_unseen(barrier: str) -> None:
    """Whoever has the barrier between a launch's mark and its look at the gate."""
    command = [str(native.path("tests/marks-test")), barrier, "1000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("1000 rounds")


@pytest.mark.parametrize("how", ["kernel", "ex", "cooperative"])
@pytest.mark.parametrize("path", PATHS)
def test_a_launch_waits_at_the_closed_gate_and_goes_on_when_it_opens(
    machine: Machine, session: FakeSession, path: str, how: str
) -> None:
    with machine.start(session.environment, path) as probe:
        probe.do("init")
        probe.do("retain", 0)
        connection = session.accept()
        probe.send("launch", how, MICROSECONDS, 1)
        want = connection.receive()
        assert want.type is MessageType.WANT
        assert want.epoch == session.page.epoch(0)
        assert probe.is_silent()
        assert machine.gpu()["busy_ns"] == 0
        session.open()
        assert probe.answer()["result"] == 0
        probe.do("sync")
        assert machine.gpu()["busy_ns"] == MICROSECONDS * 1000


@pytest.mark.parametrize("path", PATHS)
def test_a_memset_waits_too(machine: Machine, session: FakeSession, path: str) -> None:
    with machine.start(session.environment, path) as probe:
        probe.do("init")
        probe.do("retain", 0)
        connection = session.accept()
        pointer = probe.do("alloc", 4096)["pointer"]
        probe.send("memset", pointer, 4096)
        assert connection.receive().type is MessageType.WANT
        assert probe.is_silent()
        session.open()
        assert probe.answer()["result"] == 0


def test_hello_says_version_and_pid(session: FakeSession, probe: Probe) -> None:
    probe.do("init")
    probe.do("retain", 0)
    hello = session.accept().hello
    assert hello.version == hello.value == VERSION
    assert hello.pid == probe.process.pid


def test_a_program_that_only_asks_needs_no_connection(session: FakeSession, probe: Probe) -> None:
    probe.do("init")
    probe.do("info", expect=None)
    assert session.nobody_connects()


def test_a_context_of_its_own_connects_too(
    machine: Machine, session: FakeSession, probe: Probe
) -> None:
    probe.do("init")
    probe.do("create", 0)
    session.accept()
    session.open()
    probe.do("launch", "kernel", MICROSECONDS, 3)
    probe.do("sync")
    probe.do("destroy")
    assert machine.gpu()["busy_ns"] == 3 * MICROSECONDS * 1000


@pytest.mark.serial
def test_nothing_is_launched_before_the_daemon_has_welcomed_the_process(
    session: FakeSession, probe: Probe
) -> None:
    session.open()
    probe.do("init")
    probe.do("retain", 0)
    connection = session.accept(welcome=False)
    probe.send("launch", "kernel", MICROSECONDS, 1)
    assert probe.is_silent()
    assert connection.is_quiet()
    connection.send(MessageType.WELCOME)
    assert probe.answer()["result"] == 0


def test_a_waiting_thread_asks_once_an_epoch(session: FakeSession, probe: Probe) -> None:
    probe.do("init")
    probe.do("retain", 0)
    connection = session.accept()
    probe.send("launch", "kernel", MICROSECONDS, 1)
    first = connection.receive()
    session.close()
    second = connection.receive()
    assert (first.type, second.type) == (MessageType.WANT, MessageType.WANT)
    assert second.epoch == first.epoch + 1
    assert connection.is_quiet()
    assert probe.is_silent()


def test_a_revoked_grant_ends_waits_and_later_launches_with_an_error(
    session: FakeSession, probe: Probe
) -> None:
    probe.do("init")
    probe.do("retain", 0)
    connection = session.accept()
    probe.send("launch", "kernel", MICROSECONDS, 1)
    connection.expect(MessageType.WANT)
    session.page.set_grant_state(GrantState.REVOKED)
    assert probe.answer()["result"] == NOT_PERMITTED
    probe.do("launch", "kernel", MICROSECONDS, 1, expect=NOT_PERMITTED)
    probe.do("alloc", 4096, expect=NOT_PERMITTED)


def test_marks_of_threads_that_ended_are_used_again(session: FakeSession, probe: Probe) -> None:
    probe.do("init")
    probe.do("retain", 0)
    connection = session.accept()
    session.open()
    probe.do("threads", 500)
    session.drain(connection)


def test_each_gpu_of_a_claim_has_its_own_gate(folder: Path) -> None:
    machine = Machine(folder, "V100x2")
    grants = [machine.grant(1), machine.grant(0)]
    with FakeSession(folder, grants) as session, machine.start(session.environment) as probe:
        probe.do("init")
        probe.do("retain", 0)
        connection = session.accept()
        session.open(0)
        probe.send("launch", "kernel", MICROSECONDS, 1)
        assert connection.receive().cell == 1
        assert probe.is_silent()
        session.open(1)
        assert probe.answer()["result"] == 0
        probe.do("retain", 1)
        session.close(1)
        probe.do("launch", "kernel", MICROSECONDS, 1)
        session.drain(connection, 0)
        assert [gpu["busy_ns"] for gpu in machine.stat()["gpus"]] == [MICROSECONDS * 1000] * 2


def test_a_gpu_that_is_not_of_the_claim_gets_no_context(folder: Path) -> None:
    machine = Machine(folder, "V100x2")
    with (
        FakeSession(folder, [machine.grant(1)]) as session,
        machine.start(session.environment) as probe,
    ):
        probe.do("init")
        probe.do("retain", 0, expect=NOT_PERMITTED)
        probe.do("create", 0, expect=NOT_PERMITTED)
        probe.do("retain", 1)


def test_a_program_that_ends_while_the_gate_is_open_ends_well(
    session: FakeSession, probe: Probe
) -> None:
    probe.do("init")
    probe.do("retain", 0)
    connection = session.accept()
    session.open()
    probe.do("launch", "kernel", MICROSECONDS, 5)
    assert probe.finish() == 0
    assert connection.is_closed()


def test_an_mps_server_is_warned_of_with_debug_lines_on(
    machine: Machine, session: FakeSession, tmp_path: Path
) -> None:
    (tmp_path / "control").touch()
    said = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path), "KUBESHARE_DEBUG": "1"}
    with machine.start(session.environment | said) as probe:
        probe.do("init")
        probe.do("retain", 0)
        session.accept()
        assert "a fatal error of one of its clients ends all" in probe.errors()
