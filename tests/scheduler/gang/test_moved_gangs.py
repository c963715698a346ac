"""Gangs whose GPUs are taken, fail or are not there, and gangs that are made anew."""

import asyncio

import pytest

from expectations.pods import expect_running
from expectations.scheduling import (
    assert_pending,
    expect_pending,
)
from expectations.vgpus import expect_holder_count, expect_holders, expect_holding
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.state import gates, holding
from kubeshare.api.affinity_terms import require_node
from kubeshare.api.types.v1 import GPUNODES
from kubeshare.kube.resources import PODS
from kubeshare.simulator.control import Fault, run_virtual
from scheduler.gang.gangs import labels, nodes


async def robbed(cluster: FakeCluster) -> None:
    """A gang of two holds a GPU of n1 and one of n2; a native pod gets the GPU of n1."""
    cluster.start("scheduler")
    for name in "ab":
        cluster.plain(name, "1", labels=labels(2))
    await expect_holder_count(cluster, 2)
    assert nodes(cluster) == ["n1", "n2"]
    cluster.native_pod("whole", affinity=require_node({}, "n1"))
    await expect_running(cluster, "whole")
    cluster.start("devices")


@scenario(n1=1, n2=2)
async def test_a_gpu_of_a_gang_that_a_native_pod_took_first_is_had_on_another_node(
    cluster: FakeCluster,
) -> None:
    await robbed(cluster)
    await expect_running(cluster, "a", "b", seconds=60)
    assert nodes(cluster) == ["n2", "n2"]
    assert any("GPUNotFree" in event for event in [*cluster.events("a"), *cluster.events("b")])


@pytest.mark.slow
def test_to_move_a_gang_on_may_be_cut_off_at_any_write() -> None:
    """Every third write fails, before it takes effect or before its response."""
    total, write = 1, 1
    while write <= total:
        cluster = FakeCluster(n1=1, n2=2)
        fault = Fault.reset(after=write % 2 == 0)
        total = run_virtual(cut_off_when_robbed(cluster, write, fault))
        write += 3
    assert total > len("ab")


async def cut_off_when_robbed(cluster: FakeCluster, write: int, fault: Fault) -> int:
    """Injects a fault at one write; returns the writes since the native pod has the GPU."""
    made = 0

    async def steps(cluster: FakeCluster) -> None:
        nonlocal made
        await robbed(cluster)
        before = cluster.server.writes
        cluster.server.inject_at_write(before + write, fault)
        await expect_running(cluster, "a", "b", seconds=200)
        made = cluster.server.writes - before
        await cluster.quiet(30)
        assert nodes(cluster) == ["n2", "n2"]
        assert holding(cluster) == ["a", "b"]

    await cluster.play(steps)
    return made


@scenario(n1=1, n2=1)
async def test_a_gpu_of_a_gang_that_a_native_pod_took_first_is_waited_for_where_there_is_no_other(
    cluster: FakeCluster,
) -> None:
    await robbed(cluster)
    await expect_pending(cluster, "a", reason="GPUNotFree")
    await cluster.quiet(60)
    assert holding(cluster) == ["a", "b"]
    assert gates(cluster, "a")
    assert gates(cluster, "b")
    cluster.end("whole")
    await expect_running(cluster, "a", "b", seconds=60)


@scenario(n1=3)
async def test_a_gpu_of_a_gang_that_fails_before_all_are_there_is_left_for_another_one(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("x", "0.4")
    cluster.actors.node_agents = False
    for name in "ab":
        cluster.plain(name, "0.6", labels=labels(2))
    await expect_holding(cluster, "a", "b", "x")
    (shared,) = [sorted(held) for held in cluster.vgpus().values() if "x" in held]
    assert len(shared) == 2
    failed = {"healthy": False, "message": "XID 79"}
    cluster.server.change(GPUNODES, "n1", "", lambda obj: obj["spec"]["devices"][0].update(failed))
    await expect_holders(cluster, ["a"], ["b"], ["x"])
    waits = [cluster.pod_condition(name)["message"] for name in "ab"]
    assert any("XID 79" in words for words in waits)
    assert gates(cluster, "a")
    cluster.actors.node_agents = True
    cluster.actors.reconcile()
    await expect_running(cluster, "a", "b")


@scenario(n1=1, n2=1, n3=2)
async def test_a_gang_that_is_moved_on_has_no_more_time_than_others_to_start(
    cluster: FakeCluster,
) -> None:
    cluster.configure(gangTimeoutSeconds=60)
    await robbed(cluster)
    cluster.actors.node_agents = False
    await cluster.until(lambda: "n1" not in nodes(cluster))
    moved = asyncio.get_running_loop().time()
    await expect_pending(cluster, "a", reason="GangTimedOut", seconds=120)
    assert asyncio.get_running_loop().time() - moved < 55
    assert not holding(cluster)


@scenario(n1=2)
async def test_a_gang_that_is_made_anew_does_not_wait_for_the_time_of_the_former_one(
    cluster: FakeCluster,
) -> None:
    cluster.configure(gangTimeoutSeconds=60)
    cluster.actors.node_agents = False
    cluster.start()
    for name in "ab":
        cluster.plain(name, "0.6", labels=labels(2))
    await expect_pending(cluster, "b", reason="Creating")
    await expect_pending(cluster, "a", reason="GangTimedOut", seconds=120)
    words = "gang g: it has not started within 60 s, and others have their turn; "
    assert_pending(cluster, "b", words, reason="GangTimedOut")
    for name in "ab":
        cluster.server.remove(PODS, name, "default")
    await cluster.quiet(1)
    for name in "ab":
        cluster.plain(name, "0.6", labels=labels(2))
    await expect_holding(cluster, "a", "b", seconds=5)
    # Its own time begins now, too.
    for name in "ab":
        cluster.server.remove(PODS, name, "default")
    await cluster.quiet(40)
    for name in "ab":
        cluster.plain(name, "0.6", labels=labels(2))
    await expect_holding(cluster, "a", "b", seconds=5)
    await cluster.quiet(50)
    assert holding(cluster) == ["a", "b"]
    await expect_pending(cluster, "a", reason="GangTimedOut", seconds=15)
    assert not holding(cluster)
