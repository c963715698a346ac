"""Deleted pods whose containers still run, and unreachable nodes."""

import pytest

from expectations.pods import expect_running
from expectations.vgpus import expect_no_vgpus
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.state import the_pod
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.kube.resources import PODS
from kubeshare.simulator.control import Fault

LONG = 600.0
"""Virtual time longer than any time-out of a node."""


@scenario(n1=1, agents=True)
async def test_the_part_of_a_force_deleted_pod_is_its_own_until_its_containers_stop(
    cluster: FakeCluster,
) -> None:
    machine = cluster.machines["n1"]
    machine.forced = LONG
    cluster.start()
    cluster.share("a", "0.7")
    await expect_running(cluster, "a")
    cluster.delete("a")
    cluster.server.remove(PODS, "a", "default")
    cluster.share("b", "0.7")
    await cluster.quiet(LONG / 2)
    assert machine.containers
    assert cluster.shares_gpu("a")
    assert not cluster.running("b")
    await expect_running(cluster, "b", seconds=LONG)
    assert cluster.shares_gpu("b")


@pytest.mark.slow
@scenario(n1=1, agents=True)
async def test_a_force_deleted_pod_is_made_again_when_its_containers_have_stopped(
    cluster: FakeCluster,
) -> None:
    cluster.machines["n1"].forced = LONG
    cluster.start()
    await cluster.run("a")
    cluster.server.remove(PODS, "a", "default")
    await cluster.quiet(LONG / 2)
    assert cluster.pod("a") is None
    assert cluster.condition("a", "Allocated")["reason"] == "Releasing"
    await expect_running(cluster, "a", seconds=LONG)


@pytest.mark.slow
@scenario(n1=1, agents=True)
async def test_a_part_comes_back_when_the_kubelet_has_forgotten_a_pod_that_is_gone(
    cluster: FakeCluster,
) -> None:
    """The kubelet has lost its records, so it never unprepares that pod."""
    cluster.start()
    await cluster.run("a")
    cluster.delete("a")
    cluster.server.remove(PODS, "a", "default")
    cluster.machines["n1"].forget()
    await cluster.quiet(100)
    assert cluster.shares_gpu("a")
    await expect_no_vgpus(cluster, seconds=LONG)
    assert not cluster.machines["n1"].left()


@pytest.mark.slow
@scenario(n1=1, agents=True)
async def test_on_a_node_that_is_cut_off_containers_go_on_and_the_release_comes_later(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    cluster.share("a", "0.7")
    await expect_running(cluster, "a")
    cluster.cut_off("agent/n1")
    await cluster.quiet(LONG)
    assert cluster.machines["n1"].containers
    cluster.delete("a")
    cluster.share("b", "0.7")
    await cluster.until(lambda: not cluster.machines["n1"].containers)
    await cluster.quiet(LONG)
    assert cluster.shares_gpu("a"), "nobody but the node says that a part is free"
    assert not cluster.running("b")
    cluster.reconnect("agent/n1")
    await expect_running(cluster, "b", seconds=LONG)
    assert not cluster.server.stored(SHAREPODS, "a", "default")


@pytest.mark.slow
@scenario(n1=1, agents=True)
async def test_the_pod_of_a_sharepod_deleted_alone_keeps_its_part_until_it_ends(
    cluster: FakeCluster,
) -> None:
    """``kubectl delete shp a --cascade=orphan``"""
    cluster.start()
    cluster.share("a", "0.7")
    await expect_running(cluster, "a")
    cluster.server.change(PODS, "a", "default", lambda pod: pod["metadata"].pop("ownerReferences"))
    cluster.delete("a")
    cluster.share("b", "0.7")
    await cluster.quiet(LONG)
    assert cluster.running("a")
    assert cluster.shares_gpu("a")
    cluster.end("a")
    await expect_running(cluster, "b", seconds=LONG)


@pytest.mark.slow
@scenario(n1=1, agents=True)
async def test_a_namespace_that_goes_takes_all_with_it_in_any_order(cluster: FakeCluster) -> None:
    """Pods may be deleted before their SharePods, and none can be created."""
    cluster.start()
    await cluster.run("a")
    await cluster.run("b")
    forbidden = Fault.answer(403, "Forbidden")
    cluster.server.inject(forbidden, verb="create", resource="pods", name="", times=9999)
    for name in ("a", "b"):
        pod = the_pod(cluster, name)
        cluster.actors.delete(pod)
    await cluster.quiet(60)
    assert not cluster.pod("a")
    for name in ("a", "b"):
        cluster.delete(name)
    await expect_no_vgpus(cluster, seconds=LONG)
    assert not cluster.placeholders()
    assert not cluster.machines["n1"].left()
