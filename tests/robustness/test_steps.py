"""No program keeps its event loop for long, whatever the size of the cluster.

The goal is 50 ms of processor time between two awaits, on a machine whose speed is measured around
each scenario. Even then some steps vary by half and more, so what is refused here is what grows
with the cluster: before they yielded, a list of 10 000 vGPUs took 170 ms and its ledger 330 ms, and
both four times as much for 40 000. ``bench/cluster/start.py`` has the larger sizes.
"""

import asyncio
import gc
import json
from collections.abc import Callable
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest
from bench.cpu_time import reference_seconds
from msgspec import structs

from fakes import manifests
from fakes.cluster import FakeCluster, run_scenario
from kubeshare.api.configuration import Configuration
from kubeshare.api.owned_nodes import static_name
from kubeshare.api.state.namespace_usage import NamespaceUsage
from kubeshare.api.types.constants import LABEL_FAMILY, VGPU_RESOURCE
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPU, VGPUS
from kubeshare.core.policies import policy
from kubeshare.device_manager.program import device_manager_program
from kubeshare.dialects.families import GPUSHARE
from kubeshare.dialects.gpushare import GPU_MEMORY
from kubeshare.extender.http.messages import Head
from kubeshare.extender.program import extender_program
from kubeshare.extender.service import PREFIX
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.client.client import Client
from kubeshare.kube.controller.gc_tuning import collections_paused
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.resources import NODES, Raw
from kubeshare.scheduler.program import scheduler_program
from kubeshare.simulator.control import run_virtual, until
from kubeshare.simulator.control.generated_lists import Generated, GeneratedLists
from kubeshare.simulator.control.step_times import GOAL_SECONDS, StepTimes

pytestmark = pytest.mark.serial

BOUND_SECONDS = 3 * GOAL_SECONDS
REFERENCE_SECONDS = 0.012
"""What the reference takes on a quick machine."""
GPUS = 10_000
OF_A_NODE = 8
GIB = 1 << 30
HALF = 500_000


def node(number: int, family: str = "") -> Raw:
    ready = {"type": "Ready", "status": "True"}
    status = {"allocatable": {"nvidia.com/gpu": str(OF_A_NODE)}, "conditions": [ready]}
    labels = {LABEL_FAMILY: family}
    return {"metadata": {"name": f"node-{number}", "labels": labels}, "status": status}


def gpunode(number: int) -> Raw:
    devices = [
        {"uuid": f"GPU-{number}-{index}", "index": index, "model": "V100", "memoryBytes": GIB}
        for index in range(OF_A_NODE)
    ]
    owned = {"type": "Owned", "status": "True", "reason": "Owned"}
    return {
        "metadata": {"name": f"node-{number}"},
        "spec": {"devices": devices},
        "status": {"mode": "owned", "conditions": [owned]},
    }


def vgpu(number: int) -> Raw:
    """A static vGPU with two holders of a half each."""
    on, index = divmod(number, OF_A_NODE)
    uuid = f"GPU-{on}-{index}"
    holders = [
        {
            "demand": f"uid-{number}-{side}",
            "name": f"a-{number}-{side}",
            "namespace": "default",
            "requestMicros": HALF,
            "memoryBytes": 1 << 20,
        }
        for side in "ab"
    ]
    spec = {"nodeName": f"node-{on}", "uuid": uuid, "model": "V100", "pool": "static"}
    return {
        "metadata": {"name": static_name(uuid)},
        "spec": spec | {"memoryBytes": GIB},
        "status": {"phase": "Active", "holders": holders},
    }


def sharepod(number: int) -> Raw:
    gpu = {"request": "0.5", "memory": "1Mi"}
    return manifests.sharepod(f"waits-{number}", gpu, metadata={"namespace": "default"})


def _scheduler(client: Client) -> Program:
    return scheduler_program(client, policy("locality"), instance="test")


def _device_manager(client: Client) -> Program:
    return device_manager_program(
        client, policy("locality"), placeholder_image="pause:1", instance="test"
    )


def slowness() -> float:
    """How many times as long as on a quick machine a piece of work takes now; at least 1.

    It is the longest of a few: of thousands of steps the longest is looked at, too.
    """
    return max(1.0, max(reference_seconds(rounds=5)) / REFERENCE_SECONDS)


@contextmanager
def bounded(server: Any, seconds: float = BOUND_SECONDS) -> Any:
    """Expect that no step inside takes long, but for those of the API server and of the test.

    Args:
        server: the API server.
        seconds: what is long on a quick machine.
    """
    steps = StepTimes()
    steps.exclude(server, "_answer")
    # A program collects nothing of what lives when it starts; here that is also all other tests'.
    gc.collect()
    gc.freeze()
    before = slowness()
    try:
        with steps:
            yield
    finally:
        gc.unfreeze()
    assert steps.count > 0
    longest, times = steps.longest(), max(before, slowness())
    assert not longest or longest[0].seconds < seconds * times, (times, longest)


@pytest.mark.parametrize("program", [_scheduler, _device_manager])
def test_a_start_on_a_large_cluster(program: Callable[[Client], Program]) -> None:
    nodes = GPUS // OF_A_NODE
    server = GeneratedLists(
        {
            NODES: Generated(nodes, node),
            GPUNODES: Generated(nodes, gpunode),
            VGPUS: Generated(GPUS, vgpu),
            SHAREPODS: Generated(5_000, sharepod),
        }
    )

    async def main() -> None:
        built = asyncio.Event()
        started = program(server.client("program"))
        started.add_preparation(_setter(built))
        with bounded(server):
            async with collections_paused(started.wait_for_sync):
                running = asyncio.create_task(started.run())
                await built.wait()
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    run_virtual(main())


