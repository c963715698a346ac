"""More of a GPU's memory is given out than it has, where the node's label says so."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fakes.node import A_GPU, NODE, OTHER_GPU, Cluster, Running, claim_reference
from fakes.node import write_daemon_status as answer
from kubeshare.api.types.constants import LABEL_MEMORY_OVERSUBSCRIPTION
from kubeshare.api.types.v1 import GPUNODES, VGPUS
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import MICROS
from kubeshare.kube.resources import EVENTS, NODES
from kubeshare.node.agent import Agent
from kubeshare.node.gpus.oversubscription import parse_factor
from kubeshare.node.paths import NodePaths
from kubeshare.simulator.control import FakeApiServer, until

PHYSICAL = A_GPU.memory_bytes
CLAIM = claim_reference("a")


def label(server: FakeApiServer, text: str) -> None:
    def write(node: dict[str, Any]) -> None:
        node["metadata"]["labels"] = {LABEL_MEMORY_OVERSUBSCRIPTION: text} if text else {}

    server.change(NODES, NODE, "", write)


def run(running: Running, act: Callable[[Agent], Awaitable[None]], factor: int) -> None:
    """Act once the agent has read the label and published the GPUs."""

    async def main() -> None:
        async with running() as agent:
            await until(lambda: agent.oversubscription.micros() == factor)
            await agent.inventory.refresh()
            await act(agent)
            await agent.events.flush()

    asyncio.run(main())


async def nothing(_: Agent) -> None:
    pass


async def reconcile(agent: Agent) -> None:
    await agent.reconciler.reconcile_vgpu("red")


def memory(server: FakeApiServer) -> tuple[int, int]:
    """What may be given out of the vGPU, and what its GPU has."""
    stored = server.stored(VGPUS, "red")
    assert stored is not None
    return stored["spec"]["memoryBytes"], stored["spec"].get("physicalMemoryBytes", 0)


def devices(server: FakeApiServer) -> list[tuple[int, int]]:
    stored = server.stored(GPUNODES, NODE)
    assert stored is not None
    return [
        (gpu["memoryBytes"], gpu.get("physicalMemoryBytes", 0)) for gpu in stored["spec"]["devices"]
    ]


@pytest.mark.parametrize(
    ("text", "micros"), [("", MICROS), ("1", MICROS), ("1.5", 1_500_000), ("4", 4 * MICROS)]
)
def test_the_label_is_a_factor(text: str, micros: int) -> None:
    assert parse_factor(text) == micros


@pytest.mark.parametrize("text", ["0.99", "4.01", "-2", "true", "1,5", "nan"])
def test_any_other_label_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(InvalidValueError, match=LABEL_MEMORY_OVERSUBSCRIPTION):
        parse_factor(text)


def test_the_gpunode_has_what_may_be_given_out_beside_what_there_is(
    server: FakeApiServer, agent: Running
) -> None:
    label(server, "1.5")
    run(agent, nothing, 1_500_000)
    assert devices(server) == [
        (PHYSICAL * 3 // 2, PHYSICAL),
        (OTHER_GPU.memory_bytes * 3 // 2, OTHER_GPU.memory_bytes),
    ]
    label(server, "")
    run(agent, nothing, MICROS)
    assert devices(server) == [(PHYSICAL, 0), (OTHER_GPU.memory_bytes, 0)]


def test_a_label_that_is_no_factor_gives_out_no_more_and_is_reported(
    server: FakeApiServer, agent: Running
) -> None:
    label(server, "lots")

    async def act(agent: Agent) -> None:
        await agent.events.flush()
        await until(lambda: bool(server.all(EVENTS)))

    run(agent, act, MICROS)
    assert devices(server)[0] == (PHYSICAL, 0)
    (event,) = server.all(EVENTS)
    assert event["reason"] == "InvalidLabel"
    assert "lots" in event["note"]


def test_a_vgpu_without_holders_follows_the_label(
    server: FakeApiServer, cluster: Cluster, agent: Running
) -> None:
    cluster.add_vgpu("red")
    label(server, "1.25")
    run(agent, reconcile, 1_250_000)
    assert memory(server) == (PHYSICAL * 5 // 4, PHYSICAL)
    label(server, "")
    run(agent, reconcile, MICROS)
    assert memory(server) == (PHYSICAL, 0)
    before = server.stored(VGPUS, "red")
    run(agent, reconcile, MICROS)
    assert server.stored(VGPUS, "red") == before


def test_a_vgpu_gives_out_no_more_once_a_rollback_dropped_what_its_gpu_has(
    server: FakeApiServer, cluster: Cluster, agent: Running
) -> None:
    cluster.add_vgpu("red")

    def roll_back(vgpu: dict[str, Any]) -> None:
        vgpu["spec"]["memoryBytes"] = 2 * PHYSICAL
        vgpu["spec"].pop("physicalMemoryBytes", None)

    server.change(VGPUS, "red", "", roll_back)
    run(agent, reconcile, MICROS)
    assert memory(server) == (PHYSICAL, 0)


def test_a_vgpu_keeps_its_memory_as_long_as_it_has_holders(
    server: FakeApiServer, cluster: Cluster, agent: Running
) -> None:
    cluster.add_pod("a")
    cluster.add_vgpu("red", cluster.holder("a"))
    label(server, "2")
    run(agent, reconcile, 2 * MICROS)
    assert memory(server) == (PHYSICAL, 0)


@pytest.mark.parametrize("given_out", [PHYSICAL, 2 * PHYSICAL])
def test_a_grant_never_has_more_than_its_vgpu_says(
    server: FakeApiServer, cluster: Cluster, agent: Running, paths: NodePaths, given_out: int
) -> None:
    """Whatever the label says meanwhile."""
    cluster.add_pod("a")
    cluster.add_vgpu("red", cluster.holder("a"))

    def oversubscribe(vgpu: dict[str, Any]) -> None:
        vgpu["spec"] |= {"memoryBytes": given_out, "physicalMemoryBytes": PHYSICAL}

    if given_out > PHYSICAL:
        server.change(VGPUS, "red", "", oversubscribe)
    label(server, "3")
    answer(paths, CLAIM.uid, "ACTIVE")

    async def prepare(agent: Agent) -> None:
        await agent.prepare(CLAIM)

    run(agent, prepare, 3 * MICROS)
    grant = json.loads((paths.run_folder / "grants" / f"{CLAIM.uid}.json").read_text())
    (share,) = grant["gpus"]
    assert share["memoryTotalBytes"] == given_out
    assert share.get("physicalMemoryBytes", given_out) == PHYSICAL
