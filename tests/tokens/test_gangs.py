"""Claims of several GPUs: their gates open together."""

import time

import msgspec
import pytest

from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import wait_status
from kubeshare.tokens.wire.protocol import CELLS_MAX, GateState, MessageType
from tokens.helpers import GPU_A, GPU_B, Client, RunningDaemon, eventually, grant

BOTH = (GPU_A, GPU_B)


def gates(client: Client) -> list[GateState]:
    return [client.page.gate_of(cell) for cell in range(2)]


def drain_both(client: Client) -> None:
    client.drain()
    client.drain()


def test_one_want_opens_all_gates_that_it_names(daemon: RunningDaemon) -> None:
    assert daemon.grant(grant("a", gpus=BOTH)).state == "ACTIVE"
    client = Client(daemon.paths, "a")

    client.want(1, mask=0b11)

    eventually(lambda: gates(client) == [GateState.OPEN] * 2, "both gates are open")


def test_a_gpu_that_no_process_uses_is_left_to_others(daemon: RunningDaemon) -> None:
    daemon.grant(grant("a", gpus=BOTH))
    daemon.grant(grant("b", gpus=(GPU_B,)))
    client, other = Client(daemon.paths, "a"), Client(daemon.paths, "b")

    client.open()
    other.open()

    assert gates(client) == [GateState.OPEN, GateState.CLOSED]


def test_what_the_processes_of_a_claim_want_adds_up(daemon: RunningDaemon) -> None:
    for name in ("idle", "a"):
        daemon.grant(grant(name, gpus=BOTH))
    first, second = Client(daemon.paths, "a"), Client(daemon.paths, "a")
    first.open()

    second.want(1, mask=0b10)
    for process in (first, second):
        process.drain()

    eventually(lambda: gates(first) == [GateState.OPEN] * 2, "both gates are open")


def test_a_gpu_that_a_claim_has_to_itself_is_open_while_it_waits_for_the_other(
    daemon: RunningDaemon,
) -> None:
    daemon.grant(grant("b", gpus=(GPU_B,)))
    daemon.grant(grant("ab", gpus=BOTH, quota_ns=10_000_000))
    single, both = Client(daemon.paths, "b"), Client(daemon.paths, "ab")
    single.open()

    both.want(1, mask=0b11)

    asked = single.receive_until(MessageType.CLOSING)
    assert gates(both) == [GateState.OPEN, GateState.CLOSED]
    epoch = both.page.epoch
    single.send(MessageType.DRAINED, epoch=asked.epoch, time_ns=time.monotonic_ns())
    eventually(lambda: gates(both) == [GateState.OPEN] * 2, "both gates are open")
    single.want()
    assert both.receive_until(MessageType.CLOSING).cell == 1
    assert both.page.epoch == epoch, "the GPU of its own has been open all the time"


@pytest.mark.usefixtures("patience")
def test_a_claim_waits_for_all_its_gpus_before_any_gate_opens(daemon: RunningDaemon) -> None:
    daemon.grant(grant("idle", gpus=(GPU_B,)))
    daemon.grant(grant("a", gpus=(GPU_A,), quota_ns=200_000_000))
    daemon.grant(grant("ab", gpus=BOTH, quota_ns=10_000_000))
    single, both = Client(daemon.paths, "a"), Client(daemon.paths, "ab")
    single.open()

    both.want(mask=0b11)
    asked = single.receive_until(MessageType.CLOSING)
    assert gates(both) == [GateState.CLOSED] * 2
    single.send(MessageType.DRAINED, epoch=asked.epoch, time_ns=time.monotonic_ns())

    eventually(lambda: gates(both) == [GateState.OPEN] * 2, "both gates are open")


@pytest.mark.usefixtures("patience")
def test_a_gpu_that_is_drained_first_is_given_on_at_once(daemon: RunningDaemon) -> None:
    daemon.grant(grant("idle", gpus=(GPU_A,)))
    daemon.grant(grant("ab", gpus=BOTH, quota_ns=10_000_000))
    daemon.grant(grant("b", gpus=(GPU_B,), quota_ns=10_000_000))
    both, single = Client(daemon.paths, "ab"), Client(daemon.paths, "b")
    both.want(mask=0b11)
    eventually(lambda: gates(both) == [GateState.OPEN] * 2, "both gates are open")
    single.want()
    asked = [both.receive_until(MessageType.CLOSING) for _ in range(2)]
    assert [message.cell for message in asked] == [0, 1]

    both.send(MessageType.DRAINED, cell=1, epoch=asked[1].epoch, time_ns=time.monotonic_ns())

    eventually(lambda: single.page.gate is GateState.OPEN, "the single one's gate is open")
    assert gates(both)[0] is GateState.CLOSING


def test_two_claims_of_the_same_gpus_take_turns(daemon: RunningDaemon) -> None:
    for name in ("a", "b"):
        daemon.grant(grant(name, gpus=BOTH, quota_ns=10_000_000))
    first, second = Client(daemon.paths, "a"), Client(daemon.paths, "b")
    first.want(mask=0b11)
    eventually(lambda: gates(first) == [GateState.OPEN] * 2, "the first has both")

    second.want(mask=0b11)
    drain_both(first)
    eventually(lambda: gates(second) == [GateState.OPEN] * 2, "the second has both")
    assert gates(first) == [GateState.CLOSED] * 2

    first.want(mask=0b11)
    drain_both(second)
    eventually(lambda: gates(first) == [GateState.OPEN] * 2, "the first has both again")


def test_claims_that_overlap_in_a_circle_are_all_served(paths: Paths) -> None:
    gpu_c = GPU_B[:-1] + "c"
    circle = {"ab": (GPU_A, GPU_B), "bc": (GPU_B, gpu_c), "ca": (gpu_c, GPU_A)}
    with RunningDaemon(paths) as daemon:
        clients = []
        for name, gpus in circle.items():
            daemon.grant(grant(name, gpus=gpus, quota_ns=5_000_000))
            clients.append(Client(paths, name))
        for client in clients:
            client.want(mask=0b11)
        for turn in range(6):
            holder = eventually(
                lambda: next((c for c in clients if gates(c) == [GateState.OPEN] * 2), None),
                f"somebody is served, turn {turn}",
            )
            drain_both(holder)
            holder.want(mask=0b11)
        served = [daemon.view(name)["grants"] for name in circle]

    assert min(served) >= 1


def test_more_gpus_than_a_page_has_cells_are_refused(daemon: RunningDaemon) -> None:
    many = tuple(f"GPU-00000000-0000-4000-8000-{number:012x}" for number in range(CELLS_MAX + 1))
    paths = daemon.paths
    document = msgspec.to_builtins(grant("a"))
    document["gpus"] = [{**document["gpus"][0], "uuid": uuid} for uuid in many]
    (paths.root / "a.json").write_bytes(msgspec.json.encode(document))
    (paths.root / "a.json").rename(paths.grant("a"))

    status = wait_status(paths, "a", 10)

    assert status.state == "REFUSED"
    assert "at most 16" in status.reason
