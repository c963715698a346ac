"""The daemon over real files and sockets, with clients written in Python."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kubeshare.tokens import counters
from kubeshare.tokens.client import ask_snapshot
from kubeshare.tokens.files import (
    Owner,
    Paths,
    process_start_time,
    read_status,
    remove_grant,
    wait_status,
    write_grant,
)
from kubeshare.tokens.wire import (
    MESSAGE,
    PAGE_MAGIC,
    PROCESSES_MAX,
    GateState,
    GrantState,
    MessageType,
)
from tokens.helpers import (
    GI,
    GPU_A,
    GPU_B,
    Client,
    Page,
    RunningDaemon,
    eventually,
    grant,
    saturating,
)


def test_a_grant_becomes_a_folder_that_a_container_can_use(daemon: RunningDaemon) -> None:
    status = daemon.grant(grant("a", 0.3, 0.6))

    folder = daemon.paths.claim("a")
    page = Page(folder / "page")
    assert status.state == "ACTIVE"
    assert page.header[:4] == (PAGE_MAGIC, 1, 128, 1)
    assert page.grant_state is GrantState.ACTIVE
    assert page.cell()[1:7] == (GateState.CLOSED, 0, GI, 16 * GI, 300_000, 600_000)
    assert (folder.stat().st_mode & 0o777, (folder / "page").stat().st_mode & 0o777) == (
        0o755,
        0o644,
    )
    assert (folder / "socket").stat().st_mode & 0o777 == 0o666
    assert daemon.paths.counters("a").stat().st_mode & 0o777 == 0o666


def test_removing_the_grant_ends_it(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a"))
    client = Client(daemon.paths, "a")
    client.open()

    remove_grant(daemon.paths, "a")

    eventually(lambda: client.page.grant_state is GrantState.REVOKED, "the page says so")
    assert client.page.gate is GateState.CLOSED
    eventually(lambda: client.is_dropped, "the connection is closed")
    eventually(lambda: not daemon.paths.claim("a").exists(), "the folder is gone")
    eventually(lambda: read_status(daemon.paths, "a") is None, "the status is gone")


def test_a_lone_client_gets_the_token_and_keeps_it(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", quota_ns=5_000_000))
    client = Client(daemon.paths, "a")
    client.open()
    lease, epoch = client.page.cell()[2], client.page.epoch

    eventually(lambda: client.page.cell()[2] > lease, "the lease is extended")
    assert client.page.epoch == epoch


def test_two_clients_take_turns(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", quota_ns=10_000_000))
    daemon.grant(grant("b", quota_ns=10_000_000))
    first, second = Client(daemon.paths, "a"), Client(daemon.paths, "b")

    first.open()
    second.want()
    first.drain()

    eventually(lambda: second.page.gate is GateState.OPEN, "the other's gate is open")
    assert first.page.gate is GateState.CLOSED


def test_gates_of_one_gpu_are_never_open_together(daemon: RunningDaemon) -> None:
    clients = []
    for name in "abc":
        daemon.grant(grant(name, quota_ns=5_000_000))
        clients.append(Client(daemon.paths, name))
    turns = [client.page.epoch for client in clients]

    with saturating(clients[0]), saturating(clients[1]), saturating(clients[2]):
        deadline = time.monotonic() + 10
        while min(c.page.epoch - e for c, e in zip(clients, turns, strict=True)) < 15:
            assert time.monotonic() < deadline
            # Gates close before another opens, so reading one after another in one
            # direction could only see two open when one opened after it was passed.
            open_now = [c for c in clients if c.page.gate is not GateState.CLOSED]
            again = [c for c in open_now if c.page.gate is not GateState.CLOSED]
            epochs = [c.page.epoch for c in again]
            if len(again) > 1:
                assert epochs != [c.page.epoch for c in again], "two gates stand open"


def test_gpus_are_independent(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", gpus=(GPU_A,)))
    daemon.grant(grant("b", gpus=(GPU_B,)))
    first, second = Client(daemon.paths, "a"), Client(daemon.paths, "b")

    first.open()
    second.open()

    assert first.page.gate is GateState.OPEN


def test_an_idle_holder_gives_way(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a"))
    daemon.grant(grant("b"))
    first, second = Client(daemon.paths, "a"), Client(daemon.paths, "b")
    first.open()
    second.want()
    watch = first.hear_until(MessageType.WATCH)

    first.say(MessageType.IDLE, epoch=watch.epoch, time_ns=time.monotonic_ns())
    first.drain()

    eventually(lambda: second.page.gate is GateState.OPEN, "the other's gate is open", seconds=2)


def test_a_claim_is_idle_only_when_all_its_processes_are(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a"))
    daemon.grant(grant("b"))
    processes = [Client(daemon.paths, "a") for _ in range(2)]
    processes[0].open()
    epoch = processes[0].page.epoch
    for process in processes:
        process.hear_until(MessageType.WATCH)

    processes[0].say(MessageType.IDLE, epoch=epoch)
    eventually(lambda: daemon.view("a")["state"] == "open", "it stays open")
    processes[1].say(MessageType.IDLE, epoch=epoch)

    for process in processes:
        process.drain()
    eventually(lambda: processes[0].page.gate is GateState.CLOSED, "the gate is closed")


def test_all_processes_of_a_claim_have_to_drain(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", quota_ns=10_000_000))
    daemon.grant(grant("b"))
    processes = [Client(daemon.paths, "a") for _ in range(2)]
    other = Client(daemon.paths, "b")
    processes[0].open()
    other.want()

    processes[0].drain()
    assert processes[0].page.gate is GateState.CLOSING
    processes[1].drain()

    eventually(lambda: other.page.gate is GateState.OPEN, "the other's gate is open")


def test_a_holder_that_dies_frees_the_gpu_at_once(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", quota_ns=10_000_000_000))
    daemon.grant(grant("b"))
    first, second = Client(daemon.paths, "a"), Client(daemon.paths, "b")
    first.open()
    second.want()

    first.close()

    eventually(lambda: second.page.gate is GateState.OPEN, "the other's gate is open", seconds=2)


def test_a_holder_that_hangs_is_bypassed(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", quota_ns=5_000_000))
    daemon.grant(grant("b"))
    first, second = Client(daemon.paths, "a"), Client(daemon.paths, "b")
    first.open()
    second.want()

    eventually(lambda: second.page.gate is GateState.OPEN, "the other's gate is open")

    assert daemon.view("a")["state"] == "hung"


def test_use_is_charged_to_the_end_that_the_gpu_had(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", quota_ns=20_000_000))
    daemon.grant(grant("b"))
    first, second = Client(daemon.paths, "a"), Client(daemon.paths, "b")
    first.open()
    opened_by = time.monotonic_ns()
    second.want()

    first.drain(time_ns=opened_by + 1_000_000)

    eventually(lambda: second.page.gate is GateState.OPEN, "the other's gate is open")
    charged = daemon.view("a")["chargedNs"]
    assert isinstance(charged, int)
    assert 1_000_000 <= charged < 20_000_000


@pytest.mark.slow
def test_shares_of_saturating_clients_follow_their_requests(daemon: RunningDaemon) -> None:
    requests = {"a": 0.3, "b": 0.4, "c": 0.3}
    clients = []
    for name, request in requests.items():
        daemon.grant(grant(name, request, quota_ns=10_000_000))
        clients.append(Client(daemon.paths, name))

    def charged() -> dict[str, int]:
        return {e["claim"]: e["chargedNs"] for e in ask_snapshot(daemon.paths)["claims"]}

    with saturating(clients[0]), saturating(clients[1]), saturating(clients[2]):
        eventually(lambda: sum(charged().values()) > 500_000_000, "they have settled")
        start = charged()
        eventually(lambda: sum(charged().values()) - sum(start.values()) > 3e9, "a window")
        end = charged()

    used = {name: end[name] - start[name] for name in requests}
    shares = {name: used[name] / sum(used.values()) for name in requests}
    assert shares == pytest.approx(requests, abs=0.05)


def test_what_does_not_fit_is_refused_with_who_holds_how_much(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", 0.6))

    status = daemon.grant(grant("b", 0.5))

    assert status.state == "REFUSED"
    assert status.reason == (
        f"{GPU_A} has 0.4 of its time left, 0.5 is requested; held by a: 0.6, 1Gi"
    )
    assert Page(daemon.paths.claim("b") / "page").grant_state is GrantState.REFUSED


def test_memory_that_does_not_fit_is_refused(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", memory=10 * GI))

    status = daemon.grant(grant("b", memory=7 * GI))

    assert status.state == "REFUSED"
    assert "has 6Gi of its memory left, 7Gi is asked; held by a: 0.3, 10Gi" in status.reason


def test_exact_fits_fit(daemon: RunningDaemon) -> None:
    states = [
        daemon.grant(grant(str(index), part)).state
        for index, part in enumerate([0.1, 0.1, 0.1, 0.3, 0.3, 0.1])
    ]

    assert states == ["ACTIVE"] * 6


def test_a_refused_grant_is_activated_when_room_comes(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", 0.6))
    daemon.grant(grant("b", 0.5))

    remove_grant(daemon.paths, "a")

    def is_active() -> bool:
        status = read_status(daemon.paths, "b")
        return status is not None and status.state == "ACTIVE"

    eventually(is_active, "the other grant is active")
    Client(daemon.paths, "b").open()


def test_a_process_of_a_refused_claim_is_turned_away(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", 0.6))
    daemon.grant(grant("b", 0.5))

    client = Client(daemon.paths, "b", hello=False)

    assert client.hear().type is MessageType.REFUSED


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "truncated"),
        ('{"version": 2, "claim": "x", "gpus": []}', "version 2"),
        ('{"version": 1, "claim": "y", "gpus": []}', "gpus is empty"),
        ('{"version": 1, "claim": "x", "gpus": [], "colour": "red"}', "colour"),
        ("[" * 100_000, "bytes"),
    ],
)
def test_a_grant_file_that_is_none_is_refused_and_harms_nobody(
    daemon: RunningDaemon, text: str, says: str
) -> None:
    temporary = daemon.paths.root / "x.json"
    temporary.write_text(text)
    temporary.rename(daemon.paths.grants / "x.json")

    status = wait_status(daemon.paths, "x", 10)

    assert status.state == "REFUSED"
    assert says in status.reason
    assert daemon.grant(grant("a")).state == "ACTIVE"


HOSTILE = {
    "nothing": b"",
    "too short": b"x",
    "too long": b"x" * 4096,
    "unknown type": bytes(32),
    "no hello first": bytes.fromhex("01000200") + bytes(28),
    "another version": bytes.fromhex("63000100") + bytes(28),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_protocol_costs_the_sender_its_connection(
    daemon: RunningDaemon, name: str
) -> None:
    daemon.grant(grant("a"))
    good, bad = Client(daemon.paths, "a"), Client(daemon.paths, "a", hello=False)

    bad.socket.send(HOSTILE[name])

    eventually(lambda: bad.is_dropped, "the connection is closed")
    good.open()


messages = st.builds(
    MESSAGE.pack,
    st.just(1),
    st.integers(0, 20),
    st.integers(0, 2),
    st.integers(0, 8),
    st.just(0),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2),
)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.one_of(st.binary(max_size=64), messages), min_size=1, max_size=12))
def test_whatever_one_process_says_others_are_served(
    daemon: RunningDaemon, said: list[bytes]
) -> None:
    if read_status(daemon.paths, "a") is None:
        daemon.grant(grant("a"))
        daemon.grant(grant("b"))
    hostile, good = Client(daemon.paths, "a"), Client(daemon.paths, "b")

    with contextlib.suppress(ConnectionError):
        for data in said:
            hostile.socket.send(data)

    hostile.close()
    good.open()
    good.close()


@pytest.mark.parametrize("kind", [MessageType.HELLO, MessageType.WELCOME, MessageType.CLOSING])
def test_what_is_not_for_a_process_to_say_costs_the_connection(
    daemon: RunningDaemon, kind: MessageType
) -> None:
    daemon.grant(grant("a"))
    client = Client(daemon.paths, "a")

    client.say(kind, value=1)

    eventually(lambda: client.is_dropped, "the connection is closed")


def test_a_flood_of_wants_costs_the_connection(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a"))
    daemon.grant(grant("b"))
    flooding, other = Client(daemon.paths, "a"), Client(daemon.paths, "b")

    def flood() -> None:
        for _ in range(1_000_000):
            flooding.want()

    with pytest.raises(ConnectionError):
        flood()
    flooding.close()
    other.open()


def test_answers_to_another_epoch_change_nothing(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", quota_ns=10_000_000))
    daemon.grant(grant("b"))
    first, second = Client(daemon.paths, "a"), Client(daemon.paths, "b")
    first.open()
    second.want()
    asked = first.hear_until(MessageType.CLOSING)

    first.say(MessageType.DRAINED, epoch=asked.epoch - 1, time_ns=1)
    assert daemon.view("a")["state"] == "closing"
    first.say(MessageType.DRAINED, epoch=asked.epoch, time_ns=1)

    eventually(lambda: second.page.gate is GateState.OPEN, "the other's gate is open")


def test_a_claim_has_a_bounded_number_of_connections(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a"))
    clients = [Client(daemon.paths, "a", hello=False) for _ in range(PROCESSES_MAX)]

    one_more = Client(daemon.paths, "a", hello=False)

    assert one_more.hear().type is MessageType.REFUSED
    for client in clients:
        client.close()


def test_memory_that_processes_say_they_use_is_shown(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a"))
    program = (
        "import fcntl, os, struct, sys\n"
        f"file = os.open({str(daemon.paths.counters('a'))!r}, os.O_RDWR)\n"
        "fcntl.lockf(file, fcntl.LOCK_EX, 1, 64)\n"
        "os.pwrite(file, struct.pack('=II56xQ', 1, 7, 12345), 64)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert daemon.view("a")["memoryUsedBytes"] == 12345
        process.kill()
        process.wait(10)

    assert daemon.view("a")["memoryUsedBytes"] == 0


def test_counters_that_somebody_cut_short_count_as_nothing(tmp_path: Path) -> None:
    counters.make(tmp_path / "counters")
    os.truncate(tmp_path / "counters", 100)

    assert counters.read(tmp_path / "counters")[0] == counters.Use(0, 0)


def test_a_new_daemon_goes_on_with_the_pages_of_the_old_one(paths: Paths) -> None:
    with RunningDaemon(paths) as daemon:
        daemon.grant(grant("a", 0.6))
        daemon.grant(grant("refused", 0.5))
        old = Client(paths, "a")
        old.open()
        epoch = old.page.epoch
    assert old.is_dropped
    assert old.page.grant_state is GrantState.ACTIVE

    with RunningDaemon(paths):
        assert read_status(paths, "a").state == "ACTIVE"  # type: ignore[union-attr]
        assert read_status(paths, "refused").state == "REFUSED"  # type: ignore[union-attr]
        assert old.page.gate is GateState.CLOSED
        assert old.page.epoch > epoch
        back = Client(paths, "a")
        assert back.page.inode == old.page.inode
        back.open()
        eventually(lambda: old.page.gate is GateState.OPEN, "the old mapping sees it")


def test_what_ended_while_no_daemon_ran_is_swept_up(paths: Paths) -> None:
    with RunningDaemon(paths) as daemon:
        daemon.grant(grant("a"))
    remove_grant(paths, "a")

    with RunningDaemon(paths):
        assert not paths.claim("a").exists()
        assert not paths.counters("a").exists()
        assert read_status(paths, "a") is None


def test_the_socket_of_a_dead_daemon_is_replaced(paths: Paths) -> None:
    paths.make()
    write_grant(paths, grant("a"))
    paths.claim("a").mkdir()
    for place in (paths.claim("a") / "socket", paths.control):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
            dead.bind(str(place))

    with RunningDaemon(paths) as daemon:
        client = Client(paths, "a")
        client.open()
        assert daemon.view("a")["state"] == "open"


def start_program(paths: Paths, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kubeshare.tokens", "--run-folder", str(paths.root), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_second_daemon_is_refused_with_a_clear_message(daemon: RunningDaemon) -> None:
    second = start_program(daemon.paths)

    _, errors = second.communicate(timeout=20)
    assert second.returncode == 1
    assert f"pid {os.getpid()} serves {daemon.paths.root} already" in errors
    assert "Traceback" not in errors


def test_sigterm_leaves_the_holders_running(paths: Paths) -> None:
    write_grant(paths, grant("a"))
    with start_program(paths) as program:
        wait_status(paths, "a", 20)
        client = Client(paths, "a")
        client.open()
        program.send_signal(signal.SIGTERM)
        assert program.wait(20) == 0

    assert client.page.grant_state is GrantState.ACTIVE
    assert client.page.gate is GateState.OPEN


def test_a_daemon_without_grants_ends_when_asked_to(paths: Paths) -> None:
    with start_program(paths, "--idle-exit", "0.01") as program:
        assert program.wait(20) == 0


def test_a_daemon_whose_run_folder_is_removed_ends(paths: Paths) -> None:
    write_grant(paths, grant("a"))
    with start_program(paths) as program:
        wait_status(paths, "a", 20)
        shutil.rmtree(paths.root)

        assert program.wait(20) == 0


def owner_of(process: subprocess.Popen[bytes]) -> Owner:
    start_time = process_start_time(process.pid)
    assert start_time is not None
    return Owner(pid=process.pid, start_time=start_time)


def test_a_grant_ends_with_its_owner(daemon: RunningDaemon) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        daemon.grant(grant("a", owner=owner_of(process)))
        process.kill()

        eventually(lambda: not daemon.paths.grant("a").exists(), "the grant is gone")
        eventually(lambda: not daemon.paths.claim("a").exists(), "its folder is gone")


def test_children_that_outlive_the_owner_keep_the_grant_till_the_last_is_gone(
    daemon: RunningDaemon,
) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        daemon.grant(grant("a", owner=owner_of(process)))
        child = Client(daemon.paths, "a")
        process.kill()
        process.wait(10)

    child.open()
    assert daemon.paths.grant("a").exists()
    child.close()
    eventually(lambda: not daemon.paths.claim("a").exists(), "its folder is gone")


def test_a_pid_that_is_another_process_now_is_not_the_owner(daemon: RunningDaemon) -> None:
    stranger = Owner(pid=os.getpid(), start_time=1)

    write_grant(daemon.paths, grant("a", owner=stranger))

    eventually(lambda: not daemon.paths.grant("a").exists(), "the grant is dropped")
