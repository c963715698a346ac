"""Sessions take turns with the token, over real sockets."""

import time

import pytest

from kubeshare.core.token import arbiter
from kubeshare.tokens.files.grants import remove_grant
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.wire.protocol import GateState, MessageType
from tokens.helpers import (
    GI,
    GPU_A,
    GPU_B,
    Client,
    RunningDaemon,
    eventually,
    grant,
    saturating,
)
from tokens.virtual_time import virtual_daemon


def test_a_lone_client_gets_the_token_and_keeps_it(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", quota_ns=5_000_000))
    client = Client(daemon.paths, "a")
    client.open()
    lease, epoch = client.page.cell()[2], client.page.epoch

    eventually(lambda: client.page.cell()[2] > lease, "the lease is extended")
    assert client.page.epoch == epoch


def test_a_lone_claim_runs_up_to_its_limit_while_alone(daemon: RunningDaemon) -> None:
    """The limit is 0 here, so it runs only while no other grant of the GPU is active."""
    quota_ns = 5_000_000
    daemon.grant(grant("a", 0, 0, limit_alone=1, quota_ns=quota_ns))
    client = Client(daemon.paths, "a")
    client.open()
    daemon.grant(grant("elsewhere", gpus=(GPU_B,)))
    assert daemon.grant(grant("refused", 0, memory=16 * GI)).state == "REFUSED"
    lease = client.page.cell()[2]
    eventually(lambda: client.page.cell()[2] > lease + 4 * quota_ns, "the lease is extended")

    daemon.grant(grant("idle"))
    client.drain()
    client.want()
    eventually(lambda: daemon.view("a")["state"] == "held back", "the limit binds")

    remove_grant(daemon.paths, "idle")
    eventually(lambda: client.page.gate is GateState.OPEN, "it is alone again")


def test_a_changed_limit_while_alone_holds_at_once(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", 0, 0))
    client = Client(daemon.paths, "a")
    client.want()
    eventually(lambda: daemon.view("a")["state"] == "held back", "the limit binds")

    daemon.grant(grant("a", 0, 0, limit_alone=1))

    eventually(lambda: client.page.gate is GateState.OPEN, "it may run")
    view = daemon.view("a")
    assert (view["limitMicros"], view["limitAloneMicros"]) == (0, 1_000_000)


def test_two_clients_take_turns(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", quota_ns=10_000_000))
    daemon.grant(grant("b", quota_ns=10_000_000))
    first, second = Client(daemon.paths, "a"), Client(daemon.paths, "b")

    first.open()
    second.want()
    first.drain()

    eventually(lambda: second.page.gate is GateState.OPEN, "the other's gate is open")
    assert first.page.gate is GateState.CLOSED


@pytest.mark.slow
def test_gates_of_one_gpu_are_never_open_together(daemon: RunningDaemon) -> None:
    clients = []
    for name in "abc":
        daemon.grant(grant(name, quota_ns=5_000_000))
        clients.append(Client(daemon.paths, name))
    turns, looked = [client.page.epoch for client in clients], 0

    with saturating(clients[0]), saturating(clients[1]), saturating(clients[2]):
        deadline = time.monotonic() + 10
        while min(c.page.epoch - e for c, e in zip(clients, turns, strict=True)) < 15:
            assert time.monotonic() < deadline
            epochs = [client.page.epoch for client in clients]
            gates = [client.page.gate for client in clients]
            again = [client.page.gate for client in clients]
            # Only then was each as it was read from the first look at any to the last.
            if gates == again and epochs == [client.page.epoch for client in clients]:
                assert len(clients) - gates.count(GateState.CLOSED) <= 1, "two gates stand open"
                looked += 1
    assert looked


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
    watch = first.receive_until(MessageType.WATCH)

    first.send(MessageType.IDLE, epoch=watch.epoch, time_ns=time.monotonic_ns())
    first.drain()

    eventually(lambda: second.page.gate is GateState.OPEN, "the other's gate is open", seconds=2)


def test_a_claim_is_idle_only_when_all_its_processes_are(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a"))
    daemon.grant(grant("b"))
    processes = [Client(daemon.paths, "a") for _ in range(2)]
    processes[0].open()
    epoch = processes[0].page.epoch
    for process in processes:
        process.receive_until(MessageType.WATCH)

    processes[0].send(MessageType.IDLE, epoch=epoch)
    eventually(lambda: daemon.view("a")["state"] == "open", "it stays open")
    processes[1].send(MessageType.IDLE, epoch=epoch)

    for process in processes:
        process.drain()
    eventually(lambda: processes[0].page.gate is GateState.CLOSED, "the gate is closed")


@pytest.mark.usefixtures("patience")
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
    asked_at = time.monotonic_ns()
    first.open()
    end = time.monotonic_ns() + 1_000_000
    second.want()

    first.drain(time_ns=end)

    eventually(lambda: second.page.gate is GateState.OPEN, "the other's gate is open")
    # What it says of longer ago is not believed.
    believed = max(end, time.monotonic_ns() - arbiter._LATE_IDLE_REPORT_NS)
    charged = daemon.view("a")["chargedNs"]
    assert isinstance(charged, int)
    assert 1_000_000 <= charged <= believed - asked_at


def test_shares_of_saturating_clients_follow_their_requests(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = {"a": 0.3, "b": 0.4, "c": 0.3}
    window_ns, drain_ns = 3_000_000_000, 200_000
    with virtual_daemon(paths, monkeypatch) as daemon:
        clients = [daemon.client(grant(n, r, quota_ns=10_000_000)) for n, r in requests.items()]
        daemon.saturate(clients, 500_000_000, drain_ns)
        start = daemon.charged_ns()
        daemon.saturate(clients, window_ns, drain_ns)
        end = daemon.charged_ns()

    shares = {name: (end[name] - start[name]) / window_ns for name in requests}
    assert shares == pytest.approx(requests, abs=0.005)


@pytest.mark.usefixtures("patience")
def test_answers_to_another_epoch_change_nothing(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", quota_ns=10_000_000))
    daemon.grant(grant("b"))
    first, second = Client(daemon.paths, "a"), Client(daemon.paths, "b")
    first.open()
    second.want()
    asked = first.receive_until(MessageType.CLOSING)

    first.send(MessageType.DRAINED, epoch=asked.epoch - 1, time_ns=1)
    assert daemon.view("a")["state"] == "closing"
    first.send(MessageType.DRAINED, epoch=asked.epoch, time_ns=1)

    eventually(lambda: second.page.gate is GateState.OPEN, "the other's gate is open")


def test_a_holder_stuck_at_its_own_gate_is_let_through_once_more(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", quota_ns=5_000_000))
    daemon.grant(grant("b"))
    first, second = Client(daemon.paths, "a"), Client(daemon.paths, "b")
    first.open()
    second.want()
    stuck = first.receive_until(MessageType.CLOSING)

    first.want()

    again = first.receive_until(MessageType.CLOSING)
    assert again.epoch == stuck.epoch + 2
    first.send(MessageType.DRAINED, epoch=stuck.epoch, time_ns=time.monotonic_ns())
    assert second.page.gate is GateState.CLOSED
    first.send(MessageType.DRAINED, epoch=again.epoch, time_ns=time.monotonic_ns())
    eventually(lambda: second.page.gate is GateState.OPEN, "the other's gate is open")
    assert daemon.view("a")["bypasses"] == 0
