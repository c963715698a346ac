"""A standby daemon takes over when the serving one ends."""

import contextlib
import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from deadlines import DEADLINE_S, eventually
from kubeshare.tokens.client import ask_snapshot
from kubeshare.tokens.files import tallies
from kubeshare.tokens.files.grants import write_grant
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import DaemonMissingError, read_status, wait_status
from kubeshare.tokens.wire.protocol import GateState
from tokens.helpers import Client, grant
from tokens.program import listening_port, start_program
from tokens.test_restart import scraped

Program = subprocess.Popen[str]


@contextlib.contextmanager
def running(paths: Paths, *options: str, name: str = "log") -> Iterator[Program]:
    """A daemon as a program; it is killed where it is left at the end."""
    with start_program(paths, *options, stdout=log_of(paths, *options, name=name)) as program:
        try:
            yield program
        finally:
            program.kill()


def log_of(paths: Paths, *options: str, name: str = "log") -> Path:
    return paths.root.with_name("-".join((name, *options)))


@pytest.fixture
def first(paths: Paths) -> Iterator[Program]:
    """The daemon that serves, and has granted `a` its share."""
    write_grant(paths, grant("a", 0.6))
    with running(paths) as program:
        wait_status(paths, "a", DEADLINE_S)
        yield program


STANDS_BY = ("--stand-by", "--port", "0")


@pytest.fixture
def second(first: Program, paths: Paths) -> Iterator[Program]:
    """One that stands by, and is ready."""
    with running(paths, *STANDS_BY) as program:
        eventually(lambda: is_ready(program), "its probes are answered")
        assert first.poll() is None
        yield program


def port_of(program: Program) -> int:
    port = listening_port(program.pid)
    assert port is not None
    return port


def is_ready(program: Program) -> bool:
    port = listening_port(program.pid)
    if port is None:
        return False
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/readyz", timeout=DEADLINE_S
        ) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def server(paths: Paths) -> int | None:
    """The pid of the daemon that answers."""
    try:
        return int(ask_snapshot(paths)["pid"])
    except DaemonMissingError:
        return None


def lines_of(log: Path) -> list[str]:
    return [json.loads(line)["event"] for line in log.read_text().splitlines()]


@pytest.mark.slow
def test_a_daemon_that_stands_by_is_ready_and_touches_nothing(
    paths: Paths, first: Program, second: Program
) -> None:
    client = Client(paths, "a")
    client.open()
    page = client.page.header, client.page.epoch

    assert 'claim="a"' not in (scraped(port_of(second)) or "")
    assert lines_of(log_of(paths, *STANDS_BY)) == ["code chosen", "standing by"]
    assert server(paths) == first.pid
    assert second.poll() is None
    assert not client.is_dropped
    assert (client.page.header, client.page.epoch) == page


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_it_takes_over_when_the_other_one_ends_and_nobody_loses_a_claim(
    paths: Paths, first: Program, second: Program, end: signal.Signals
) -> None:
    before = Client(paths, "a")
    before.open()
    inode = before.page.inode

    first.send_signal(end)

    eventually(lambda: server(paths) == second.pid, "the second one serves")
    assert first.wait(DEADLINE_S) == (0 if end is signal.SIGTERM else -end)
    assert before.is_dropped
    assert read_status(paths, "a").state == "ACTIVE"  # type: ignore[union-attr]
    back = Client(paths, "a")
    assert back.page.inode == inode
    back.open()
    assert before.page.gate is GateState.OPEN, "the old mapping sees it"
    # One that was killed has not saved the turn that went on.
    assert tallies.read(paths.tally("a"))[0].gaps == (0 if end is signal.SIGTERM else 1)
    assert 'claim="a"' in (scraped(port_of(second)) or "")


@pytest.mark.slow
def test_one_that_stands_by_ends_when_told_to_and_the_other_one_serves_on(
    paths: Paths, first: Program, second: Program
) -> None:
    client = Client(paths, "a")

    second.terminate()

    assert second.wait(DEADLINE_S) == 0
    assert server(paths) == first.pid
    client.open()


@pytest.mark.slow
def test_of_two_that_stand_by_one_takes_over_and_the_other_one_waits_for_it(
    paths: Paths, first: Program, second: Program
) -> None:
    with running(paths, *STANDS_BY, name="third") as third:
        eventually(lambda: is_ready(third), "its probes are answered")
        waiting = {second.pid: second, third.pid: third}
        first.terminate()
        next_one = waiting.pop(
            eventually(lambda: pid if (pid := server(paths)) != first.pid else None, "one serves")
        )
        (last,) = waiting.values()
        assert last.poll() is None

        next_one.terminate()

        eventually(lambda: server(paths) == last.pid, "the last one serves")
