"""Sessions take turns with the token, over real sockets; in virtual time, but for one test."""

import math
import os
import time

import pytest

from deadlines import DEADLINE_S
from kubeshare.core.token.entitlement import SHORTEST_GRANT_NS
from kubeshare.tokens.wire.protocol import GateState, MessageType
from tokens.helpers import (
    GI,
    GPU_A,
    GPU_B,
    Client,
    RunningDaemon,
    grant,
    saturating,
)
from tokens.virtual_time import VirtualDaemon

MS = 1_000_000


def test_a_lone_client_gets_the_token_and_keeps_it(virtual: VirtualDaemon) -> None:
    virtual.grant(grant("a", quota_ns=5 * MS))
    client = virtual.client("a")
    client.open()
    lease, epoch = client.page.cell()[2], client.page.epoch

    virtual.advance()

    assert (client.page.cell()[2], client.page.epoch) == (lease + 5 * MS, epoch)


def test_a_lone_claim_runs_up_to_its_limit_while_alone(virtual: VirtualDaemon) -> None:
    """The limit is 0 here, so it runs only while no other grant of the GPU is active."""
    virtual.grant(grant("a", 0, 0, limit_alone=1, quota_ns=5 * MS))
    client = virtual.client("a")
    client.open()
    virtual.grant(grant("elsewhere", gpus=(GPU_B,)))
    assert virtual.grant(grant("refused", 0, memory=16 * GI)).state == "REFUSED"
    lease = client.page.cell()[2]
    for _ in range(4):
        virtual.advance()
    assert client.page.cell()[2] == lease + 4 * 5 * MS, "the lease is extended"

    virtual.grant(grant("idle"))
    client.drain()
    client.want()
    assert virtual.view("a")["state"] == "held back", "the limit binds"

    virtual.revoke("idle")
    assert client.page.gate is GateState.OPEN, "it is alone again"


def test_the_page_says_how_much_of_the_gpu_a_claim_used(virtual: VirtualDaemon) -> None:
    for name, request in (("a", 0.3), ("b", 0.6), ("idle", 0)):
        virtual.grant(grant(name, request, request))
    a, b, idle = (virtual.client(name) for name in ("a", "b", "idle"))
    virtual.saturate([a, b], 20_000 * MS, MS)

    for client, share in ((a, 0.3), (b, 0.6)):
        at_ns, used_micros = client.page.used()
        assert used_micros / 1e6 == pytest.approx(share, abs=0.05)
        assert virtual.now - 1000 * MS < at_ns <= virtual.now
    assert idle.page.used() == (0, 0)


def test_the_use_on_the_page_goes_on_from_when_the_gate_opened(virtual: VirtualDaemon) -> None:
    for name in ("a", "b"):
        virtual.grant(grant(name))
    a, b = virtual.client("a"), virtual.client("b")
    a.open()
    b.want()
    virtual.until(lambda: a.page.gate is GateState.CLOSING, "the lease ends")
    a.drain()
    before = a.page.used()[1]
    virtual.elapse(2_000 * MS)
    b.close()
    assert a.page.used() == (virtual.now - 2_000 * MS, before)

    a.open()

    at_ns, used_micros = a.page.used()
    assert at_ns == virtual.now
    assert used_micros == pytest.approx(before * math.exp(-1), abs=2)


@pytest.mark.parametrize("alone_for", [1, 7, 40])
@pytest.mark.parametrize("quota", [5 * MS, 30 * MS])
def test_the_limit_is_in_force_a_quota_after_another_comes(
    virtual: VirtualDaemon, quota: int, alone_for: int
) -> None:
    """Whatever moment of its lease the other comes at, and though the other stays idle."""
    virtual.grant(grant("a", 0.3, 0.3, limit_alone=1, quota_ns=quota))
    client = virtual.client("a")
    client.open()
    for _ in range(alone_for):
        virtual.advance()
    virtual.now += 2 * MS
    came = virtual.now

    virtual.grant(grant("b"))
    virtual.until(lambda: client.page.gate is GateState.CLOSING, "its turn to end")

    assert virtual.now - came <= quota + SHORTEST_GRANT_NS
    client.drain()
    client.want()
    assert virtual.view("a")["state"] == "held back"


