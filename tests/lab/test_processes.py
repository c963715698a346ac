"""Processes by pid and start time."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kubeshare.lab import processes
from kubeshare.lab.control_plane.api_server import wait_until


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[processes.Process]:
    process = processes.start(["sleep", "300"], tmp_path / "log")
    yield process
    processes.stop([process], gently=False)


def test_a_process_that_runs_is_alive_until_it_is_stopped(sleeper: processes.Process) -> None:
    assert processes.alive(sleeper)

    processes.stop([sleeper])

    assert not processes.alive(sleeper)


def test_a_pid_that_was_given_to_somebody_else_is_not_ours(sleeper: processes.Process) -> None:
    predecessor = msgspec.structs.replace(sleeper, start_time=sleeper.start_time - 1)

    processes.stop([predecessor])

    assert not processes.alive(predecessor)
    assert processes.alive(sleeper)


def test_one_that_ignores_a_polite_request_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_STOP_SECONDS", 0.3)
    log = tmp_path / "log"
    script = "trap '' TERM; echo deaf; while :; do sleep 0.05; done"
    deaf = processes.start(["sh", "-c", script], log)
    wait_until(lambda: "deaf" in processes.tail(log), "the program to ignore SIGTERM")

    processes.stop([deaf])

    assert not processes.alive(deaf)


def test_what_a_program_writes_is_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "log"

    process = processes.start(
        ["sh", "-c", "echo out; echo err >&2; echo $GREETING"], log, {"GREETING": "hi"}
    )
    wait_until(lambda: not processes.alive(process), "the end of a short program")

    assert processes.tail(log).splitlines() == ["out", "err", "hi"]
    assert processes.tail(log, 1) == "hi"


def test_a_log_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    assert "no log" in processes.tail(tmp_path / "none")
