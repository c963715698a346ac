"""Claims of several GPUs: their gates open together. In virtual time."""

import msgspec

from kubeshare.tokens.files.statuses import read_status
from kubeshare.tokens.wire.protocol import CELLS_MAX, GateState, MessageType
from tokens.helpers import GPU_A, GPU_B, grant
from tokens.virtual_time import VirtualClient, VirtualDaemon

BOTH = (GPU_A, GPU_B)
MS = 1_000_000


def gates(client: VirtualClient) -> list[GateState]:
    return [client.page.gate_of(cell) for cell in range(2)]


def drain_both(client: VirtualClient) -> None:
    client.drain()
    client.drain()


def test_one_want_opens_all_gates_that_it_names(virtual: VirtualDaemon) -> None:
    assert virtual.grant(grant("a", gpus=BOTH)).state == "ACTIVE"
    client = virtual.client("a")

    client.want(1, mask=0b11)

    assert gates(client) == [GateState.OPEN] * 2


def test_a_gpu_that_no_process_uses_is_left_to_others(virtual: VirtualDaemon) -> None:
    virtual.grant(grant("a", gpus=BOTH))
    virtual.grant(grant("b", gpus=(GPU_B,)))
    client, other = virtual.client("a"), virtual.client("b")

    client.want()
    other.want()

    assert gates(client) == [GateState.OPEN, GateState.CLOSED]
    assert other.page.gate is GateState.OPEN


def test_what_the_processes_of_a_claim_want_adds_up(virtual: VirtualDaemon) -> None:
    for name in ("idle", "a"):
        virtual.grant(grant(name, gpus=BOTH))
    first, second = virtual.client("a"), virtual.client("a")
    first.want()
    assert gates(first) == [GateState.OPEN, GateState.CLOSED]

    second.want(1, mask=0b10)
    for process in (first, second):
        process.drain()

    assert gates(first) == [GateState.OPEN] * 2


def test_a_gpu_that_a_claim_has_to_itself_is_open_while_it_waits_for_the_other(
    virtual: VirtualDaemon,
) -> None:
    virtual.grant(grant("b", gpus=(GPU_B,)))
    virtual.grant(grant("ab", gpus=BOTH, quota_ns=10 * MS))
    single, both = virtual.client("b"), virtual.client("ab")
    single.open()

    both.want(1, mask=0b11)

    assert gates(both) == [GateState.OPEN, GateState.CLOSED]
    epoch = both.page.epoch
    single.drain()
    assert gates(both) == [GateState.OPEN] * 2
    single.want()
    assert both.receive_until(MessageType.CLOSING).cell == 1
    assert both.page.epoch == epoch, "the GPU of its own has been open all the time"


def test_a_claim_waits_for_all_its_gpus_before_any_gate_opens(virtual: VirtualDaemon) -> None:
    virtual.grant(grant("idle", gpus=(GPU_B,)))
    virtual.grant(grant("a", gpus=(GPU_A,), quota_ns=200 * MS))
    virtual.grant(grant("ab", gpus=BOTH, quota_ns=10 * MS))
    single, both = virtual.client("a"), virtual.client("ab")
    single.open()

    both.want(mask=0b11)
    asked = single.receive_until(MessageType.CLOSING)
    assert gates(both) == [GateState.CLOSED] * 2
    single.send(MessageType.DRAINED, epoch=asked.epoch, time_ns=virtual.now)

    assert gates(both) == [GateState.OPEN] * 2


def test_a_gpu_that_is_drained_first_is_given_on_at_once(virtual: VirtualDaemon) -> None:
    virtual.grant(grant("idle", gpus=(GPU_A,)))
    virtual.grant(grant("ab", gpus=BOTH, quota_ns=10 * MS))
    virtual.grant(grant("b", gpus=(GPU_B,), quota_ns=10 * MS))
    both, single = virtual.client("ab"), virtual.client("b")
    both.want(mask=0b11)
    assert gates(both) == [GateState.OPEN] * 2
    single.want()
    asked = [both.receive_until(MessageType.CLOSING) for _ in range(2)]
    assert [message.cell for message in asked] == [0, 1]

    both.send(MessageType.DRAINED, cell=1, epoch=asked[1].epoch, time_ns=virtual.now)

    assert single.page.gate is GateState.OPEN
    assert gates(both)[0] is GateState.CLOSING


def test_two_claims_of_the_same_gpus_take_turns(virtual: VirtualDaemon) -> None:
    for name in ("a", "b"):
        virtual.grant(grant(name, gpus=BOTH, quota_ns=10 * MS))
    first, second = virtual.client("a"), virtual.client("b")
    first.want(mask=0b11)
    assert gates(first) == [GateState.OPEN] * 2

    second.want(mask=0b11)
    drain_both(first)
    assert gates(second) == [GateState.OPEN] * 2
    assert gates(first) == [GateState.CLOSED] * 2

    first.want(mask=0b11)
    drain_both(second)
    assert gates(first) == [GateState.OPEN] * 2


def test_claims_that_overlap_in_a_circle_are_all_served(virtual: VirtualDaemon) -> None:
    gpu_c = GPU_B[:-1] + "c"
    circle = {"ab": (GPU_A, GPU_B), "bc": (GPU_B, gpu_c), "ca": (gpu_c, GPU_A)}
    for name, gpus in circle.items():
        virtual.grant(grant(name, gpus=gpus, quota_ns=5 * MS))
    clients = [virtual.client(name) for name in circle]
    for client in clients:
        client.want(mask=0b11)
    for _ in range(6):
        holder = next(client for client in clients if gates(client) == [GateState.OPEN] * 2)
        drain_both(holder)
        holder.want(mask=0b11)

    assert min(virtual.view(name)["grants"] for name in circle) >= 1


def test_more_gpus_than_a_page_has_cells_are_refused(virtual: VirtualDaemon) -> None:
    many = tuple(f"GPU-00000000-0000-4000-8000-{number:012x}" for number in range(CELLS_MAX + 1))
    paths = virtual.paths
    document = msgspec.to_builtins(grant("a"))
    document["gpus"] = [{**document["gpus"][0], "uuid": uuid} for uuid in many]
    (paths.root / "a.json").write_bytes(msgspec.json.encode(document))
    (paths.root / "a.json").rename(paths.grant("a"))
    virtual.turn()

    status = read_status(paths, "a")

    assert status is not None
    assert status.state == "REFUSED"
    assert "at most 16" in status.reason
