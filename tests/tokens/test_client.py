"""How a daemon is found and started, without one."""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kubeshare.tokens import client
from kubeshare.tokens.client import DRIVERS_NVML, IDLE_EXIT_S, ask, is_answering, start_daemon
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import DaemonMissingError


class ExecutedError(Exception):
    """The process has become another program."""


class FakeProcess:
    """Replaces ``os`` in the client: what a process and its forks do, in one process.

    Args:
        forks: what each fork returns: 0 in the child.
    """

    def __init__(self, *forks: int) -> None:
        self.forks = list(forks)
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("O_") or name in {"devnull", "sysconf"}:
            return getattr(os, name)

        def call(*arguments: Any) -> Any:
            self.calls.append((name, *arguments))
            if name == "fork":
                return self.forks.pop(0)
            if name in {"execv", "_exit"}:
                raise ExecutedError
            return {"open": len(self.calls)}.get(name)

        return call

    def of(self, name: str) -> list[list[Any]]:
        """The arguments of all calls of a function."""
        return [arguments for called, *arguments in self.calls if called == name]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "run")


@contextmanager
def answering(paths: Paths) -> Iterator[socket.socket]:
    paths.root.mkdir(exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(paths.control))
        listening.listen(8)
        yield listening


def test_whoever_listens_answers(paths: Paths) -> None:
    assert not is_answering(paths)
    with answering(paths):
        assert is_answering(paths)
    assert not is_answering(paths)


def test_a_daemon_that_is_not_there_is_said_where_it_should_be(paths: Paths) -> None:
    with pytest.raises(DaemonMissingError) as missing:
        ask(paths, "snapshot")
    words = str(missing.value)
    assert words.startswith(f"no token daemon answers on {paths.control} ([Errno 2]")
    assert words.endswith(
        "): `kubeshare run` starts one; in a cluster it is the node's pod of kubeshare-token-daemon"
    )


def test_it_waits_until_the_daemon_that_it_has_started_answers(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = FakeProcess(7)
    monkeypatch.setattr(client, "os", process)
    naps: list[float] = []
    with answering(paths):
        hidden = paths.control.with_name("hidden")
        paths.control.rename(hidden)

        def sleep(seconds: float) -> None:
            naps.append(seconds)
            if len(naps) == 3:
                hidden.rename(paths.control)

        monkeypatch.setattr(client, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=sleep))
        start_daemon(paths)
    assert naps == [0.005] * 3
    assert process.calls == [("fork",), ("waitpid", 7, 0)]
    assert paths.grants.is_dir()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When a daemon was started, by a clock that moves on by a quarter of a second at each wait."""
    now, times = [0.0], list[float]()

    def sleep(_: float) -> None:
        now[0] += 0.25

    monkeypatch.setattr(client, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(client, "_spawn", lambda *_: times.append(now[0]))
    return times


def test_a_daemon_is_started_again_that_met_the_last_one_ending(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, started: list[float]
) -> None:
    """The last one answers no more and has the folder's lock still, so the first one gives up."""
    monkeypatch.setattr(client, "is_answering", lambda _: len(started) == 2)
    start_daemon(paths)
    assert started == [0.0, 3.25]


def test_a_busy_machine_does_not_get_ever_more_daemons_to_start(
    paths: Paths, started: list[float]
) -> None:
    with pytest.raises(DaemonMissingError):
        start_daemon(paths)
    assert started == [0.0, 3.25, 9.5, 21.75, 46.0]


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (b"first\nno lock \xff\n\n", "no lock \ufffd"),
        (b"", "{log} says nothing"),
        (None, "[Errno 2] No such file or directory: '{log}'"),
    ],
)
def test_a_daemon_that_does_not_come_is_given_up_with_the_last_line_of_its_log(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, log: bytes | None, words: str
) -> None:
    monkeypatch.setattr(client, "os", FakeProcess(7))
    monkeypatch.setattr(client, "_spawn", lambda *_: None)
    times = iter([0.0, 59.9, 60.0, 60.1])
    clock = SimpleNamespace(monotonic=lambda: next(times), sleep=lambda _: None)
    monkeypatch.setattr(client, "time", clock)
    paths.make()
    if log is not None:
        paths.log.write_bytes(log)
    with pytest.raises(DaemonMissingError) as missing:
        start_daemon(paths)
    assert str(missing.value) == f"the token daemon did not start: {words.format(log=paths.log)}"
    assert list(times) == []


def test_the_daemon_is_nobodys_child_and_keeps_nothing_of_its_starter_open(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = FakeProcess(0, 0)
    monkeypatch.setattr(client, "os", process)
    with pytest.raises(ExecutedError):
        start_daemon(paths, Path("/lib/nvml"))
    assert process.of("setsid") == [[]]
    (devnull, _), (log, flags, mode) = process.of("open")
    assert (devnull, log) == (os.devnull, paths.log)
    assert (flags, mode) == (os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing, to_log = (
        number for number, each in enumerate(process.calls, start=1) if each[0] == "open"
    )
    assert process.of("dup2") == [[nothing, 0], [to_log, 1], [to_log, 2]]
    assert process.of("closerange") == [[3, os.sysconf("SC_OPEN_MAX")]]
    assert process.of("chdir") == [["/"]]
    [[program, command]] = process.of("execv")
    assert program == sys.executable
    assert command == [
        *(sys.executable, "-m", "kubeshare.tokens", "--run-folder", str(paths.root)),
        *("--idle-exit", str(IDLE_EXIT_S), "--nvml", "/lib/nvml"),
    ]
    assert process.of("_exit") == [[1]]


@pytest.mark.parametrize("forks", [(0, 7), (0, 0)])
def test_no_fork_runs_on_as_its_starter(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, forks: tuple[int, ...]
) -> None:
    process = FakeProcess(*forks)
    monkeypatch.setattr(client, "os", process)
    with pytest.raises(ExecutedError):
        start_daemon(paths)
    assert process.calls[-1] == ("_exit", 1)
    if process.of("execv"):
        assert process.of("execv")[0][1][-1] == DRIVERS_NVML
