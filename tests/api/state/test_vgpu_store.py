"""The pool of vGPUs: parts are taken all or none, and changed by whoever looked last."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fakes import manifests
from kubeshare.api import holders
from kubeshare.api.holders import holder_of
from kubeshare.api.state.vgpu_store import Reservation, StaleDecisionError, VGPUStore
from kubeshare.api.types.v1 import VGPU, VGPUS
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand, Memory
from kubeshare.core.ledger.device import Device
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.client.errors import ConflictError, UnreachableError
from kubeshare.simulator.control import FakeApiServer, Fault, run_virtual

Raw = dict[str, Any]
Scenario = Callable[[FakeApiServer, VGPUStore], Awaitable[None]]

GIB = 1 << 30
TWO = Demand(
    uid="u", name="p", namespace="d", request_micros=500_000, memory=Memory(bytes=1), count=2
)
ONE = Demand(uid="u", name="p", namespace="d", request_micros=500_000, memory=Memory(bytes=1))


def bound(*devices: str, new: tuple[Device, ...] = ()) -> Decision:
    return Decision(outcome="bound", node="n1", devices=devices, new=new, reasons={})


def with_pool(scenario: Scenario, *names: str) -> None:
    """Runs a scenario with vGPUs of these names, on a server and in a store that watches it."""

    async def main() -> None:
        server = FakeApiServer()
        client = server.client()
        reflector: Reflector[VGPU] = Reflector(client, VGPUS.into(VGPU))
        for name in names:
            server.seed(VGPUS, manifests.vgpu(name, memoryBytes=GIB))
        reflector.store.replace((await client.list(VGPUS.into(VGPU))).items)
        await scenario(server, VGPUStore(client, reflector, "test"))

    run_virtual(main())


def held(server: FakeApiServer, name: str) -> list[Raw]:
    vgpu = server.stored(VGPUS, name)
    assert vgpu is not None
    found: list[Raw] = vgpu.get("status", {}).get("holders", [])
    return found


def touch(server: FakeApiServer, name: str) -> None:
    """Somebody else changes the vGPU."""
    server.change(VGPUS, name, "", lambda vgpu: vgpu["metadata"].update(labels={"seen": "no"}))


def test_several_gpus_are_taken_in_the_order_of_their_ids() -> None:
    async def scenario(server: FakeApiServer, pool: VGPUStore) -> None:
        await pool.reserve(TWO, bound("b", "a"), attempt=1)
        patched = [each.path.name for each in server.requests if each.verb == "patch"]
        assert patched == ["a", "b"]
        assert [vgpu.metadata.name for vgpu in pool.held_by("u")] == ["a", "b"]

    with_pool(scenario, "a", "b")


def reserve_while(pool: VGPUStore, server: FakeApiServer) -> asyncio.Task[None]:
    """Begins to reserve shares of ``a`` and ``b``; the write to ``a`` takes a second."""
    server.inject(Fault.slow(1.0), verb="patch", resource="vgpus/status", name="a")
    return asyncio.create_task(pool.reserve(TWO, bound("a", "b"), attempt=1))


async def write_holders(server: FakeApiServer, pool: VGPUStore, *holders: Raw) -> None:
    """Another program sets the holders of ``b``, and the store learns of it."""
    server.change(VGPUS, "b", "", lambda vgpu: vgpu.update(status={"holders": list(holders)}))
    await pool.refresh("b")


def test_who_comes_while_the_first_of_several_gpus_is_written_makes_it_stale() -> None:
    async def scenario(server: FakeApiServer, pool: VGPUStore) -> None:
        reserving = reserve_while(pool, server)
        await asyncio.sleep(0.5)
        await write_holders(server, pool, manifests.holder("other", exclusion="mine"))
        with pytest.raises(StaleDecisionError, match="vGPU b has other holders"):
            await reserving
        assert held(server, "a") == []
        assert [each["demand"] for each in held(server, "b")] == ["other"]

    with_pool(scenario, "a", "b")


def test_who_leaves_while_the_first_of_several_gpus_is_written_changes_nothing() -> None:
    async def scenario(server: FakeApiServer, pool: VGPUStore) -> None:
        await write_holders(server, pool, manifests.holder("other"))
        reserving = reserve_while(pool, server)
        await asyncio.sleep(0.5)
        await write_holders(server, pool)
        await reserving
        assert [vgpu.metadata.name for vgpu in pool.held_by("u")] == ["a", "b"]

    with_pool(scenario, "a", "b")


def test_of_several_gpus_all_are_taken_or_none() -> None:
    async def scenario(server: FakeApiServer, pool: VGPUStore) -> None:
        touch(server, "b")
        with pytest.raises(StaleDecisionError):
            await pool.reserve(TWO, bound("a", "b"), attempt=1)
        assert held(server, "a") == held(server, "b") == []
        await pool.reserve(TWO, bound("a", "b"), attempt=1)
        assert len(held(server, "a")) == len(held(server, "b")) == 1

    with_pool(scenario, "a", "b")


OTHERS = tuple(
    Demand(uid=uid, name=uid, namespace="d", request_micros=200_000, memory=Memory(bytes=1))
    for uid in ("v", "w")
)


def test_the_holders_of_several_demands_come_and_go_in_one_write_a_vgpu() -> None:
    async def scenario(server: FakeApiServer, pool: VGPUStore) -> None:
        decisions = ((TWO, bound("a", "b")), *((each, bound("a")) for each in OTHERS))
        reservations = [Reservation(demand, decision, 1) for demand, decision in decisions]
        touch(server, "b")
        with pytest.raises(StaleDecisionError):
            await pool.reserve_all(reservations)
        assert held(server, "a") == held(server, "b") == []
        touched = server.writes
        await pool.reserve_all(reservations)
        assert [each["demand"] for each in held(server, "a")] == ["u", "v", "w"]
        assert [each["demand"] for each in held(server, "b")] == ["u"]
        assert server.writes == touched + 2

    with_pool(scenario, "a", "b")


def test_a_part_whose_pod_was_bound_is_not_given_back_here() -> None:
    async def scenario(server: FakeApiServer, pool: VGPUStore) -> None:
        await pool.reserve(ONE, bound("a"), attempt=1)
        await pool.update("a", lambda vgpu: holders.set_pod_uid(vgpu, "u", "pod"))
        vgpu = await pool.release("a", "u")
        assert vgpu is not None
        assert holder_of(vgpu, "u")
        assert held(server, "a")

    with_pool(scenario, "a")


def test_a_change_is_made_on_the_state_that_is_there() -> None:
    async def scenario(server: FakeApiServer, pool: VGPUStore) -> None:
        touch(server, "a")
        changed = await pool.update("a", lambda vgpu: holders.set_phase(vgpu, "Active"))
        assert changed is not None
        assert changed.status.phase == "Active"

    with_pool(scenario, "a")


def test_a_change_that_others_always_outrun_is_given_up() -> None:
    async def scenario(server: FakeApiServer, pool: VGPUStore) -> None:
        server.inject(Fault.answer(409, "Conflict"), verb="patch", times=99)
        with pytest.raises(ConflictError):
            await pool.update("a", lambda vgpu: holders.set_phase(vgpu, "Active"))

    with_pool(scenario, "a")


def test_a_vgpu_that_is_gone_is_not_changed() -> None:
    async def scenario(server: FakeApiServer, pool: VGPUStore) -> None:
        server.remove(VGPUS, "a")
        assert await pool.update("a", lambda vgpu: holders.set_phase(vgpu, "Active")) is None

    with_pool(scenario, "a")


def test_a_creation_whose_answer_was_lost_is_found_before_the_next_decision() -> None:
    async def scenario(server: FakeApiServer, pool: VGPUStore) -> None:
        server.inject(Fault.reset(after=True), verb="create")
        new = Device(id="a", node="n1", memory_bytes=GIB)
        with pytest.raises(UnreachableError):
            await pool.reserve(ONE, bound("a", new=(new,)), attempt=1)
        assert pool.get("a") is None
        await pool.settle()
        assert pool.get("a") is not None

    with_pool(scenario)


def test_a_read_that_was_too_early_for_a_creation_hides_nothing() -> None:
    """Its answer comes after the creation's, and after the watch has delivered the vGPU."""

    async def main() -> None:
        server = FakeApiServer()
        client = server.client()
        reflector: Reflector[VGPU] = Reflector(client, VGPUS.into(VGPU))
        pool = VGPUStore(client, reflector, "test")
        running = asyncio.ensure_future(reflector.run())
        await reflector.wait_for_sync()
        server.inject(Fault.slow(2), verb="create")
        server.inject(Fault.slow(5, after=True), verb="get")
        new = Device(id="a", node="n1", memory_bytes=GIB)
        creation = asyncio.ensure_future(pool.create(new, "reserved"))
        await asyncio.sleep(1)
        await pool.settle()
        await creation
        assert pool.get("a") is not None
        assert [vgpu.metadata.name for vgpu in pool.on_node("n1")] == ["a"]
        running.cancel()

    run_virtual(main())


def test_a_creation_that_another_settles_too_early_is_settled_again() -> None:
    async def scenario(server: FakeApiServer, pool: VGPUStore) -> None:
        server.inject(Fault.late(2), verb="create")
        new = Device(id="a", node="n1", memory_bytes=GIB)
        creation = asyncio.ensure_future(pool.create(new, "reserved"))
        await asyncio.sleep(1)
        await pool.settle()
        with pytest.raises(UnreachableError):
            await creation
        assert pool.get("a") is None
        await pool.settle()
        assert pool.get("a") is not None

    with_pool(scenario)


def test_a_new_vgpu_whose_id_is_there_already_is_looked_at_first() -> None:
    async def scenario(server: FakeApiServer, pool: VGPUStore) -> None:
        server.seed(VGPUS, manifests.vgpu("a", "n2", memoryBytes=GIB))
        new = Device(id="a", node="n1", memory_bytes=GIB)
        with pytest.raises(StaleDecisionError):
            await pool.reserve(ONE, bound("a", new=(new,)), attempt=1)
        vgpu = pool.get("a")
        assert vgpu is not None
        assert vgpu.spec.node_name == "n2"

    with_pool(scenario)