def test_a_changed_limit_while_alone_holds_at_once(virtual: VirtualDaemon) -> None:
    virtual.grant(grant("a", 0, 0))
    client = virtual.client("a")
    client.want()
    assert virtual.view("a")["state"] == "held back", "the limit binds"

    virtual.grant(grant("a", 0, 0, limit_alone=1))

    assert client.page.gate is GateState.OPEN, "it may run"
    view = virtual.view("a")
    assert (view["limitMicros"], view["limitAloneMicros"]) == (0, 1_000_000)


def test_two_clients_take_turns(virtual: VirtualDaemon) -> None:
    virtual.grant(grant("a", quota_ns=10 * MS))
    virtual.grant(grant("b", quota_ns=10 * MS))
    first, second = virtual.client("a"), virtual.client("b")

    first.open()
    second.want()
    first.drain()

    assert second.page.gate is GateState.OPEN
    assert first.page.gate is GateState.CLOSED


@pytest.mark.slow
def test_gates_of_one_gpu_are_never_open_together(daemon: RunningDaemon) -> None:
    clients = []
    for name in "abc":
        daemon.grant(grant(name, quota_ns=5 * MS))
        clients.append(Client(daemon.paths, name))
    turns, looked = [client.page.epoch for client in clients], 0

    with saturating(clients[0]), saturating(clients[1]), saturating(clients[2]):
        deadline = time.monotonic() + DEADLINE_S
        while not looked or min(c.page.epoch - e for c, e in zip(clients, turns, strict=True)) < 15:
            assert time.monotonic() < deadline
            epochs = [client.page.epoch for client in clients]
            gates = [client.page.gate for client in clients]
            again = [client.page.gate for client in clients]
            # Only then was each as it was read from the first look at any to the last.
            if gates == again and epochs == [client.page.epoch for client in clients]:
                assert len(clients) - gates.count(GateState.CLOSED) <= 1, "two gates stand open"
                looked += 1


def test_gpus_are_independent(virtual: VirtualDaemon) -> None:
    virtual.grant(grant("a", gpus=(GPU_A,)))
    virtual.grant(grant("b", gpus=(GPU_B,)))
    first, second = virtual.client("a"), virtual.client("b")

    first.open()
    second.want()

    assert second.page.gate is GateState.OPEN
    assert first.page.gate is GateState.OPEN


def test_an_idle_holder_gives_way_at_once(virtual: VirtualDaemon) -> None:
    virtual.grant(grant("a"))
    virtual.grant(grant("b"))
    first, second = virtual.client("a"), virtual.client("b")
    began = virtual.now
    first.open()
    second.want()
    watch = first.receive_until(MessageType.WATCH)

    first.send(MessageType.IDLE, epoch=watch.epoch, time_ns=virtual.now)
    first.drain()

    assert second.page.gate is GateState.OPEN
    assert virtual.now == began


def test_a_claim_is_idle_only_when_all_its_processes_are(virtual: VirtualDaemon) -> None:
    virtual.grant(grant("a"))
    virtual.grant(grant("b"))
    processes = [virtual.client("a") for _ in range(2)]
    began = virtual.now
    processes[0].open()
    epoch = processes[0].page.epoch
    for process in processes:
        process.receive_until(MessageType.WATCH)

    processes[0].send(MessageType.IDLE, epoch=epoch)
    assert virtual.view("a")["state"] == "open"
    processes[1].send(MessageType.IDLE, epoch=epoch)

    for process in processes:
        process.drain()
    assert processes[0].page.gate is GateState.CLOSED
    assert virtual.now == began


def test_all_processes_of_a_claim_have_to_drain(virtual: VirtualDaemon) -> None:
    virtual.grant(grant("a", quota_ns=10 * MS))
    virtual.grant(grant("b"))
    processes = [virtual.client("a") for _ in range(2)]
    other = virtual.client("b")
    processes[0].open()
    other.want()

    processes[0].drain()
    assert processes[0].page.gate is GateState.CLOSING
    processes[1].drain()

    assert other.page.gate is GateState.OPEN


def test_a_holder_that_dies_frees_the_gpu_at_once(virtual: VirtualDaemon) -> None:
    virtual.grant(grant("a"))
    virtual.grant(grant("b"))
    first, second = virtual.client("a"), virtual.client("b")
    began = virtual.now
    first.open()
    second.want()

    first.close()

    assert second.page.gate is GateState.OPEN
    assert virtual.now == began


