"""A pod is bound while its vGPU is being activated; it never runs without a GPU."""

from expectations.pods import (
    expect_condition,
    expect_no_pod,
    expect_pod,
    expect_ready,
    expect_running,
)
from expectations.scheduling import assert_scheduled
from expectations.vgpus import expect_vgpus
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.state import the_pod
from kubeshare.api.types.v1 import VGPUS


def uuids(cluster: FakeCluster) -> list[str]:
    return [vgpu["spec"].get("uuid", "") for vgpu in cluster.server.all(VGPUS)]


@scenario(n1=1)
async def test_the_pod_is_made_once_the_placeholder_is_bound_and_named_once_the_gpu_is_known(
    cluster: FakeCluster,
) -> None:
    cluster.actors.node_agents = False
    cluster.start()
    cluster.share("a")
    await expect_pod(cluster, "a")
    await cluster.quiet()
    assert uuids(cluster) == [""]
    pod = the_pod(cluster, "a")
    assert pod["spec"]["nodeName"] == "n1"
    assert cluster.pod_uids() == {"a": ""}, "nothing of it can have run"
    assert not cluster.running("a")
    assert cluster.condition("a", "Allocated")["reason"] == "Creating"
    cluster.actors.node_agents = True
    cluster.actors.reconcile()
    await expect_ready(cluster, "a")
    assert cluster.pod_uids() == {"a": pod["metadata"]["uid"]}


@scenario(n1=1)
async def test_no_pod_is_made_while_kube_scheduler_has_not_bound_the_placeholder(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    cluster.share("a")
    await expect_vgpus(cluster, 1)
    cluster.native_pod("whole")
    await expect_running(cluster, "whole")
    cluster.start("devices")
    await expect_condition(cluster, "a", "Allocated", "GPUNotFree")
    assert cluster.pod("a") is None


@scenario(n1=1, n2=1)
async def test_a_pod_whose_gpu_cannot_be_shared_is_taken_back_and_runs_elsewhere(
    cluster: FakeCluster,
) -> None:
    cluster.actors.sliced.add("n1")
    cluster.start()
    cluster.share("a")
    await expect_ready(cluster, "a", seconds=90)
    assert_scheduled(cluster, "a", node="n2")
    await expect_vgpus(cluster, 1, placeholders=1)


@scenario(n1=1)
async def test_where_there_is_no_other_gpu_it_waits_without_a_pod_and_says_why(
    cluster: FakeCluster,
) -> None:
    cluster.actors.sliced.add("n1")
    cluster.start()
    cluster.share("a")
    await expect_condition(cluster, "a", "Allocated", "NotShareable")
    await expect_no_pod(cluster, "a")
    assert set(cluster.pod_uids().values()) <= {""}