def test_an_extender_on_a_large_cluster() -> None:
    """It answers only once ledger and indexes are built, so that no call builds them."""
    nodes = GPUS // OF_A_NODE
    limits = {GPU_MEMORY: "1", VGPU_RESOURCE: "1"}
    pod = manifests.pod("p") | {"metadata": {"name": "p", "namespace": "default"}}
    pod["spec"] = {"containers": [{"name": "c", "resources": {"limits": limits}}]}
    asked = json.dumps({"Pod": pod, "NodeNames": [f"node-{each}" for each in range(nodes)]})
    head = Head("POST", f"{PREFIX}/filter")
    objects = {
        NODES: Generated(nodes, partial(node, family=GPUSHARE.name)),
        GPUNODES: Generated(nodes, gpunode),
        VGPUS: Generated(GPUS, vgpu),
    }
    server = GeneratedLists(objects)

    async def main() -> None:
        extender = extender_program(server.client("program"), instance="test")
        with bounded(server):
            async with collections_paused(extender.program.wait_for_sync):
                running = asyncio.create_task(extender.program.run())
                await until(lambda: not any(extender.program.not_ready()))
            answer = await asyncio.create_task(extender.service.answer(head, asked.encode()))
            await asyncio.sleep(2)
        assert json.loads(answer.body)["NodeNames"] == []
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    run_virtual(main())


def _setter(event: asyncio.Event) -> Callable[[], Any]:
    async def set_event() -> None:
        event.set()

    return set_event


@pytest.mark.parametrize(
    ("size", "fits", "seconds"),
    [
        (160, True, 3 * BOUND_SECONDS),
        (160, False, 3 * BOUND_SECONDS),
        (Configuration().gang_members, False, BOUND_SECONDS),
    ],
)
def test_a_large_gang(size: int, fits: bool, seconds: float) -> None:
    """Its members are placed, or wait because there is room for one less.

    Each event of a member once went through all of them: 0.7 s for those of 160.
    """

    async def main(cluster: FakeCluster) -> None:
        room = size if fits else size - 1
        for number in range(0, room, OF_A_NODE):
            cluster.add_node(f"n{number}", min(OF_A_NODE, room - number))
        cluster.start("scheduler")
        await cluster.quiet(1)
        gang = {"sharedgpu/group_name": "g", "sharedgpu/min_available": str(size)}
        with bounded(cluster.server, seconds):
            for number in range(size):
                cluster.share(f"m-{number}", "1", labels=gang)
            await cluster.quiet(30)
        bound = sum(len(names) for names in cluster.vgpus().values())
        assert bound == (size if fits else 0)

    run_scenario(main)


def test_a_gang_of_thousands_without_a_decision() -> None:
    """The device manager looks at none of its members: at each event, it once read them all."""
    labels = {"sharedgpu/group_name": "g", "sharedgpu/min_available": "2"}

    def member(number: int) -> Raw:
        made = sharepod(number)
        return made | {"metadata": made["metadata"] | {"labels": labels}}

    server = GeneratedLists({SHAREPODS: Generated(2 * GPUS, member)})

    async def main() -> None:
        program = _device_manager(server.client("program"))
        with bounded(server):
            running = asyncio.create_task(program.run())
            await asyncio.sleep(5)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    run_virtual(main())


@pytest.mark.parametrize("watching", [True, False])
def test_counting_what_a_namespace_holds(watching: bool) -> None:
    """At the first question about it, and when its own write is not in the watch in time."""
    holders = [manifests.holder(f"h{number}", namespace="default") for number in range(40)]

    def full(number: int) -> Raw:
        return vgpu(number) | {"status": {"phase": "Active", "holders": holders}}

    server = GeneratedLists({VGPUS: Generated(GPUS, full)})

    async def main() -> None:
        client = server.client("program")
        reflector: Reflector[VGPU] = Reflector(client, VGPUS.into(VGPU))
        usage = NamespaceUsage(client, reflector)
        running = asyncio.create_task(reflector.run())
        await reflector.wait_for_sync()
        [first, *_] = reflector.store.snapshot().values()
        written = first.metadata.resource_version if watching else "2"
        metadata = structs.replace(first.metadata, resource_version=written)
        with bounded(server):
            asked = usage.after(structs.replace(first, metadata=metadata), "default")
            held = (await asyncio.create_task(asked)).holders
        assert sum(held.values()) == GPUS * len(holders)
        running.cancel()

    run_virtual(main())


def test_a_large_gang_that_preempts() -> None:
    """Whom it evicts was once found in one step: 0.5 s for them."""
    size = 56
    marked = {"kubeshare.nthu/preemptible": "true"}
    gang = {
        "sharedgpu/group_name": "g",
        "sharedgpu/min_available": str(size),
        "sharedgpu/priority": "5",
    }

    async def main(cluster: FakeCluster) -> None:
        cluster.configure(preemption=True)
        for number in range(0, size, OF_A_NODE):
            cluster.add_node(f"n{number}", OF_A_NODE)
        cluster.start()
        for number in range(size):
            cluster.share(f"low-{number}", "1", annotations=marked)
        await cluster.quiet(60)
        assert cluster.running(*[f"low-{number}" for number in range(size)])
        with bounded(cluster.server, 2 * BOUND_SECONDS):
            for number in range(size):
                cluster.share(f"m-{number}", "1", labels=gang)
            await cluster.quiet(60)
        assert cluster.running(*[f"m-{number}" for number in range(size)])

    run_scenario(main)
