"""The shell of a program: readiness, metrics, orderly ends."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from deadlines import DEADLINE_S
from kube.expectations import expect_count, expect_true
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.client.errors import ConfigError
from kubeshare.kube.controller.controller import Controller, own_key
from kubeshare.kube.controller.events import EventRecorder, ObjectReference
from kubeshare.kube.controller.leader_election import LeaderElector, LeadershipLostError
from kubeshare.kube.controller.runtime import EXIT_UNREACHABLE, Program, run_program
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import EVENTS, LEASES, PODS
from kubeshare.simulator.control import FakeApiServer, Fault, run_virtual

ABOUT = ObjectReference(api_version="v1", kind="Pod", namespace="a", name="p", uid="u")


class Whole:
    """A program with all its parts: each reconcile takes a while and emits an event."""

    def __init__(self, server: FakeApiServer, name: str = "one", seconds: float = 2) -> None:
        client = server.client()
        self.seconds = seconds
        self.begun: list[Key] = []
        self.finished: list[Key] = []
        self.recorder = EventRecorder(client, "example.test/program", name)
        self.elector = LeaderElector(client, "kube", "program", name, draw=lambda: 0.5)
        self.program = Program("test", client, elector=self.elector, recorder=self.recorder)
        self.reflector = self.program.add_reflector(Reflector(client, PODS))
        controller: Controller[Key] = Controller("pods", self.reconcile)
        controller.watch(self.reflector, own_key)
        self.program.add_controller(controller)

    async def reconcile(self, key: Key) -> None:
        self.begun.append(key)
        await asyncio.sleep(self.seconds)
        self.finished.append(key)
        self.recorder.emit(ABOUT, "Done", "Do", f"{key} is done.")


def seed(server: FakeApiServer, name: str) -> None:
    server.seed(PODS, {"metadata": {"name": name, "namespace": "a"}})


def test_an_ordered_end_finishes_keys_releases_the_lease_and_writes_events(
    server: FakeApiServer,
) -> None:
    seed(server, "p")
    seed(server, "q")

    async def main() -> None:
        whole = Whole(server)
        running = asyncio.create_task(whole.program.run())
        await expect_true(lambda: whole.begun, "begun")
        whole.program.stop()
        await running
        assert whole.finished == whole.begun == [Key("a", "p")]
        assert [event["note"] for event in server.all(EVENTS)] == ["a/p is done."]
        stored = server.stored(LEASES, "program", "kube")
        assert stored is not None
        assert stored["spec"]["holderIdentity"] == ""
        assert asyncio.get_running_loop().time() < 10

    run_virtual(main())


def test_what_takes_too_long_is_cut_off_and_the_lease_released(server: FakeApiServer) -> None:
    seed(server, "p")

    async def main() -> None:
        whole = Whole(server, seconds=25)
        running = asyncio.create_task(whole.program.run())
        await expect_true(lambda: whole.begun, "begun")
        asked = asyncio.get_running_loop().time()
        whole.program.stop()
        await running
        assert whole.finished == []
        assert asyncio.get_running_loop().time() - asked < 10
        assert (server.stored(LEASES, "program", "kube") or {})["spec"]["holderIdentity"] == ""

    run_virtual(main())


def test_it_ends_in_ten_seconds_though_the_api_server_hangs_and_a_key_does_not_end(
    server: FakeApiServer,
) -> None:
    """The worst that an end can meet: less than Kubernetes' 15 s of the programs' pods."""
    seed(server, "p")

    async def main() -> None:
        whole = Whole(server, seconds=25)
        running = asyncio.create_task(whole.program.run())
        await expect_true(lambda: whole.begun, "begun")
        server.inject(Fault.hang(), times=1000)
        whole.recorder.emit(ABOUT, "Done", "Do", "It is not written.")
        asked = asyncio.get_running_loop().time()
        whole.program.stop()
        await running
        assert asyncio.get_running_loop().time() - asked < 10
        assert not server.all(EVENTS)

    run_virtual(main())


def test_a_waiting_replica_is_warm_takes_over_and_can_be_stopped(server: FakeApiServer) -> None:
    seed(server, "p")

    async def main() -> None:
        wholes = [Whole(server, name) for name in ("one", "two", "three")]
        one, two, three = wholes
        tasks = [asyncio.create_task(whole.program.run()) for whole in wholes]
        await expect_true(lambda: all(whole.reflector.synced for whole in wholes), "synced")
        await asyncio.sleep(30)
        assert sum(whole.elector.leading for whole in wholes) == 1
        leader = next(whole for whole in wholes if whole.elector.leading)
        waiting = next(whole for whole in wholes if not whole.elector.leading)
        assert not waiting.begun
        waiting.program.stop()
        await expect_true(tasks[wholes.index(waiting)].done, "done", 1)
        leader.program.stop()
        (last,) = (whole for whole in wholes if whole not in (leader, waiting))
        await expect_true(lambda: last.finished, "finished", 10)
        last.program.stop()
        await asyncio.gather(*tasks)
        assert (one.seconds, two.seconds, three.seconds) == (2, 2, 2)

    run_virtual(main())


def test_a_lost_lease_ends_the_program(server: FakeApiServer) -> None:
    async def main() -> None:
        whole = Whole(server)
        running = asyncio.create_task(whole.program.run())
        await expect_true(lambda: whole.elector.leading, "leading")
        server.down = True
        with pytest.raises(ExceptionGroup) as caught:
            await running
        assert caught.value.subgroup(LeadershipLostError) is not None

    run_virtual(main())


def test_leading_tasks_run_while_it_leads_and_others_always(server: FakeApiServer) -> None:
    log: list[str] = []

    async def task(name: str) -> None:
        log.append(f"{name} begins")
        try:
            await asyncio.Event().wait()
        finally:
            log.append(f"{name} ends")

    async def main() -> None:
        program = Program("test", server.client())
        program.add_task(lambda: task("beside"))
        program.add_task(lambda: task("leading"), leading=True)
        running = asyncio.create_task(program.run())
        await expect_count(log, 2)
        program.stop()
        await running
        assert log == ["beside begins", "leading begins", "leading ends", "beside ends"]

    run_virtual(main())


PROGRAM = """
import asyncio, os, sys
from kubeshare.kube.logs import configure_logging
from kubeshare.kube.controller.runtime import Program, run_program
from kubeshare.simulator.control import FakeApiServer

