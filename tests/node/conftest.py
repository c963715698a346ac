"""Fixtures: a cluster with one node, and its agent."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from deadlines import DEADLINE_S
from fakes.cluster.invariants import unsigned
from fakes.node import NODE, Cluster, FixedGpus, Running, gpu_spec_file
from kubeshare.install import manifests
from kubeshare.node.agent import Agent
from kubeshare.node.gpus import pod_resources
from kubeshare.node.library import InstalledLibrary
from kubeshare.node.paths import NodePaths
from kubeshare.simulator.control import Authorizer, FakeApiServer

AGENT = "node-agent"
"""The agent, as a client of the API server."""


@pytest.fixture(autouse=True)
def _long_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet in this process may take long to answer."""
    monkeypatch.setattr(pod_resources, "_TIMEOUT_SECONDS", DEADLINE_S)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder with a short path: the address of a socket in it has room for 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="kubeshare-node-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def loaded_manifests() -> list[dict[str, Any]]:
    """What ``kubeshare install`` creates; loading it takes longer than most tests."""
    return manifests.load(manifests.Options())


@pytest.fixture
def rights(loaded_manifests: list[dict[str, Any]]) -> Authorizer:
    """What ``manifests/rbac`` allows the agent."""
    return Authorizer(loaded_manifests, "kubeshare-node-agent")


@pytest.fixture
def server(rights: Authorizer) -> Iterator[FakeApiServer]:
    """An empty API server, which refuses the agent what it may not."""
    server = FakeApiServer()
    server.authorizers[AGENT] = rights
    yield server
    assert server.refused == [], "see manifests/rbac/node-agent.yaml"
    assert unsigned(server) == []


@pytest.fixture
def cluster(server: FakeApiServer) -> Cluster:
    """A cluster with one node."""
    return Cluster(server)


@pytest.fixture
def paths(tmp_path: Path) -> NodePaths:
    """The folders of a node with two GPUs."""
    paths = NodePaths(tmp_path)
    gpu_spec_file(paths)
    return paths


@pytest.fixture
def gpus() -> FixedGpus:
    """The node's GPUs."""
    return FixedGpus()


@pytest.fixture
def agent(
    server: FakeApiServer,
    cluster: Cluster,
    paths: NodePaths,
    gpus: FixedGpus,
    monkeypatch: pytest.MonkeyPatch,
) -> Running:
    """An agent that knows its node and cluster, without sockets and controllers.

    Each call is another start of it, with what the last one left on disk. Its kubelet says that
    no device plugin offers a GPU, and that no pod uses one.
    """

    async def nobody(*_: object) -> set[str]:
        return set()

    monkeypatch.setattr("kubeshare.node.agent.gpus_of_others", nobody)

    @asynccontextmanager
    async def run() -> AsyncIterator[Agent]:
        library = InstalledLibrary(paths.root / "lib.so", paths.root / "preload")
        async with server.client(AGENT) as client:
            agent = Agent(client, NODE, paths, gpus, library)
            agent.inventory.found = gpus.read()
            gpushare = (agent.gpushare.nodes, agent.gpushare.configmaps)
            reflectors = (agent.view.vgpus, agent.view.pods, agent.dra_gpus.reflector, *gpushare)
            tasks = [asyncio.create_task(reflector.run()) for reflector in reflectors]
            try:
                await agent.view.wait_for_sync()
                await agent.dra_gpus.reflector.wait_for_sync()
                await agent.gpushare.nodes.wait_for_sync()
                yield agent
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    return run
