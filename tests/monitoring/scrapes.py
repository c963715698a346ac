"""What Prometheus scrapes of the real programs, which run in fakes."""

import asyncio
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry, generate_latest

from expectations.scheduling import expect_pending, expect_scheduled
from fakes.cluster import FakeCluster, run_scenario
from fakes.node import A_GPU, NODE, Cluster, FixedGpus
from kubeshare.kube.controller.runtime import Program
from kubeshare.node import run_mount
from kubeshare.node.agent import Agent
from kubeshare.node.library import InstalledLibrary
from kubeshare.node.paths import NodePaths
from kubeshare.simulator.control import FakeApiServer
from kubeshare.tokens import client
from kubeshare.tokens.files.grants import GrantedPod
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.metrics import TokenCollector
from kubeshare.tokens.snapshot import Totals
from tokens.helpers import RunningDaemon, grant

NAMESPACE: Final = "default"
"""Of the pods that share GPUs."""


@cache
def scrapes() -> dict[str, str]:
    """Program, as its label ``app.kubernetes.io/component`` -> the text of its metrics."""
    found = {"node-agent": asyncio.run(_agent()), "token-daemon": _token_daemon()}

    async def placed_and_waiting(cluster: FakeCluster) -> None:
        cluster.elect = True
        cluster.start("scheduler", "devices", "extender")
        cluster.share("a", "0.6")
        await expect_scheduled(cluster, "a")
        cluster.share("large", "0.6")
        await expect_pending(cluster, "large")
        for component, program in (
            ("scheduler", "scheduler"),
            ("device-manager", "devices"),
            ("extender", "extender"),
        ):
            found[component] = cluster.scraped(program)

    run_scenario(placed_and_waiting, n1=1)
    return {component: text.decode() for component, text in found.items()}


async def _agent() -> bytes:
    """Of an agent that has read its GPUs once."""
    server = FakeApiServer()
    Cluster(server)
    library = InstalledLibrary(Path("/lib.so"), Path("/preload"))
    with tempfile.TemporaryDirectory() as root:
        async with server.client() as connected:
            agent = Agent(
                connected, NODE, NodePaths(Path(root)), FixedGpus(), library, in_use=_nobody
            )
            program = Program("kubeshare-node-agent", connected)
            agent.add_to(program)
            run_mount.register(program.registry, is_bounded=True)
            program.register_metrics()
            await agent.inventory.refresh()
            return generate_latest(program.registry)


async def _nobody() -> dict[str, str]:
    return {}


def _token_daemon() -> bytes:
    """Of a daemon with a grant of a pod."""
    pod = GrantedPod(namespace=NAMESPACE, name="a", uid="a-uid")
    asked = msgspec.structs.replace(grant("c", 0.6, gpus=(A_GPU.uuid,)), pod=pod, container="main")
    with tempfile.TemporaryDirectory() as root:
        paths = Paths(Path(root))
        paths.make()
        with RunningDaemon(paths) as daemon:
            daemon.grant(asked)
            entries = client.ask_snapshot(paths)["claims"]
    registry = CollectorRegistry()
    registry.register(TokenCollector(lambda: entries, Totals))
    return generate_latest(registry)
