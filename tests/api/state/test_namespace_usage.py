"""A share is given back if the namespace exceeds its quota with what others wrote meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest

from fakes import manifests
from kubeshare.api.quotas.policy import Quotas
from kubeshare.api.quotas.usage_check import QuotaCheck
from kubeshare.api.state import namespace_usage
from kubeshare.api.state.namespace_usage import NamespaceUsage
from kubeshare.api.state.vgpu_store import StaleDecisionError, VGPUStore
from kubeshare.api.types.v1 import VGPU, VGPUS
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand, Memory
from kubeshare.core.quota.namespace import NamespaceQuota
from kubeshare.core.quota.rows import Place
from kubeshare.core.quota.slots import MAX_SLOTS
from kubeshare.core.units import GI
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.meta import Key
from kubeshare.simulator.control import FakeApiServer, run_virtual

Scenario = Callable[[FakeApiServer, VGPUStore, VGPUStore], Awaitable[None]]

QUOTA = NamespaceQuota(name="gpus", micros=500_000)
WHOLE = NamespaceQuota(name="gpus", micros=1_500_000)


def demand(uid: str, namespace: str = "d", **fields: Any) -> Demand:
    known: dict[str, Any] = {"request_micros": 300_000, "memory": Memory(bytes=1)} | fields
    return Demand(uid=uid, name=uid, namespace=namespace, **known)


def check(quota: NamespaceQuota) -> QuotaCheck:
    return QuotaCheck(
        Quotas(lambda namespace: [quota] if namespace == "d" else []),
        lambda _, model, group: Place("", "", model, group),
    )


def bound(device: str) -> Decision:
    return Decision(outcome="bound", node="n1", devices=(device,), new=(), reasons={})


def with_two_programs(
    scenario: Scenario,
    *,
    watching: bool,
    quota: NamespaceQuota = QUOTA,
    holders: Sequence[dict[str, Any]] = (),
) -> None:
    """Runs a scenario with the vGPUs ``a`` and ``b`` and two stores, whose watches may be late."""

    async def main() -> None:
        server = FakeApiServer()
        for name in "ab":
            server.seed(VGPUS, manifests.vgpu(name, "n1", *holders, memoryBytes=GI))
        stores, tasks = [], []
        for program in ("first", "second"):
            client = server.client()
            reflector: Reflector[VGPU] = Reflector(client, VGPUS.into(VGPU))
            stores.append(VGPUStore(client, reflector, program, check(quota)))
            tasks.append(asyncio.create_task(reflector.run()))
            await reflector.wait_for_sync()
        server.freeze_watches(frozen=not watching)
        await scenario(server, *stores)
        for task in tasks:
            task.cancel()

    run_virtual(main())


@pytest.mark.parametrize("watching", [True, False])
def test_the_later_of_two_writers_gives_its_share_back(*, watching: bool) -> None:
    async def scenario(_: FakeApiServer, first: VGPUStore, second: VGPUStore) -> None:
        await first.reserve(demand("p"), bound("a"), attempt=1)
        with pytest.raises(StaleDecisionError, match="ResourceQuota of namespace d"):
            await second.reserve(demand("q"), bound("b"), attempt=1)
        assert [vgpu.metadata.name for vgpu in first.held_by("p")] == ["a"]
        assert second.held_by("q") == []

    with_two_programs(scenario, watching=watching)


def test_a_late_watch_is_waited_for_only_in_a_namespace_with_a_quota() -> None:
    async def scenario(_: FakeApiServer, first: VGPUStore, second: VGPUStore) -> None:
        now = asyncio.get_running_loop().time
        start = now()
        await first.reserve(demand("p", namespace="free"), bound("a"), attempt=1)
        assert now() - start < namespace_usage.WATCH_SECONDS
        await second.reserve(demand("q"), bound("b"), attempt=1)
        assert now() - start >= namespace_usage.WATCH_SECONDS
        assert second.held_by("q")

    with_two_programs(scenario, watching=False)


@pytest.mark.parametrize("watching", [True, False])
def test_of_two_that_each_keep_a_gpu_for_little_the_later_gives_it_back(*, watching: bool) -> None:
    async def scenario(_: FakeApiServer, first: VGPUStore, second: VGPUStore) -> None:
        little: dict[str, Any] = {"request_micros": 20_000, "exclusion": "mine"}
        await first.reserve(demand("p", **little), bound("a"), attempt=1)
        with pytest.raises(StaleDecisionError, match="ResourceQuota of namespace d"):
            await second.reserve(demand("q", **little), bound("b"), attempt=1)
        assert second.held_by("q") == []
        await second.refresh("a")
        await second.reserve(demand("mate", **little), bound("a"), attempt=1)
        assert second.held_by("mate"), "beside its mate it costs nothing more"

    with_two_programs(scenario, watching=watching, quota=WHOLE)


def test_two_programs_do_not_take_the_last_slot_of_a_namespace_both() -> None:
    victim = manifests.holder("v", namespace="victim")
    own = [manifests.holder(f"d{number}", namespace="d") for number in range(MAX_SLOTS - 1)]

    async def scenario(_: FakeApiServer, first: VGPUStore, second: VGPUStore) -> None:
        nothing: dict[str, Any] = {"request_micros": 0}
        await first.reserve(demand("p", "d", **nothing), bound("a"), attempt=1)
        with pytest.raises(StaleDecisionError):
            await second.reserve(demand("q", "d", **nothing), bound("a"), attempt=1)
        [vgpu] = second.held_by("p")
        assert len(vgpu.status.holders) == MAX_SLOTS + 1, "it has read what the other has written"

    free = NamespaceQuota(name="none")
    with_two_programs(scenario, watching=False, quota=free, holders=[victim, *own])


def stored(name: str, version: int, namespace: str = "d", holders: int = 1) -> VGPU:
    own = [manifests.holder(f"{name}-{number}", namespace=namespace) for number in range(holders)]
    made = manifests.vgpu(name, "n1", *own, memoryBytes=GI)
    made["metadata"] |= {"uid": f"{name}-{version}", "resourceVersion": str(version)}
    return msgspec.convert(made, VGPU)


def test_what_changes_while_it_is_counted_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespace_usage, "VGPUS_AT_ONCE", 1)

    async def main() -> None:
        client = FakeApiServer().client()
        reflector: Reflector[VGPU] = Reflector(client, VGPUS.into(VGPU))
        store, usage = reflector.store, NamespaceUsage(client, reflector)
        names = [f"v{number:02}" for number in range(40)]
        reflector._notify(store.replace(stored(name, 1, holders=2) for name in names))
        counting = asyncio.create_task(usage.after(stored(names[1], 1), "d"))
        for number, name in enumerate(names):
            await asyncio.sleep(0)
            gone = stored(name, 2, holders=0)
            for changed in [gone] if number % 2 else [gone, stored(name, 3, holders=3)]:
                reflector._notify(store.put(changed))
            if not number % 4:
                reflector._notify(store.remove(Key("", name)))
            assert number or not counting.done()
        await counting
        last = stored(names[1], 2)
        held = await usage.after(last, "d")
        assert sum(held.holders.values()) == 10 * 3
        assert held == await NamespaceUsage(client, reflector).after(last, "d")

    run_virtual(main())


def test_a_namespace_that_nobody_asks_for_is_forgotten() -> None:
    async def main() -> None:
        client = FakeApiServer().client()
        reflector: Reflector[VGPU] = Reflector(client, VGPUS.into(VGPU))
        usage = NamespaceUsage(client, reflector)
        written = stored("v", 1)
        reflector._notify(reflector.store.put(written))
        for number in range(100):
            await usage.after(written, f"namespace-{number}")
            await usage.after(written, "d")
            await asyncio.sleep(namespace_usage.FORGET_SECONDS / 10)
        assert len(usage._counts) <= 12
        reflector._notify(reflector.store.put(stored("v", 2, "namespace-0")))
        assert (await usage.after(stored("v", 2), "namespace-0")).held.micros == 1

    run_virtual(main())