async def task():
    if sys.argv[1] == "breaks":
        raise RuntimeError("a bug")
    print("running", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        if sys.argv[1] == "stubborn":
            await asyncio.Event().wait()

async def build():
    program = Program("test", FakeApiServer().client())
    program.add_task(task)
    return program

configure_logging("info")
sys.exit(run_program(build))
"""


def start(mode: str) -> "subprocess.Popen[str]":
    root = Path(__file__).parents[3]
    environment = os.environ | {"PYTHONPATH": f"{root / 'src'}:{root / 'tests'}"}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, mode],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_program_in_order(number: signal.Signals) -> None:
    with start("willing") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(number)
        _, logs = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    lines = [json.loads(line) for line in logs.splitlines()]
    assert [line["event"] for line in lines] == ["ending", "ended"]
    assert all(line["level"] == "info" and line["timestamp"] for line in lines)


@pytest.mark.slow
def test_a_second_signal_ends_what_does_not_want_to() -> None:
    with start("stubborn") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGTERM)
        assert "ending" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        _, logs = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert "ended at once" in logs


@pytest.mark.slow
def test_a_failing_part_ends_the_program_with_1_and_a_log_of_json() -> None:
    with start("breaks") as process:
        _, logs = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    last = json.loads(logs.splitlines()[-1])
    assert (last["event"], last["error"]) == ("failed", "a bug")
    assert "RuntimeError" in last["exception"]


def test_a_missing_configuration_ends_with_3_and_no_traceback(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def build() -> Program:
        raise ConfigError("no kubeconfig")

    assert run_program(build) == EXIT_UNREACHABLE
    captured = capfd.readouterr()
    assert "no kubeconfig" in captured.out + captured.err
    assert "Traceback" not in captured.out + captured.err


def program_of(task: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[Program]]:
    async def build() -> Program:
        program = Program("test", FakeApiServer().client())
        program.add_task(task)
        return program

    return build


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_cancels_what_outlives_the_first(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    cancelled: list[str] = []

    async def stubborn() -> None:
        os.kill(os.getpid(), number)
        for which in ("in order", "at once"):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(which)
                os.kill(os.getpid(), number)

    assert run_program(program_of(stubborn)) == 0
    assert cancelled == ["in order", "at once"]
    captured = capfd.readouterr()
    assert "ended at once" in captured.out + captured.err


@pytest.mark.parametrize(
    ("errors", "code", "words"),
    [
        ([OSError("no port")], EXIT_UNREACHABLE, "no port"),
        ([LeadershipLostError("no lease")], EXIT_UNREACHABLE, "no lease"),
        ([RuntimeError("a bug")], 1, "a bug"),
        ([RuntimeError("a bug"), ValueError("another")], 1, "a bug; another"),
    ],
)
def test_the_exit_code_tells_a_bug_from_what_cannot_be_reached(
    errors: list[Exception], code: int, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async def fail() -> None:
        raise ExceptionGroup("several", errors)

    assert run_program(program_of(fail)) == code
    captured = capfd.readouterr()
    assert words in captured.out + captured.err
    assert ("Traceback" in captured.out + captured.err) == (code == 1)


def test_preparations_end_before_controllers_begin() -> None:
    begun: list[str] = []

    async def prepare() -> None:
        await asyncio.sleep(10)
        begun.append("prepared")

    async def reconcile(_: str) -> None:
        begun.append("reconciled")

    async def main() -> None:
        program = Program("test", FakeApiServer().client())
        controller: Controller[str] = Controller("test", reconcile)
        program.add_preparation(prepare)
        program.add_controller(controller)
        running = asyncio.create_task(program.run())
        controller.queue.add("key")
        await asyncio.sleep(5)
        assert begun == []
        await asyncio.sleep(6)
        assert begun == ["prepared", "reconciled"]
        program.stop()
        await running

    run_virtual(main())


def test_a_program_ends_while_it_prepares() -> None:
    async def main() -> None:
        program = Program("test", FakeApiServer().client())
        program.add_preparation(partial(asyncio.sleep, 1000))
        running = asyncio.create_task(program.run())
        await asyncio.sleep(1)
        program.stop()
        async with asyncio.timeout(1):
            await running

    run_virtual(main())


def test_a_page_is_served_beside_the_probes_where_there_is_a_port(server: FakeApiServer) -> None:
    async def page() -> bytes:
        return b"{}"

    async def main() -> None:
        program = Program("test", server.client(), port=0)
        program.add_page("/state", page)
        assert program.health is not None
        assert program.health.pages == {"/state": page}
        without = Program("test", server.client())
        without.add_page("/state", page)
        assert without.health is None

    run_virtual(main())
