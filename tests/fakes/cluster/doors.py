"""Places pods of Gaia by their manifests alone, or with a kube-scheduler that calls the filter."""

from typing import Final

from expectations.pods import expect_running
from fakes.cluster.cluster import FakeCluster
from fakes.cluster.predicates import container, fit, placed, pod, schedule, start
from fakes.cluster.state import gates, the_pod
from fakes.cluster.vcuda import gated_pod, offer
from kubeshare.kube.resources import NODES

DOORS: Final = ("manifests", "extender")


async def begin(cluster: FakeCluster, door: str) -> None:
    """All nodes are Gaia's; with the door ``manifests``, their kubelets offer the resources."""
    await start(cluster)
    if door == "manifests":
        for node in cluster.server.all(NODES):
            name = node["metadata"]["name"]
            offer(cluster, name, len(cluster.actors.devices[name]))
        cluster.start("scheduler")


def link_six(cluster: FakeCluster, node: str) -> None:
    """Links six GPUs as those of gpu-manager's tests: ``SOC(PHB(PIX(0,1),PIX(2,3)),PIX(4,5))``."""
    near = {f"gpu_{a}_{b}": "PIX" for a, b in ((0, 1), (2, 3), (4, 5))}
    bridge = {f"gpu_{a}_{b}": "PHB" for a in (0, 1) for b in (2, 3)}
    cluster.link(node, **near, **bridge)


def create(cluster: FakeCluster, door: str, name: str, *asked: str, **annotations: str) -> None:
    """Creates a pod whose containers ask for ``CORES`` or ``CORES/BLOCKS``."""
    if door == "manifests":
        containers = [container(f"c{number}", each) for number, each in enumerate(asked)]
        gated_pod(cluster, name, *containers, **annotations)
    else:
        pod(cluster, name, *asked, annotations=annotations)


async def place(
    cluster: FakeCluster, door: str, name: str, *asked: str, **annotations: str
) -> None:
    """Creates a pod and waits until it runs."""
    create(cluster, door, name, *asked, **annotations)
    if door == "extender":
        assert await schedule(cluster, name) == ""
    await expect_running(cluster, name)


async def expect_refused(
    cluster: FakeCluster, door: str, name: str, *, words: str = "", reason: str = ""
) -> None:
    """A pod has no GPU, and its condition or the filter's answer contains the words.

    ``reason`` is that of the condition, where there is one.
    """
    if door == "manifests":
        await cluster.until(lambda: cluster.pod_condition(name).get("status") == "False")
        found = cluster.pod_condition(name)
        assert reason in ("", found["reason"])
        assert gates(cluster, name)
        why = str(found["message"])
    else:
        result = await fit(cluster, name)
        assert not result["NodeNames"]
        why = result["Error"] or "; ".join(result["FailedNodes"].values())
    assert words in why
    assert name not in placed(cluster)


def node_of(cluster: FakeCluster, name: str) -> str:
    return str(the_pod(cluster, name)["spec"]["nodeName"])
