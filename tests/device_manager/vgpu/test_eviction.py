"""Nodes that are cordoned, drained or emptied for a driver upgrade."""

from typing import Any

import pytest

from expectations.pods import expect_bound, expect_running
from expectations.scheduling import assert_scheduled, expect_on_node, expect_pending
from expectations.vgpus import (
    expect_activated,
    expect_cleaned_up,
    expect_vgpu_deleted,
    expect_vgpus,
)
from fakes.cluster import FakeCluster, scenario, seed_held
from fakes.cluster.state import evicted, the_pod
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.resources import NODES, PODS, Raw

SYSTEM = "kubeshare-system"


def label(cluster: FakeCluster, state: str) -> None:
    """Sets the driver upgrade state of n1 as NVIDIA's GPU operator does."""
    labels = {"nvidia.com/gpu-driver-upgrade-state": state}
    cluster.server.change(NODES, "n1", "", lambda node: node["metadata"]["labels"].update(labels))


@pytest.mark.parametrize("state", ["cordon-required", "wait-for-jobs-required", "upgrade-failed"])
def test_a_node_that_waits_for_another_driver_takes_nobody_and_keeps_its_pods(state: str) -> None:
    @scenario(n1=2, n2=2)
    async def run(cluster: FakeCluster) -> None:
        cluster.reserve("n1", "kept")
        cluster.start()
        await cluster.run("a", id="mine", spec={"nodeName": "n1"})
        label(cluster, state)
        await expect_vgpu_deleted(cluster, "kept")
        await cluster.run("b")
        assert_scheduled(cluster, "b", node="n2")
        await cluster.quiet(60)
        assert cluster.running("a")

    run()


@scenario(n1=1, n2=1)
async def test_holders_leave_a_node_before_its_driver_is_upgraded_and_the_placeholder_last(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("a")
    [placeholder] = cluster.placeholders()
    kept: list[bool] = []

    def record(*_: Any) -> None:
        if cluster.server.stored(PODS, "a", "default"):
            kept.append(cluster.server.stored(PODS, placeholder, SYSTEM) is not None)

    cluster.server.storage.after_change.append(record)
    label(cluster, "pod-deletion-required")
    await expect_on_node(cluster, "a", "n2")
    await expect_running(cluster, "a")
    assert kept[0]
    await cluster.until(lambda: placeholder not in cluster.placeholders())
    label(cluster, "upgrade-done")
    await cluster.run("b", "0.9")
    assert_scheduled(cluster, "b", node="n1")


@scenario(n1=1)
async def test_a_pod_that_has_ended_is_not_evicted(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    cluster.actors.node_agents = False  # its share is not released
    cluster.end("a")
    label(cluster, "pod-deletion-required")
    await cluster.quiet(30)
    assert cluster.shares_gpu("a")
    assert evicted(cluster) == []


@scenario(n1=1, n2=1)
async def test_what_is_idle_on_a_cordoned_node_is_given_back(cluster: FakeCluster) -> None:
    cluster.reserve("n1", "kept")
    cluster.start()
    await expect_activated(cluster)
    cluster.server.change(NODES, "n1", "", lambda node: node["spec"].update(unschedulable=True))
    await expect_cleaned_up(cluster)


@scenario(n1=1, n2=1)
async def test_the_pods_of_a_drained_node_run_elsewhere_and_its_gpu_is_given_back(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("a")
    node = assert_scheduled(cluster, "a").node
    cluster.server.change(NODES, node, "", lambda obj: obj["spec"].update(unschedulable=True))
    pod = the_pod(cluster, "a")
    cluster.actors.delete(pod)
    await expect_bound(cluster, "a", without=node)
    await expect_running(cluster, "a")
    await expect_vgpus(cluster, 1, placeholders=1)


@scenario(n1=2)
async def test_a_node_whose_driver_is_being_upgraded_says_so_to_who_waits(
    cluster: FakeCluster,
) -> None:
    label(cluster, "cordon-required")
    cluster.start()
    cluster.share("a")
    await expect_pending(cluster, "a", "its GPU driver is being upgraded (cordon-required)")
    label(cluster, "upgrade-done")
    await expect_running(cluster, "a")


@scenario(n1=1, n2=1)
async def test_a_namesake_of_the_pod_that_must_leave_is_not_evicted(cluster: FakeCluster) -> None:
    cluster.share("a", id="y", spec={"nodeName": "n2"})
    cluster.start("devices")
    await expect_running(cluster, "a")
    cluster.actors.node_agents = False
    seed_held(cluster, "the former one")

    def bind(vgpu: Raw) -> None:
        vgpu["status"]["holders"][0]["podUid"] = "its former pod"

    cluster.server.change(VGPUS, "x", "", bind)
    label(cluster, "pod-deletion-required")
    await cluster.quiet(30)
    assert cluster.vgpus() == {"x": ["a"], "y": ["a"]}
    assert evicted(cluster) == []
