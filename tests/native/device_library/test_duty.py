"""Without a daemon a claim keeps to its request by the clock; memory stays limited."""

import json
import subprocess
from pathlib import Path

import pytest

from deadlines import DEADLINE_S
from fakes.session import FakeSession, Machine, Probe, eventually
from kubeshare import native
from kubeshare.tokens.wire.protocol import GrantState

pytestmark = pytest.mark.native

PERIOD_NS = 100_000_000
REQUEST = 0.3


def share(machine: Machine, periods: int) -> float:
    """Busy time of the GPU over some periods, divided by their length."""
    first = machine.stat()
    assert eventually(lambda: machine.stat()["now_ns"] - first["now_ns"] >= periods * PERIOD_NS)
    last = machine.stat()
    busy_ns = last["gpus"][0]["busy_ns"] - first["gpus"][0]["busy_ns"]
    return float(busy_ns / (last["now_ns"] - first["now_ns"]))


def by_a_clock_of_its_own(*arguments: object) -> dict[str, float]:
    """What `native/tests/duty_test.c` prints: nothing in it depends on this machine's time."""
    program = native.folder() / "tests" / "duty-test"
    done = subprocess.run(
        [program, *map(str, arguments)], capture_output=True, check=True, timeout=DEADLINE_S
    )
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("long_us", [1000, 45_000, 90_000, 130_000, 300_000])
@pytest.mark.parametrize("request_micros", [100_000, 300_000, 500_000, 800_000, 1_000_000])
def test_a_claim_gets_its_request_exactly_however_long_its_kernels_are(
    request_micros: int, long_us: int
) -> None:
    used = by_a_clock_of_its_own(request_micros, 600, 1000, long_us)["used"]
    assert abs(used - request_micros / 1e6) < 0.005


def test_a_kernel_of_seconds_is_paid_back() -> None:
    turns = by_a_clock_of_its_own(300_000, 10_000, 1000, 2_000_000)
    assert abs(turns["used"] - 0.3) < 0.005


def test_a_gate_opens_again_for_work_that_waits_for_a_later_launch() -> None:
    turns = by_a_clock_of_its_own(300_000, 50, 1000, 1000, "waits")
    assert turns["opened"] > 10
    assert turns["longest_shut_ms"] < 1000


@pytest.mark.serial
@pytest.mark.slow
def test_when_the_daemon_dies_the_process_times_itself_until_one_is_back(
    machine: Machine, session: FakeSession, probe: Probe
) -> None:
    probe.do("init")
    probe.do("retain", 0)
    session.accept()
    session.open()
    probe.do("launch", "kernel", 1000, 1)
    probe.send("launch", "kernel", 1000, 10_000)
    session.stop()
    assert REQUEST / 2 < share(machine, 20) < 1.5 * REQUEST
    session.close()
    session.listen()
    connection = session.accept()
    session.drain(connection)
    busy_ns = machine.gpu()["busy_ns"]
    assert probe.is_silent()
    session.open()
    assert eventually(lambda: machine.gpu()["busy_ns"] > busy_ns)


@pytest.mark.serial
@pytest.mark.slow
def test_a_process_that_finds_no_daemon_times_itself(
    machine: Machine, session: FakeSession, probe: Probe
) -> None:
    session.stop()
    probe.do("init")
    probe.do("retain", 0)
    probe.do("launch", "kernel", 1000, 1)
    probe.send("launch", "kernel", 1000, 10_000)
    assert REQUEST / 2 < share(machine, 20) < 1.5 * REQUEST
    assert probe.is_silent()


@pytest.mark.serial
@pytest.mark.slow
def test_processes_of_a_claim_keep_to_its_request_together(
    machine: Machine, session: FakeSession
) -> None:
    session.stop()
    with machine.start(session.environment) as one, machine.start(session.environment) as other:
        for probe in (one, other):
            probe.do("init")
            probe.do("retain", 0)
            probe.send("launch", "kernel", 1000, 10_000)
        assert REQUEST / 2 < share(machine, 20) < 1.5 * REQUEST


@pytest.mark.serial
@pytest.mark.slow
def test_long_kernels_are_paid_for_later(folder: Path, machine: Machine) -> None:
    with (
        FakeSession(folder, [machine.grant(request=500_000)]) as session,
        machine.start(session.environment) as probe,
    ):
        session.stop()
        probe.do("init")
        probe.do("retain", 0)
        probe.send("work", 30_000, 1000, 2)
        assert eventually(lambda: machine.gpu()["busy_ns"] > 0)
        assert share(machine, 30) < 0.65


def test_a_grant_revoked_meanwhile_is_noticed(session: FakeSession, probe: Probe) -> None:
    session.stop()
    probe.do("init")
    probe.do("retain", 0)
    session.page.set_grant_state(GrantState.REVOKED)
    probe.do("launch", "kernel", 1000, 1, expect=800)


def test_memory_stays_limited(session: FakeSession, probe: Probe) -> None:
    probe.do("init")
    probe.do("retain", 0)
    session.accept()
    session.stop()
    probe.do("alloc", 2**30 + 1, expect=2)
