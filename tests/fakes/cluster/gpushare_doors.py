"""Places pods of gpushare through either door: by KubeShare's scheduler, or by the extender."""

from typing import Any

from expectations.pods import expect_running, expect_ungated
from fakes.cluster import extender
from fakes.cluster.cluster import FakeCluster
from fakes.cluster.gpushare import gated_pod
from kubeshare.kube.resources import NODES


async def begin(cluster: FakeCluster, door: str, units: int = 64) -> None:
    """All programs run, the agents too where there are any, and each node is gpushare's.

    Args:
        cluster: the cluster.
        door: through which pods are placed.
        units: the memory that each kubelet offers.
    """
    cluster.configure(gpushare={"door": door})
    cluster.deadline = 600.0
    cluster.start("scheduler", *(f"agent/{name}" for name in cluster.machines))
    await extender.start(cluster)
    for node in cluster.server.all(NODES):
        extender.offer(cluster, node["metadata"]["name"], units)
    await cluster.quiet(1)


async def create(cluster: FakeCluster, door: str, name: str, units: int, **metadata: Any) -> None:
    """Creates a pod as the admission policy leaves it; with the extender, calls it once."""
    if door == "manifests":
        gated_pod(cluster, name, str(units), **metadata)
        return
    extender.pod(cluster, name, units, gated=True, **metadata)
    await expect_ungated(cluster, name)
    await cluster.quiet(1)
    await retry(cluster, door, name)


async def retry(cluster: FakeCluster, door: str, name: str) -> None:
    """Acts as kube-scheduler, which calls the extender again for a pod that waits."""
    if door == "extender":
        nodes = [
            node for node in cluster.server.all(NODES) if not node["spec"].get("unschedulable")
        ]
        answer = await extender.fit(cluster, name, *(node["metadata"]["name"] for node in nodes))
        for node in answer["NodeNames"][:1]:
            assert await extender.bind(cluster, name, node) == (200, "")


async def place(cluster: FakeCluster, door: str, name: str, units: int, **metadata: Any) -> None:
    """Creates a pod and waits until it runs."""
    await create(cluster, door, name, units, **metadata)
    await expect_running(cluster, name)
