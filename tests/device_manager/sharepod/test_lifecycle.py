"""The lifecycle of SharePods without faults."""

from expectations.pods import (
    expect_any_running,
    expect_condition,
    expect_ready,
    expect_replaced,
    expect_running,
    expect_sharepod_phase,
)
from expectations.scheduling import assert_scheduled
from expectations.vgpus import expect_cleaned_up, expect_no_vgpus, expect_shared_gpu
from fakes.cluster import FakeCluster, gpu_uuid, scenario
from fakes.cluster.state import the_pod
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.kube.resources import PODS, Raw
from kubeshare.simulator.control import Fault
from kubeshare.simulator.control_tier.stored import POD_IP, STARTED


@scenario(n1=1)
async def test_three_sharepods_share_one_gpu_and_it_is_given_back_after_the_last(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    for name, request in (("a", "0.3"), ("b", "0.4"), ("c", "0.3")):
        cluster.share(name, request)
    await expect_running(cluster, "a", "b", "c")
    assert cluster.shares_gpu("a", "b", "c")
    [gpuid] = cluster.vgpus()
    for name in ("a", "b"):
        cluster.delete(name)
    await expect_shared_gpu(cluster, "c")
    cluster.delete("c")
    await expect_no_vgpus(cluster)
    assert not cluster.placeholders()
    words = "no pod shares it: the GPU goes back to node n1"
    await cluster.until(lambda: f"Released: {words}" in cluster.events(gpuid))
    cluster.native_pod("whole")
    await expect_running(cluster, "whole")


@scenario(n1=1)
async def test_a_pod_waits_for_the_whole_gpu_until_the_last_share_is_given_back(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    for name in ("a", "b"):
        await cluster.run(name)
    cluster.native_pod("whole")
    cluster.delete("a")
    await expect_shared_gpu(cluster, "b")
    assert not cluster.running("whole")
    cluster.delete("b")
    await expect_running(cluster, "whole")
    assert not cluster.vgpus()
    assert not cluster.placeholders()


@scenario(n1=1)
async def test_a_field_that_no_pod_has_is_refused_and_not_dropped(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    [created] = [
        each
        for each in cluster.server.requests
        if (each.verb, each.resource, each.path.namespace) == ("create", "pods", "default")
    ]
    assert created.query["fieldValidation"] == "Strict"


@scenario(n1=2)
async def test_a_sharepod_of_two_gpus_runs_on_both_and_gives_both_back(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    cluster.share("a", "0.6", count=2)
    cluster.share("b", "0.6", count=2)
    [first] = await expect_any_running(cluster, "a", "b")
    [second] = {"a", "b"} - {first}
    assert list(cluster.vgpus().values()) == [[first], [first]]
    gpus = cluster.sharepod(first)["status"]["gpus"]
    assert sorted(each["uuid"] for each in gpus) == sorted(gpu_uuid("n1", i) for i in range(2))
    cluster.delete(first)
    await expect_running(cluster, second)
    cluster.delete(second)
    await expect_cleaned_up(cluster)


@scenario(n1=1)
async def test_the_status_tells_phase_gpu_and_node(cluster: FakeCluster) -> None:
    cluster.start()
    cluster.share("a")
    await expect_ready(cluster, "a")
    status = cluster.sharepod("a")["status"]
    placed = assert_scheduled(cluster, "a")
    assert status["phase"] == "Running"
    assert status["nodeName"] == "n1"
    assert status["gpus"] == [{"id": placed.gpuid, "uuid": gpu_uuid("n1", 0), "model": "V100"}]
    assert status["share"] == {"request": "0.3", "limit": "1", "memory": "1Gi"}
    assert cluster.condition("a", "Allocated")["status"] == "True"
    assert status["podIP"] == POD_IP
    assert status["startTime"] == STARTED
    assert "finishTime" not in status


@scenario(n1=1)
async def test_the_status_tells_when_the_last_container_has_ended(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    cluster.end("a", "Failed")
    await expect_condition(cluster, "a", "Ready", "PodFailed")
    status = cluster.sharepod("a")["status"]
    assert status["finishTime"] == "2026-01-01T00:09:00Z"
    assert (status["startTime"], status["podIP"]) == (STARTED, POD_IP)


@scenario(n1=1)
async def test_a_sharepod_on_a_warm_vgpu_costs_six_writes_and_no_read(cluster: FakeCluster) -> None:
    cluster.start()
    cluster.share("first")
    await expect_ready(cluster, "first")
    await cluster.quiet()
    before = len(cluster.server.requests)
    cluster.share("second")
    await expect_ready(cluster, "second")
    await cluster.quiet()
    asked = [each for each in cluster.server.requests[before:] if each.resource != "events"]
    assert [f"{each.verb} {each.resource}" for each in asked if each.verb != "watch"] == [
        "patch vgpus/status",
        "patch sharepods",
        "patch sharepods/status",
        "create pods",
        "patch vgpus/status",
        "patch sharepods/status",
    ]


@scenario(n1=1)
async def test_a_pod_that_succeeds_stays_and_gives_its_gpu_back(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    cluster.end("a")
    await expect_no_vgpus(cluster)
    assert cluster.sharepod("a")["status"]["phase"] == "Succeeded"
    assert cluster.condition("a", "Ready")["reason"] == "PodSucceeded"
    assert cluster.condition("a", "Allocated")["reason"] == "Released"
    assert len(cluster.sharepod("a")["status"]["gpus"]) == 1, "where it was can still be read"
    assert cluster.pod("a") is not None
    cluster.server.remove(PODS, "a", "default")
    await cluster.quiet()
    assert cluster.pod("a") is None, "it has succeeded and must not run again"
    assert not cluster.vgpus()


@scenario(n1=1)
async def test_a_pod_that_is_deleted_is_made_again_and_scheduled_again(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    cluster.share("a")
    await expect_ready(cluster, "a")
    first = the_pod(cluster, "a")
    cluster.actors.delete(first)
    await expect_replaced(cluster, first)
    await expect_running(cluster, "a")
    assert_scheduled(cluster, "a")


@scenario(n1=1)
async def test_a_sharepod_that_is_being_deleted_gets_no_pod(cluster: FakeCluster) -> None:
    made = cluster.share("a", id="x", spec={"nodeName": "n1"})
    made["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["theirs"]}
    cluster.server.seed(SHAREPODS, made)
    cluster.start()
    await cluster.quiet()
    assert cluster.pod("a") is None
    assert not cluster.vgpus()


@scenario(n1=1)
async def test_a_decision_whose_part_was_not_seen_yet_is_not_undone(cluster: FakeCluster) -> None:
    cluster.server.inject(Fault.hang(), verb="watch", resource="vgpus")
    cluster.start("devices")
    await cluster.quiet(1)
    cluster.start("scheduler")
    await cluster.run("a")
    assert cluster.sharepod("a")["spec"]["gpu"]["attempt"] == 1


@scenario(n1=1)
async def test_a_decision_whose_pod_was_not_seen_yet_is_not_undone(cluster: FakeCluster) -> None:
    cluster.server.inject(Fault.hang(), verb="watch", resource="pods")
    cluster.start("devices")
    await cluster.quiet(1)
    cluster.server.seed(
        PODS,
        {
            "metadata": {"name": "a", "namespace": "default"},
            "spec": {"containers": [], "nodeName": "n1"},
            "status": {"phase": "Running"},
        },
    )
    cluster.share("a", id="x", attempt=1, spec={"nodeName": "n1"})
    await cluster.quiet(5)
    assert cluster.sharepod("a")["spec"]["nodeName"] == "n1"


@scenario(n1=1)
async def test_a_sharepod_whose_pod_is_evicted_gets_another_one(cluster: FakeCluster) -> None:
    await evict_and_go_on(cluster, "Failed")


@scenario(n1=1)
async def test_so_does_one_whose_containers_end_politely(cluster: FakeCluster) -> None:
    await evict_and_go_on(cluster, "Succeeded")


async def evict_and_go_on(cluster: FakeCluster, phase: str) -> None:
    """The kubelet reports the end of an evicted pod before the pod is gone."""
    cluster.start()
    cluster.share("a")
    await expect_ready(cluster, "a")

    def ended(obj: Raw) -> None:
        obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
        obj["status"]["phase"] = phase

    cluster.actors.removes = False
    cluster.server.change(PODS, "a", "default", ended)
    await cluster.quiet(1)
    assert cluster.sharepod("a")["status"]["phase"] == "Running"
    cluster.actors.removes = True
    cluster.server.remove(PODS, "a", "default")
    await expect_running(cluster, "a")
    await expect_ready(cluster, "a")


@scenario(n1=1)
async def test_a_sharepod_that_has_ended_stays_so_when_its_pod_is_deleted(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    cluster.share("a", spec={"restartPolicy": "Never"})
    await expect_ready(cluster, "a")
    cluster.end("a", "Failed")
    await expect_sharepod_phase(cluster, "a", "Failed")
    mark = {"deletionTimestamp": "2026-01-01T00:01:00Z"}
    cluster.actors.removes = False
    cluster.server.change(PODS, "a", "default", lambda obj: obj["metadata"].update(mark))
    await cluster.quiet(30)
    cluster.server.remove(PODS, "a", "default")
    await cluster.quiet(60)
    assert cluster.sharepod("a")["status"]["phase"] == "Failed"
    assert cluster.pod("a") is None
