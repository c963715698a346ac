"""Pool policies keep, warm up and delete idle vGPUs."""

from expectations.pods import expect_event
from expectations.vgpus import (
    expect_cleaned_up,
    expect_holders,
    expect_no_vgpus,
    expect_phase,
    expect_phases,
    expect_vgpu_deleted,
)
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.state import vgpu_phases
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.resources import NODES, PODS
from kubeshare.simulator.control import Fault


def labelled(cluster: FakeCluster, node: str, policy: str) -> None:
    label = {"kubeshare.nthu/pool": policy}
    cluster.server.change(NODES, node, "", lambda obj: obj["metadata"]["labels"].update(label))


@scenario(n1=2)
async def test_by_reservation_a_vgpu_stays_and_the_next_sharepod_takes_it(
    cluster: FakeCluster,
) -> None:
    cluster.configure(pool={"policy": "reservation"})
    cluster.start()
    await cluster.run("a")
    (gpuid,) = cluster.vgpus()
    assert vgpu_phases(cluster) == ["Active"]
    cluster.delete("a")
    await expect_phases(cluster, "Idle")
    await cluster.quiet(60)
    await cluster.run("b", "0.9")
    assert cluster.vgpus() == {gpuid: ["b"]}
    assert vgpu_phases(cluster) == ["Active"]
    assert len(cluster.placeholders()) == 1


@scenario(n1=3)
async def test_warm_ones_are_made_ahead_and_a_warm_one_needs_no_new_placeholder(
    cluster: FakeCluster,
) -> None:
    cluster.configure(pool={"policy": "reservation", "warm": 1})
    cluster.start()
    await expect_phases(cluster, "Idle")
    (warm,) = cluster.vgpus()
    await cluster.run("a", "1")
    assert cluster.vgpus()[warm] == ["a"]
    await expect_phases(cluster, "Active", "Idle")
    await cluster.run("b", "1")
    await expect_phases(cluster, "Active", "Active", "Idle")
    await cluster.run("c", "1")
    await cluster.quiet(30)
    assert vgpu_phases(cluster) == ["Active"] * 3


@scenario(n1=3)
async def test_hybrid_keeps_the_minimum_and_lets_the_rest_go_after_a_time(
    cluster: FakeCluster,
) -> None:
    cluster.configure(pool={"policy": "hybrid", "minimum": 1, "idleSeconds": 60})
    cluster.start()
    await expect_phases(cluster, "Idle")
    await cluster.run("a", "1")
    await cluster.run("b", "1")
    cluster.delete("a")
    cluster.delete("b")
    await expect_phases(cluster, "Idle", "Idle")
    await cluster.quiet(50)
    assert vgpu_phases(cluster) == ["Idle", "Idle"]
    await expect_phases(cluster, "Idle", seconds=15)
    await cluster.quiet(60)
    assert vgpu_phases(cluster) == ["Idle"]


@scenario(n1=2)
async def test_a_policy_that_is_changed_is_carried_out_at_once(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.quiet(10)
    assert not cluster.vgpus()
    cluster.configure(pool={"policy": "reservation", "minimum": 2})
    await expect_phases(cluster, "Idle", "Idle")
    cluster.configure(pool={"policy": "hybrid", "minimum": 1, "idleSeconds": 0})
    await expect_phases(cluster, "Idle")
    cluster.configure()
    await expect_cleaned_up(cluster)


@scenario(n1=1, n2=1)
async def test_a_nodes_label_says_its_policy(cluster: FakeCluster) -> None:
    cluster.configure(pool={"minimum": 1})
    cluster.start()
    labelled(cluster, "n2", "reservation")
    await expect_phases(cluster, "Idle")
    assert [each["spec"]["nodeName"] for each in cluster.server.all(VGPUS)] == ["n2"]
    labelled(cluster, "n2", "onDemand")
    await expect_no_vgpus(cluster)


@scenario(n1=1)
async def test_a_label_that_is_no_policy_is_told_and_changes_nothing(cluster: FakeCluster) -> None:
    cluster.configure(pool={"policy": "reservation", "minimum": 1})
    labelled(cluster, "n1", "ondemand")
    cluster.start()
    await expect_phases(cluster, "Idle")
    await expect_event(cluster, "n1")
    assert "says ondemand, which is no pool policy" in cluster.events("n1")[0]


@scenario(n1=2)
async def test_a_cordoned_node_keeps_no_idle_vgpu_and_makes_none(cluster: FakeCluster) -> None:
    cluster.configure(pool={"policy": "reservation", "minimum": 2})
    cluster.start()
    await expect_phases(cluster, "Idle", "Idle")
    cluster.server.change(NODES, "n1", "", lambda obj: obj["spec"].update(unschedulable=True))
    await expect_no_vgpus(cluster)
    await cluster.quiet(30)
    assert not cluster.vgpus()
    cluster.server.change(NODES, "n1", "", lambda obj: obj["spec"].update(unschedulable=False))
    await expect_phases(cluster, "Idle", "Idle")


@scenario(n1=1)
async def test_an_idle_vgpu_that_lost_its_placeholder_is_made_anew(cluster: FakeCluster) -> None:
    cluster.configure(pool={"policy": "reservation", "minimum": 1})
    cluster.start()
    await expect_phases(cluster, "Idle")
    (first,) = cluster.vgpus()
    cluster.server.remove(PODS, cluster.placeholders()[0], "kubeshare-system")
    await expect_phases(cluster, "Idle")
    await expect_vgpu_deleted(cluster, first)


@scenario(n1=1)
async def test_the_pool_is_as_it_was_after_a_restart(cluster: FakeCluster) -> None:
    cluster.configure(pool={"policy": "reservation", "minimum": 1, "warm": 1})
    cluster.start()
    await expect_phases(cluster, "Idle")
    before = cluster.vgpus()
    await cluster.kill()
    cluster.start()
    await cluster.quiet(60)
    assert cluster.vgpus() == before


@scenario(n1=2)
async def test_idle_vgpus_stay_while_a_kubelet_starts_and_offers_nothing(
    cluster: FakeCluster,
) -> None:
    cluster.configure(pool={"policy": "reservation", "warm": 2})
    cluster.start()
    await expect_phases(cluster, "Idle", "Idle")
    before = cluster.vgpus()
    for count in (0, 1, 2):
        cluster.offer("n1", count)
        await cluster.quiet(20)
    assert cluster.vgpus() == before


@scenario(n1=1)
async def test_a_vgpu_that_became_idle_unseen_is_looked_at_when_the_watch_is_back(
    cluster: FakeCluster,
) -> None:
    """After the watch broke, no event reports the change."""
    cluster.reserve("n1", "x")
    cluster.start()
    await expect_phase(cluster, "x", phase="Idle")
    await cluster.kill("devices")
    cluster.server.inject(Fault.hang(), verb="watch", resource="vgpus")
    cluster.start("devices")
    await cluster.run("a", id="x", spec={"nodeName": "n1"})
    cluster.configure(pool={"policy": "onDemand"})
    await cluster.quiet(5)
    cluster.delete("a")
    await expect_holders(cluster, [])
    cluster.server.compact()
    await expect_no_vgpus(cluster, seconds=200)