def test_a_holder_that_hangs_is_bypassed(virtual: VirtualDaemon) -> None:
    virtual.grant(grant("a", quota_ns=5 * MS))
    virtual.grant(grant("b"))
    first, second = virtual.client("a"), virtual.client("b")
    first.open()
    second.want()

    virtual.until(lambda: second.page.gate is GateState.OPEN, "the other's gate is open")

    assert virtual.view("a")["state"] == "hung"
    assert virtual.view("a")["bypasses"] == 1
    assert virtual.hung() == {"a": {GPU_A: [os.getpid()]}}
    charged = virtual.view("a")["chargedNs"]
    virtual.now += 1_000 * MS
    assert virtual.view("a")["chargedNs"] == charged + 1_000 * MS, "by the clock"

    first.drain()

    assert virtual.hung() == {}
    assert virtual.view("a")["chargedNs"] == charged + 1_000 * MS


def test_what_a_process_owes_that_left_is_asked_of_the_next_one(virtual: VirtualDaemon) -> None:
    virtual.grant(grant("a", quota_ns=5 * MS))
    virtual.grant(grant("b"))
    first, second = virtual.client("a"), virtual.client("b")
    first.open()
    second.want()
    first.close()
    assert second.page.gate is GateState.OPEN
    virtual.now += 1_000 * MS
    charged = virtual.view("a")["chargedNs"]
    assert virtual.hung() == {}

    again = virtual.client("a")
    virtual.now += 1_000 * MS

    assert virtual.view("a")["chargedNs"] == charged + 1_000 * MS, "by the clock"
    assert virtual.hung() == {"a": {GPU_A: [os.getpid()]}}
    again.drain(0)
    virtual.now += 1_000 * MS
    assert virtual.view("a")["chargedNs"] - charged == pytest.approx(1_000 * MS, abs=20 * MS)
    assert virtual.hung() == {}


def test_a_process_that_connects_once_the_work_has_been_reported_owes_nothing(
    virtual: VirtualDaemon,
) -> None:
    for name in ("a", "b"):
        virtual.grant(grant(name, quota_ns=5 * MS))
    first, second = virtual.client("a"), virtual.client("b")
    first.open()
    second.want()
    first.drain()
    first.close()

    virtual.client("a")

    assert virtual.view("a")["state"] == "idle"


def test_who_leaves_last_without_draining_is_stood_in_for_by_the_next_process(
    virtual: VirtualDaemon,
) -> None:
    virtual.grant(grant("a", quota_ns=5 * MS))
    virtual.grant(grant("b"))
    first, stays, other = virtual.client("a"), virtual.client("a"), virtual.client("b")
    first.open()
    other.want()
    stays.drain()
    first.receive_until(MessageType.CLOSING)
    first.close()
    assert other.page.gate is GateState.OPEN
    assert virtual.view("a")["state"] == "idle"

    again = virtual.client("a")

    assert virtual.view("a")["state"] == "hung"
    again.drain()
    assert virtual.view("a")["state"] == "idle"


@pytest.mark.parametrize("answers", ["before", "after", "never"])
def test_a_process_that_stands_in_for_one_that_left_is_believed_once_it_has_answered(
    virtual: VirtualDaemon, answers: str
) -> None:
    """Its answer may come when the gate is open already, for a launch of another thread."""
    for name in ("a", "b"):
        virtual.grant(grant(name, quota_ns=5 * MS))
    first, other = virtual.client("a"), virtual.client("b")
    first.open()
    first.close()
    again = virtual.client("a")
    if answers == "before":
        again.drain()
    again.want()
    assert again.page.gate is GateState.OPEN
    if answers == "after":
        again.drain()
    other.want()
    virtual.until(lambda: again.page.gate is GateState.CLOSING, "the lease ends")
    epoch = again.page.epoch
    for _ in range(10):
        virtual.elapse(50 * MS)
        again.send(MessageType.BUSY, epoch=epoch)

    assert virtual.view("a")["state"] == ("hung" if answers == "never" else "closing")


