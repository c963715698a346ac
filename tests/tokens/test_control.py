"""The requests of the daemon's control socket."""

import json
import os
import socket

import pytest

from deadlines import eventually
from kubeshare.tokens.client import (
    RequestRefusedError,
    ask,
    ask_connections,
    ask_hung,
    ask_snapshot,
    set_overhead,
)
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import DaemonMissingError
from kubeshare.tokens.wire.protocol import VERSION, Message, MessageType
from tokens.helpers import GPU_A, GPU_B, Client, Page, RunningDaemon, grant


def test_overhead_that_is_told_stands_in_the_page(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a"))
    page = Page(daemon.paths.claim("a") / "page")
    assert page.cell()[8] == 0

    set_overhead(daemon.paths, "a", GPU_A, 5 * 2**30)

    assert page.cell()[8] == 5 * 2**30


def test_overhead_outlives_the_daemon(paths: Paths) -> None:
    with RunningDaemon(paths) as daemon:
        daemon.grant(grant("a"))
        set_overhead(paths, "a", GPU_A, 7)

    with RunningDaemon(paths):
        assert Page(paths.claim("a") / "page").cell()[8] == 7


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"claim": "b", "uuid": GPU_A, "bytes": 1}, "no claim b"),
        ({"claim": "a", "uuid": GPU_B, "bytes": 1}, f"holds no share of {GPU_B}"),
        ({"claim": "a", "uuid": GPU_A, "bytes": -1}, "bytes -1"),
        ({"claim": "a", "uuid": GPU_A, "bytes": 2**63}, "bytes"),
        ({"claim": "a", "uuid": GPU_A, "bytes": "many"}, "int"),
        ({"claim": "a"}, "uuid"),
    ],
)
def test_overhead_that_makes_no_sense_is_refused_with_the_reason(
    daemon: RunningDaemon, values: dict[str, str | int], says: str
) -> None:
    daemon.grant(grant("a"))

    with pytest.raises(RequestRefusedError, match=says):
        ask(daemon.paths, "overhead", **values)


def test_connected_processes_are_told_by_claim_with_the_pid_that_the_kernel_knows(
    daemon: RunningDaemon,
) -> None:
    daemon.grant(grant("a"))
    daemon.grant(grant("b"))
    silent = Client(daemon.paths, "a", hello=False)
    assert ask_connections(daemon.paths) == {"a": [], "b": []}

    client = Client(daemon.paths, "a")

    assert ask_connections(daemon.paths) == {"a": [os.getpid()], "b": []}
    client.close()
    silent.close()
    eventually(lambda: ask_connections(daemon.paths)["a"] == [], "it is gone")


def test_nobody_has_hung_whose_work_ends(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a"))

    assert ask_hung(daemon.paths) == {}


def test_an_unknown_verbis_answered_with_those_that_there_are(daemon: RunningDaemon) -> None:
    with pytest.raises(RequestRefusedError, match="connections, hung, overhead, snapshot"):
        ask(daemon.paths, "tea")


@pytest.mark.parametrize("text", [b"\xff", b'{"tea": ' + b"[" * 4000], ids=["bytes", "nested"])
def test_a_verbthat_is_no_json_is_answered(daemon: RunningDaemon, text: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(str(daemon.paths.control))
        door.sendall(text + b"\n")
        assert b'"error"' in door.recv(4096)


@pytest.mark.parametrize("verb", ["connections", "tea"])
def test_each_answer_says_its_version(daemon: RunningDaemon, verb: str) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(str(daemon.paths.control))
        door.sendall(json.dumps({"request": verb}).encode() + b"\n")
        assert json.loads(door.recv(4096))["version"] == 1


def test_a_refusal_is_an_answer_and_a_daemon_that_is_not_there_is_none() -> None:
    assert (RequestRefusedError.exit_code, DaemonMissingError.exit_code) == (1, 3)


def test_without_a_daemon_people_are_told_what_to_do(paths: Paths) -> None:
    with pytest.raises(DaemonMissingError, match="kubeshare run"):
        ask_snapshot(paths)


@pytest.mark.parametrize(
    ("oldest", "newest", "used"), [(1, 0, 1), (1, 2, 2), (1, 7, 2)], ids=["old", "same", "newer"]
)
def test_a_library_of_another_age_is_welcomed_with_what_both_speak(
    daemon: RunningDaemon, oldest: int, newest: int, used: int
) -> None:
    daemon.grant(grant("a"))
    client = Client(daemon.paths, "a", hello=False)

    client.socket.send(Message(MessageType.HELLO, epoch=newest, value=oldest).pack())

    assert client.receive() == Message(MessageType.WELCOME, value=used, version=VERSION)


def test_a_library_that_is_too_new_is_refused(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a"))
    client = Client(daemon.paths, "a", hello=False)

    client.socket.send(Message(MessageType.HELLO, epoch=9, value=8).pack())

    assert client.receive().type is MessageType.REFUSED
    eventually(lambda: client.is_dropped, "the connection is closed")
