"""Pods of one vGPU that start together are assigned in one write."""

import asyncio
from collections.abc import Awaitable, Callable

from fakes import manifests
from kubeshare.api.state.vgpu_store import VGPUStore
from kubeshare.api.types.v1 import VGPU, VGPUS
from kubeshare.device_manager.sharepod.pod_assignment import (
    GATHER_SECONDS_EACH,
    MAX_GATHER_SECONDS,
    PodAssignments,
)
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.client.errors import ApiError
from kubeshare.simulator.control import FakeApiServer, Fault, run_virtual

DEMANDS = ("a", "b", "c", "d")
Scenario = Callable[[FakeApiServer, PodAssignments], Awaitable[None]]


def with_holders(scenario: Scenario) -> None:
    """Runs a scenario about a vGPU of which four SharePods hold parts, and no pod is named."""

    async def main() -> None:
        server = FakeApiServer()
        client = server.client()
        reflector: Reflector[VGPU] = Reflector(client, VGPUS.into(VGPU))
        holders = [manifests.holder(demand, demand, attempt=1) for demand in DEMANDS]
        server.seed(VGPUS, manifests.vgpu("x", "n1", *holders))
        reflector.store.replace((await client.list(VGPUS.into(VGPU))).items)
        pool = VGPUStore(client, reflector, "test")
        await scenario(server, PodAssignments(pool, lambda _, pod: pod != "pod-ended"))

    run_virtual(main())


def named(server: FakeApiServer) -> dict[str, str]:
    vgpu = server.stored(VGPUS, "x")
    assert vgpu is not None
    return {each["demand"]: each["podUid"] for each in vgpu["status"]["holders"]}


def test_those_that_come_at_once_are_written_together_and_wait_for_nobody() -> None:
    async def scenario(server: FakeApiServer, naming: PodAssignments) -> None:
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*(naming.assign("x", each, f"pod-{each}") for each in DEMANDS))
        assert named(server) == {each: f"pod-{each}" for each in DEMANDS}
        assert server.writes == 1
        assert asyncio.get_running_loop().time() - began < GATHER_SECONDS_EACH

    with_holders(scenario)


def test_one_waits_a_moment_for_each_that_may_come_and_is_written_with_those_that_do() -> None:
    async def scenario(server: FakeApiServer, naming: PodAssignments) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        first = asyncio.create_task(naming.assign("x", "a", "pod-a"))
        await asyncio.sleep(2 * GATHER_SECONDS_EACH)
        assert server.writes == 0
        await naming.assign("x", "b", "pod-b")
        await first
        assert named(server) == {"a": "pod-a", "b": "pod-b", "c": "", "d": ""}
        assert server.writes == 1
        assert 3 * GATHER_SECONDS_EACH <= loop.time() - began <= MAX_GATHER_SECONDS

    with_holders(scenario)


def test_one_with_several_gpus_waits_for_nobody() -> None:
    async def scenario(server: FakeApiServer, naming: PodAssignments) -> None:
        began = asyncio.get_running_loop().time()
        await naming.assign("x", "a", "pod-a", gather=False)
        assert named(server)["a"] == "pod-a"
        assert asyncio.get_running_loop().time() - began < GATHER_SECONDS_EACH

    with_holders(scenario)


def test_a_pod_that_has_ended_meanwhile_is_not_named() -> None:
    async def scenario(server: FakeApiServer, naming: PodAssignments) -> None:
        pods = {"a": "pod-a", "b": "pod-ended"}
        await asyncio.gather(*(naming.assign("x", *each) for each in pods.items()))
        assert named(server) == {"a": "pod-a", "b": "", "c": "", "d": ""}

    with_holders(scenario)


def test_when_a_write_fails_each_of_the_others_is_named_all_the_same() -> None:
    async def scenario(server: FakeApiServer, naming: PodAssignments) -> None:
        server.inject(Fault.answer(500), verb="patch")
        outcomes = await asyncio.gather(
            *(naming.assign("x", each, f"pod-{each}") for each in DEMANDS), return_exceptions=True
        )
        assert [isinstance(each, ApiError) for each in outcomes] == [False, False, False, True]
        assert named(server) == {"a": "pod-a", "b": "pod-b", "c": "pod-c", "d": ""}
        await naming.assign("x", "d", "pod-d")
        assert named(server)["d"] == "pod-d"

    with_holders(scenario)


def test_nobody_is_named_who_holds_nothing_or_is_named_already() -> None:
    async def scenario(server: FakeApiServer, naming: PodAssignments) -> None:
        await naming.assign("x", "a", "pod-a")
        await asyncio.gather(naming.assign("x", "a", "pod-z"), naming.assign("x", "gone", "pod-g"))
        assert named(server) == {"a": "pod-a", "b": "", "c": "", "d": ""}
        assert server.writes == 1

    with_holders(scenario)


def test_one_that_gives_up_waiting_is_not_named() -> None:
    async def scenario(server: FakeApiServer, naming: PodAssignments) -> None:
        server.inject(Fault.slow(10), verb="patch")
        tasks = []
        for each in DEMANDS[:3]:
            tasks.append(asyncio.create_task(naming.assign("x", each, f"pod-{each}")))
            await asyncio.sleep(1)
        tasks[1].cancel()
        await asyncio.wait(tasks)
        assert named(server) == {"a": "pod-a", "b": "", "c": "pod-c", "d": ""}

    with_holders(scenario)
