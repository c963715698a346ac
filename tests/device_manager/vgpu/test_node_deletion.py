"""Nodes that are deleted, or only not ready, with vGPUs on them."""

from expectations.pods import expect_pod, expect_ready, expect_running
from expectations.scheduling import assert_pending, assert_scheduled, expect_on_node
from expectations.vgpus import expect_activated, expect_no_vgpus, expect_vgpu_deleted
from fakes.cluster import FakeCluster, scenario, seed_held
from fakes.cluster.state import the_pod
from kubeshare.api.types.v1 import SHAREPODS, VGPUS
from kubeshare.kube.resources import NODES, Raw
from kubeshare.simulator.control import Fault


@scenario(n1=1)
async def test_a_sharepod_of_a_deleted_node_runs_on_another_one(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    cluster.add_node("n2", 1)
    cluster.lose_node("n1")
    await expect_on_node(cluster, "a", "n2")
    await expect_running(cluster, "a")
    assert_scheduled(cluster, "a", node="n2")
    assert len(cluster.vgpus()) == 1
    assert len(cluster.placeholders()) == 1


@scenario(n1=1)
async def test_a_sharepod_that_lost_its_node_and_finds_no_other_is_not_ready(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    cluster.share("a")
    await expect_ready(cluster, "a")
    cluster.lose_node("n1")
    await cluster.until(lambda: not cluster.ready("a"))
    assert_pending(cluster, "a")
    assert cluster.condition("a", "Allocated")["reason"] == "Undone"
    assert cluster.sharepod("a")["status"]["phase"] == ""
    assert not cluster.vgpus()


@scenario(n1=1)
async def test_a_node_that_is_not_ready_keeps_its_gpus_and_pods(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    cluster.actors.node_agents = False
    unknown = [{"type": "Ready", "status": "Unknown"}]
    cluster.server.change(NODES, "n1", "", lambda node: node["status"].update(conditions=unknown))
    await cluster.quiet(600)
    assert cluster.shares_gpu("a")
    assert cluster.running("a")


@scenario(n1=1)
async def test_a_node_that_was_only_not_seen_yet_is_not_taken_for_lost(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("a")
    await cluster.kill()
    cluster.server.inject(Fault.hang(), verb="list", resource="nodes")
    cluster.start("devices")
    await cluster.quiet(5)
    assert cluster.shares_gpu("a")


@scenario(n1=1)
async def test_a_reserved_vgpu_of_a_deleted_node_goes_with_it(cluster: FakeCluster) -> None:
    cluster.reserve("n1", "kept")
    cluster.start()
    await expect_activated(cluster)
    cluster.lose_node("n1")
    await expect_no_vgpus(cluster)
    await cluster.quiet()
    assert not cluster.server.all(VGPUS)
    assert not cluster.placeholders()


@scenario(n1=1, n2=1)
async def test_a_decision_for_a_node_that_was_deleted_meanwhile_is_made_again(
    cluster: FakeCluster,
) -> None:
    """As by a scheduler whose watch of nodes is not restored yet after an outage."""
    cluster.start("devices")
    await cluster.quiet()
    cluster.lose_node("n1")
    await cluster.quiet()
    uid = cluster.share("a")["metadata"]["uid"]
    seed_held(cluster, uid)
    decided = {"nodeName": "n1", "gpu": {"request": "0.3", "id": "x", "attempt": 1}}
    cluster.server.change(SHAREPODS, "a", "default", lambda each: each["spec"].update(decided))
    await cluster.quiet(1)
    assert cluster.shares_gpu("a"), "it would come back at once while nobody has heard of the node"
    await expect_on_node(cluster, "a", "")
    assert not cluster.vgpus()
    cluster.start("scheduler")
    await expect_running(cluster, "a")
    assert_scheduled(cluster, "a", node="n2")


@scenario(n1=1)
async def test_a_part_on_a_deleted_node_is_held_as_long_as_its_pod_is_there(
    cluster: FakeCluster,
) -> None:
    cluster.actors.binds = False
    cluster.start()
    cluster.share("a")
    await expect_pod(cluster, "a")
    cluster.lose_node("n1")
    await cluster.quiet(8)
    assert cluster.shares_gpu("a")
    cluster.delete("a")
    await expect_no_vgpus(cluster)


@scenario(n1=1, n2=1)
async def test_a_holder_on_a_deleted_node_goes_though_its_pod_that_ended_is_there(
    cluster: FakeCluster,
) -> None:
    cluster.lose_node("n1")
    cluster.share("a", id="y", spec={"nodeName": "n2"})
    cluster.start("devices")
    await expect_running(cluster, "a")
    pod = the_pod(cluster, "a")
    cluster.end("a")
    seed_held(cluster, "the former one")

    def bind(vgpu: Raw) -> None:
        vgpu["status"]["holders"][0]["podUid"] = pod["metadata"]["uid"]

    cluster.server.change(VGPUS, "x", "", bind)
    await expect_vgpu_deleted(cluster, "x")
    assert cluster.pod("a") is not None


@scenario(n1=1, n2=1)
async def test_a_holder_on_a_deleted_node_goes_though_its_pods_namesake_runs_elsewhere(
    cluster: FakeCluster,
) -> None:
    cluster.lose_node("n1")
    cluster.share("a", id="y", spec={"nodeName": "n2"})
    cluster.start("devices")
    await expect_running(cluster, "a")
    seed_held(cluster, "the former one")

    def bind(vgpu: Raw) -> None:
        vgpu["status"]["holders"][0]["podUid"] = "its former pod"

    cluster.server.change(VGPUS, "x", "", bind)
    await cluster.until(lambda: cluster.vgpus() == {"y": ["a"]})
