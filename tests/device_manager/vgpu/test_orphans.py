"""Garbage-collects holders whose SharePod or pod no longer wants them."""

from expectations.pods import (
    expect_any_running,
    expect_condition,
    expect_no_pod,
    expect_pod,
    expect_ready,
    expect_running,
)
from expectations.scheduling import assert_pending, expect_pending
from expectations.vgpus import expect_cleaned_up, expect_no_vgpus, expect_shared_gpu
from fakes import manifests
from fakes.cluster import FakeCluster, scenario, seed_held
from fakes.cluster.state import the_pod
from kubeshare.api.types.v1 import SHAREPODS, VGPUS
from kubeshare.device_manager.pool.idle_times import FIRST_HOLDER_SECONDS
from kubeshare.kube.resources import PODS, Raw
from kubeshare.simulator.control import Fault


@scenario(n1=1)
async def test_a_force_deleted_pod_keeps_its_part_until_its_node_says_that_it_has_stopped(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("a", "0.7")
    cluster.actors.node_agents = False
    cluster.server.remove(PODS, "a", "default")
    cluster.share("b", "0.7")
    await cluster.quiet(60)
    assert cluster.shares_gpu("a")
    assert cluster.pod("a") is None, "its former self may still run"
    assert_pending(cluster, "b")
    assert cluster.condition("a", "Allocated")["reason"] == "Releasing"
    cluster.actors.node_agents = True
    cluster.actors.reconcile()
    await expect_any_running(cluster, "a", "b")


@scenario(n1=1)
async def test_a_status_that_says_failed_frees_nothing_before_the_node_says_so(
    cluster: FakeCluster,
) -> None:
    """Who may write ``pods/status`` can say so of a pod whose containers run."""
    cluster.start()
    await cluster.run("a", "0.7")
    cluster.actors.node_agents = False
    cluster.server.change(PODS, "a", "default", lambda pod: pod["status"].update(phase="Failed"))
    cluster.share("b", "0.7")
    await cluster.quiet(60)
    assert cluster.sharepod("a")["status"]["phase"] == "Failed"
    assert cluster.shares_gpu("a")
    assert_pending(cluster, "b")
    cluster.actors.node_agents = True
    cluster.actors.reconcile()
    await expect_running(cluster, "b")


@scenario(n1=1)
async def test_all_slots_of_sharepods_that_are_gone_are_free_after_a_few_writes(
    cluster: FakeCluster,
) -> None:
    gone = [manifests.holder(f"uid-{number}", f"gone-{number}") for number in range(128)]
    cluster.server.seed(VGPUS, manifests.vgpu("x", "n1", *gone, phase="Creating", pool="onDemand"))
    cluster.start("devices")
    await expect_no_vgpus(cluster)
    written = [each for each in cluster.server.requests if each.resource == "vgpus/status"]
    assert len([each for each in written if each.verb == "patch"]) <= 12


@scenario(n1=1)
async def test_a_sharepod_that_is_deleted_before_its_pod_is_bound_leaves_nothing(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("a")
    cluster.actors.binds = False
    cluster.share("b")
    await expect_pod(cluster, "b")
    await cluster.quiet(1)
    assert cluster.pod_uids()["b"] == "", "only what was bound may run on the node"
    cluster.delete("b")
    await expect_no_pod(cluster, "b")
    await expect_shared_gpu(cluster, "a")


@scenario(n1=1)
async def test_a_decision_taken_back_while_the_pod_runs_frees_nothing_before_its_node_says_so(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    cluster.share("a", "0.6")
    await expect_ready(cluster, "a")
    undecided = {"gpu": {"request": "0.5", "memory": "1Gi", "attempt": 1}, "nodeName": ""}
    cluster.server.change(SHAREPODS, "a", "default", lambda shp: shp["spec"].update(undecided))
    await expect_pending(cluster, "a", reason="Releasing")
    assert cluster.shares_gpu("a")
    pod = the_pod(cluster, "a")
    cluster.actors.delete(pod)
    await expect_condition(cluster, "a", "Scheduled", "Bound")
    await expect_running(cluster, "a")


@scenario(n1=1)
async def test_a_holder_whose_sharepod_was_not_seen_yet_is_not_taken_for_an_orphan(
    cluster: FakeCluster,
) -> None:
    cluster.server.inject(Fault.hang(), verb="watch", resource="sharepods")
    cluster.start("devices")
    await cluster.quiet(1)
    seed_held(cluster, cluster.share("a")["metadata"]["uid"])
    await cluster.quiet(5)
    assert cluster.shares_gpu("a")


@scenario(n1=1)
async def test_a_part_for_nobody_is_taken_back_from_a_gpu_that_is_shared(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler", "devices")
    await cluster.run("a", "0.3")
    await cluster.quiet(1)

    def join(vgpu: Raw) -> None:
        parts = vgpu["status"]["holders"]
        parts.append(parts[0] | {"demand": "nobody", "name": "b", "podUid": ""})

    (gpuid,) = cluster.vgpus()
    cluster.server.change(VGPUS, gpuid, "", join)
    assert cluster.shares_gpu("a", "b")
    await expect_shared_gpu(cluster, "a")


@scenario(n1=1)
async def test_a_finished_sharepod_holds_nothing(cluster: FakeCluster) -> None:
    made = cluster.share("a", id="x", spec={"nodeName": "n1"})
    cluster.server.seed(SHAREPODS, made | {"status": {"phase": "Succeeded"}})
    seed_held(cluster, made["metadata"]["uid"])
    cluster.start("devices")
    await expect_no_vgpus(cluster)


@scenario(n1=1)
async def test_a_pod_that_failed_before_it_was_bound_holds_nothing(cluster: FakeCluster) -> None:
    made = cluster.share("a", id="x", spec={"nodeName": "n1"})
    uid = made["metadata"]["uid"]
    seed_held(cluster, uid)
    owner = {"apiVersion": "v1", "kind": "SharePod", "name": "a", "controller": True}
    metadata = {"name": "a", "namespace": "default", "ownerReferences": [owner | {"uid": uid}]}
    pod = {"metadata": metadata, "spec": {"containers": []}, "status": {"phase": "Failed"}}
    cluster.server.seed(PODS, pod)
    cluster.start("devices")
    await expect_no_vgpus(cluster)
    assert cluster.sharepod("a")["status"]["phase"] == "Failed"


@scenario(n1=1)
async def test_a_vgpu_that_nobody_took_a_part_of_goes_after_a_moment(cluster: FakeCluster) -> None:
    cluster.server.seed(VGPUS, manifests.vgpu("left", pool="onDemand"))
    cluster.start()
    await cluster.quiet(FIRST_HOLDER_SECONDS - 1)
    assert cluster.vgpus(), "whoever made it is about to take a part"
    await expect_cleaned_up(cluster)


@scenario(n1=1)
async def test_a_vgpu_that_gets_a_holder_in_the_last_moment_stays(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    [gpuid] = cluster.vgpus()

    def take_a_part() -> None:
        uid = cluster.share("b", id=gpuid, spec={"nodeName": "n1"})["metadata"]["uid"]
        taken = {"holders": [manifests.holder(uid, "b")]}
        cluster.server.change(VGPUS, gpuid, "", lambda vgpu: vgpu["status"].update(taken))

    conflict = Fault("answer", 409, "Conflict", action=take_a_part)
    cluster.server.inject(conflict, verb="patch", resource="vgpus/status")
    cluster.delete("a")
    await expect_running(cluster, "b")
    assert cluster.vgpus() == {gpuid: ["b"]}
    patches = [each for each in cluster.server.requests if each.resource == "vgpus/status"]
    tries = [each for each in patches if "Deleting" in str(each.body)]
    assert len(tries) == 1


@scenario(n1=1)
async def test_a_gpu_whose_vgpu_was_deleted_by_force_is_kept_while_pods_run_on_it(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("a")
    [gpuid] = cluster.vgpus()
    cluster.server.remove(VGPUS, gpuid)
    cluster.native_pod("whole")
    await cluster.quiet()
    assert cluster.running("a")
    assert not cluster.running("whole")
    cluster.delete("a")
    await expect_running(cluster, "whole")


@scenario(n1=1)
async def test_a_former_sharepods_holder_goes_though_a_namesake_wants_the_same_gpu(
    cluster: FakeCluster,
) -> None:
    seed_held(cluster, "the former one")
    cluster.share("a", "1", id="x", spec={"nodeName": "n1"})
    cluster.start("devices")
    await expect_running(cluster, "a")
    assert cluster.vgpus() == {"x": ["a"]}


@scenario(n1=2)
async def test_a_former_sharepods_holder_goes_though_a_namesakes_pod_runs_elsewhere(
    cluster: FakeCluster,
) -> None:
    cluster.share("a", id="y", spec={"nodeName": "n1"})
    cluster.start("devices")
    await expect_running(cluster, "a")
    seed_held(cluster, "the former one")
    await cluster.until(lambda: cluster.vgpus() == {"y": ["a"]})


@scenario(n1=1)
async def test_a_former_pods_holder_goes_though_a_namesake_waits_behind_its_gate(
    cluster: FakeCluster,
) -> None:
    seed_held(cluster, "the former one")
    cluster.plain("a", "1")
    cluster.start("devices")
    await expect_no_vgpus(cluster)


@scenario(n1=1)
async def test_a_holder_whose_plain_pod_was_not_seen_yet_is_not_taken_for_an_orphan(
    cluster: FakeCluster,
) -> None:
    cluster.server.inject(Fault.hang(), verb="watch", resource="pods")
    cluster.start("devices")
    await cluster.quiet(1)
    seed_held(cluster, cluster.plain("a")["metadata"]["uid"])
    await cluster.quiet(5)
    assert cluster.vgpus() == {"x": ["a"]}