def test_those_who_drained_are_believed_though_another_process_left(virtual: VirtualDaemon) -> None:
    for name in ("a", "b"):
        virtual.grant(grant(name, quota_ns=5 * MS))
    leaves, stays, other = virtual.client("a"), virtual.client("a"), virtual.client("b")
    leaves.open()
    other.want()
    stays.drain()
    leaves.close()
    stays.want()
    other.drain()
    assert stays.page.gate is GateState.OPEN
    other.want()
    virtual.until(lambda: stays.page.gate is GateState.CLOSING, "the lease ends")
    for _ in range(10):
        virtual.elapse(50 * MS)
        stays.send(MessageType.BUSY, epoch=stays.page.epoch)

    assert virtual.view("a")["state"] == "closing"


def test_a_holder_whose_work_takes_long_is_waited_for(virtual: VirtualDaemon) -> None:
    virtual.grant(grant("a", quota_ns=5 * MS))
    virtual.grant(grant("b"))
    first, second = virtual.client("a"), virtual.client("b")
    first.open()
    second.want()
    asked = first.receive_until(MessageType.CLOSING)

    for _ in range(20):
        virtual.now += 100 * MS
        first.send(MessageType.BUSY, epoch=asked.epoch)
        assert virtual.view("a")["state"] == "closing"
    first.send(MessageType.DRAINED, epoch=asked.epoch, time_ns=virtual.now)

    assert second.page.gate is GateState.OPEN
    assert virtual.view("a")["bypasses"] == 0


def test_use_is_charged_to_the_end_that_the_gpu_had(virtual: VirtualDaemon) -> None:
    virtual.grant(grant("a", quota_ns=20 * MS))
    virtual.grant(grant("b"))
    first, second = virtual.client("a"), virtual.client("b")
    began = virtual.now
    first.open()
    second.want()
    virtual.advance()

    virtual.now += 3 * MS
    first.drain(time_ns=virtual.now - 2 * MS)

    assert second.page.gate is GateState.OPEN
    assert virtual.now - began == 23 * MS
    assert virtual.view("a")["chargedNs"] == 21 * MS


def test_shares_of_saturating_clients_follow_their_requests(virtual: VirtualDaemon) -> None:
    requests = {"a": 0.3, "b": 0.4, "c": 0.3}
    for name, request in requests.items():
        virtual.grant(grant(name, request, quota_ns=10 * MS))
    clients = [virtual.client(name) for name in requests]

    def charged() -> dict[str, int]:
        return {name: virtual.view(name)["chargedNs"] for name in requests}

    virtual.saturate(clients, 500 * MS, drain_ns=MS // 5)
    start, began = charged(), virtual.now
    virtual.saturate(clients, 3000 * MS, drain_ns=MS // 5)
    end, took = charged(), virtual.now - began

    shares = {name: (end[name] - start[name]) / took for name in requests}
    assert shares == pytest.approx(requests, abs=0.005)


def test_answers_to_another_epoch_change_nothing(virtual: VirtualDaemon) -> None:
    virtual.grant(grant("a", quota_ns=10 * MS))
    virtual.grant(grant("b"))
    first, second = virtual.client("a"), virtual.client("b")
    first.open()
    second.want()
    asked = first.receive_until(MessageType.CLOSING)

    first.send(MessageType.DRAINED, epoch=asked.epoch - 1, time_ns=1)
    assert virtual.view("a")["state"] == "closing"
    first.send(MessageType.DRAINED, epoch=asked.epoch, time_ns=1)

    assert second.page.gate is GateState.OPEN


def test_a_holder_stuck_at_its_own_gate_is_let_through_once_more(virtual: VirtualDaemon) -> None:
    virtual.grant(grant("a", quota_ns=5 * MS))
    virtual.grant(grant("b"))
    first, second = virtual.client("a"), virtual.client("b")
    first.open()
    second.want()
    stuck = first.receive_until(MessageType.CLOSING)

    first.want()

    again = first.receive_until(MessageType.CLOSING)
    assert again.epoch == stuck.epoch + 2
    first.send(MessageType.DRAINED, epoch=stuck.epoch, time_ns=virtual.now)
    assert virtual.view("a")["state"] == "closing"
    first.send(MessageType.DRAINED, epoch=again.epoch, time_ns=virtual.now)
    assert second.page.gate is GateState.OPEN
    assert virtual.view("a")["bypasses"] == 0
