"""vGPUs whose GPU fails or whose placeholder is lost."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from expectations.pods import expect_condition, expect_event, expect_ready, expect_running
from expectations.scheduling import assert_scheduled, expect_on_node, expect_pending
from expectations.vgpus import (
    expect_activated,
    expect_degraded,
    expect_no_vgpus,
    expect_placeholders,
    expect_vgpu_deleted,
    expect_vgpus,
)
from fakes import manifests
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.state import degraded, is_same_pod, the_pod
from kubeshare.api.types.v1 import GPUNODES, VGPUS
from kubeshare.device_manager.placeholder.recovery import FIRST_BACKOFF_SECONDS, MAX_ATTEMPTS
from kubeshare.kube.resources import NODES, PODS
from kubeshare.simulator.control import Fault

SYSTEM = "kubeshare-system"


def lose_placeholder(cluster: FakeCluster) -> None:
    [placeholder] = cluster.placeholders()
    cluster.server.remove(PODS, placeholder, SYSTEM)


def report_gpu(cluster: FakeCluster, *, healthy: bool, message: str = "") -> None:
    """Sets the health of the first GPU of n1, as its agent does."""
    health = {"healthy": healthy, "message": message}
    cluster.server.change(GPUNODES, "n1", "", lambda obj: obj["spec"]["devices"][0].update(health))


def take(cluster: FakeCluster, name: str) -> None:
    """Creates a native pod, and binds it before any other pod."""
    cluster.native_pod(name)
    cluster.actors.reconcile()


@scenario(n1=1)
async def test_a_lost_placeholder_is_replaced_by_one_with_the_same_gpu(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    cluster.share("a")
    await expect_ready(cluster, "a")
    lose_placeholder(cluster)
    await expect_degraded(cluster, "Healthy")
    assert len(cluster.placeholders()) == 1
    [gpuid] = cluster.vgpus()
    reasons = {event.partition(":")[0] for event in cluster.events(gpuid)}
    assert {"PlaceholderLost", "Healthy"} <= reasons
    cluster.share("b")
    await expect_running(cluster, "b")
    assert_scheduled(cluster, "b", gpuid=gpuid)


@scenario(n1=1)
async def test_who_had_the_gpu_before_is_told_and_has_it_again_after_a_new_start(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    cluster.share("a")
    await expect_ready(cluster, "a")
    await cluster.quiet(5)
    lose_placeholder(cluster)
    await expect_condition(cluster, "a", "Allocated", "GPULost")
    assert any(event.startswith("PlaceholderLost") for event in cluster.events("a"))
    pod = the_pod(cluster, "a")
    cluster.actors.delete(pod)
    await expect_condition(cluster, "a", "Allocated", "Allocated")


@scenario(n1=1)
async def test_a_gpu_that_a_native_pod_got_takes_nobody_until_its_holders_have_gone(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    cluster.share("a")
    await expect_ready(cluster, "a")
    lose_placeholder(cluster)
    take(cluster, "whole")
    assert cluster.running("whole")
    await expect_condition(cluster, "a", "Allocated", "PlaceholderLost")
    cluster.share("b")
    await expect_pending(cluster, "b")
    await cluster.quiet(300)
    assert degraded(cluster)["status"] == "True"
    cluster.delete("a")
    await expect_no_vgpus(cluster)
    cluster.end("whole")
    await expect_running(cluster, "b")


@scenario(n1=2)
async def test_a_placeholder_with_another_gpu_goes_and_few_are_tried(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    lose_placeholder(cluster)
    take(cluster, "whole")
    made: set[str] = set()

    def count(*_: Any) -> None:
        made.update(pod["metadata"]["uid"] for pod in cluster.server.all(PODS, SYSTEM))

    cluster.server.storage.after_change.append(count)
    await cluster.quiet(1800)
    assert len(made) == MAX_ATTEMPTS
    assert not cluster.placeholders()
    assert degraded(cluster)["status"] == "True"
    [gpuid] = cluster.vgpus()
    assert any("is given up" in event for event in cluster.events(gpuid))
    cluster.share("b", "0.9")
    await expect_pending(cluster, "b")
    cluster.delete("a")
    await expect_running(cluster, "b")
    assert cluster.shares_gpu("b")


@scenario(n1=2)
async def test_a_gpu_is_had_back_when_who_got_it_leaves(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    lose_placeholder(cluster)
    take(cluster, "whole")
    await cluster.quiet(10)
    cluster.end("whole")
    await expect_degraded(cluster, "Healthy", seconds=120)


@scenario(n1=1)
async def test_a_placeholder_that_has_ended_is_replaced(cluster: FakeCluster) -> None:
    cluster.start()
    cluster.share("a")
    await expect_ready(cluster, "a")
    [placeholder] = cluster.placeholders()
    evicted = {"phase": "Failed", "reason": "Evicted"}
    cluster.server.change(PODS, placeholder, SYSTEM, lambda pod: pod["status"].update(evicted))
    await expect_degraded(cluster, "PlaceholderLost")
    await expect_degraded(cluster, "Healthy")
    [gpuid] = cluster.vgpus()
    assert not [each for each in cluster.events(gpuid) if each.startswith("OtherGPU")]


@scenario(n1=1)
async def test_placeholders_that_end_by_themselves_are_tried_a_few_times_with_growing_pauses(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("a")
    ended: dict[str, float] = {}

    def end(*_: Any) -> None:
        for pod in cluster.server.all(PODS, SYSTEM):
            if pod["metadata"]["uid"] not in ended:
                ended[pod["metadata"]["uid"]] = asyncio.get_running_loop().time()
                failed = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
                name = pod["metadata"]["name"]
                cluster.server.change(
                    PODS,
                    name,
                    SYSTEM,
                    lambda obj: obj["status"].update(failed),  # noqa: B023
                )

    cluster.server.storage.after_change.append(end)
    lose_placeholder(cluster)
    await cluster.quiet(1800)
    assert len(ended) == MAX_ATTEMPTS
    pauses = [late - early for early, late in pairwise(ended.values())]
    expected = [FIRST_BACKOFF_SECONDS * 2**number for number in range(MAX_ATTEMPTS - 1)]
    assert pauses == pytest.approx(expected, abs=1)


@scenario(n1=1)
async def test_no_placeholder_is_made_for_a_vgpu_of_which_none_was_recorded(
    cluster: FakeCluster,
) -> None:
    """As written by an earlier version: any new placeholder would count as the recorded one."""
    cluster.start()
    await cluster.run("a")
    [gpuid] = cluster.vgpus()
    cluster.server.change(VGPUS, gpuid, "", lambda vgpu: vgpu["spec"].pop("placeholderUid"))
    lose_placeholder(cluster)
    await expect_degraded(cluster, "PlaceholderLost")
    await cluster.quiet(120)
    assert not cluster.placeholders()


@scenario(n1=1)
async def test_a_placeholder_that_only_was_not_seen_yet_is_not_taken_for_lost(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("a")
    await cluster.kill()
    cluster.server.inject(Fault.hang(), verb="list", resource="pods")
    cluster.start()
    await cluster.quiet(60)
    assert degraded(cluster) == {}


@scenario(n1=1)
async def test_a_reserved_vgpu_that_lost_its_placeholder_goes_when_it_is_idle(
    cluster: FakeCluster,
) -> None:
    cluster.reserve("n1", "kept")
    cluster.start()
    await expect_activated(cluster)
    lose_placeholder(cluster)
    await expect_vgpu_deleted(cluster, "kept")
    await expect_placeholders(cluster, 0)


@scenario(n1=2)
async def test_a_gpu_that_has_failed_takes_nobody_and_its_pods_are_kept_and_told(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    cluster.share("a")
    await expect_ready(cluster, "a")
    [gpuid] = cluster.vgpus()
    report_gpu(cluster, healthy=False, message="XID 79")
    await expect_degraded(cluster, "GPUUnhealthy")
    assert "XID 79" in degraded(cluster)["message"]
    await expect_condition(cluster, "a", "Allocated", "GPUUnhealthy")
    assert "XID 79" in cluster.condition("a", "Allocated")["message"]
    assert any("XID 79" in event for event in cluster.events("a"))
    assert any("It takes no new holder" in event for event in cluster.events(gpuid))
    cluster.share("b")
    await expect_running(cluster, "b")
    assert assert_scheduled(cluster, "b").gpuid != gpuid
    await cluster.quiet(300)
    assert cluster.running("a")


@scenario(n1=1)
async def test_a_gpu_that_is_healthy_again_takes_holders(cluster: FakeCluster) -> None:
    cluster.start()
    cluster.share("a")
    await expect_ready(cluster, "a")
    report_gpu(cluster, healthy=False, message="XID 79")
    await expect_condition(cluster, "a", "Allocated", "GPUUnhealthy")
    cluster.share("b")
    await expect_pending(cluster, "b")
    report_gpu(cluster, healthy=True)
    await expect_running(cluster, "b")
    assert cluster.shares_gpu("a", "b")
    await expect_condition(cluster, "a", "Allocated", "Allocated")
    assert degraded(cluster)["status"] == "False"


@scenario(n1=1, n2=1)
async def test_pods_of_a_gpu_that_has_failed_are_evicted_where_that_is_wanted(
    cluster: FakeCluster,
) -> None:
    cluster.configure(gpuFailure="evict")
    cluster.start()
    await cluster.run("a")
    assert assert_scheduled(cluster, "a").node == "n1"
    busy = Fault.answer(429, "TooManyRequests")
    cluster.server.inject(busy, verb="create", resource="pods/eviction", times=2)
    report_gpu(cluster, healthy=False, message="XID 79")
    await expect_event(cluster, "a", "EvictionRefused")
    assert cluster.running("a"), "its budget keeps it"
    await expect_on_node(cluster, "a", "n2")
    await expect_ready(cluster, "a")
    assert any(each.startswith("GPUEviction") for each in cluster.events("a"))
    await expect_vgpus(cluster, 1)


@scenario(n1=1)
async def test_pods_stay_on_a_gpu_whose_driver_is_too_old_for_new_shares(
    cluster: FakeCluster,
) -> None:
    cluster.configure(gpuFailure="evict")
    cluster.start()
    await cluster.run("a")
    pod = the_pod(cluster, "a")
    report_gpu(cluster, healthy=True, message="its driver 470.256.02 is too old")
    condition = await expect_degraded(cluster, "DriverTooOld")
    assert "470.256.02" in condition["message"]
    cluster.share("b")
    await expect_pending(cluster, "b")
    await cluster.quiet(60)
    assert is_same_pod(cluster, pod), "an agent that is rolled out ends nothing"
    report_gpu(cluster, healthy=True)
    await expect_running(cluster, "b")
    assert cluster.shares_gpu("a", "b")


@scenario(n1=1, n2=1)
async def test_pods_leave_a_gpu_that_has_failed_when_that_is_configured_afterwards(
    cluster: FakeCluster,
) -> None:
    cluster.configure(gpuFailure="keep")
    cluster.start()
    await cluster.run("a")
    report_gpu(cluster, healthy=False, message="XID 79")
    await expect_degraded(cluster, "GPUUnhealthy")
    await cluster.quiet(30)
    assert cluster.sharepod("a")["spec"]["nodeName"] == "n1"
    cluster.configure(gpuFailure="evict")
    await expect_on_node(cluster, "a", "n2")


@scenario(n1=1)
async def test_a_gpu_that_comes_back_as_another_leaves_the_old_ones_vgpu_to_its_end(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("a")

    def exchange(obj: Any) -> None:
        [old] = obj["spec"]["devices"]
        gone = old | {"healthy": False, "message": "the driver lists it no more"}
        obj["spec"]["devices"] = [old | {"uuid": "GPU-new"}, gone]

    cluster.server.change(GPUNODES, "n1", "", exchange)
    lose_placeholder(cluster)
    await expect_degraded(cluster, "GPUUnhealthy")
    await cluster.quiet(60)
    assert not cluster.placeholders(), "no placeholder can have a GPU back that is no more"
    cluster.delete("a")
    await expect_no_vgpus(cluster)
    await cluster.run("b")
    [vgpu] = cluster.server.all(VGPUS)
    assert vgpu["spec"]["uuid"] == "GPU-new"


@scenario(n1=1)
async def test_a_placeholder_lost_on_a_cordoned_node_is_not_replaced(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    cluster.server.change(NODES, "n1", "", lambda node: node["spec"].update(unschedulable=True))
    lose_placeholder(cluster)
    await cluster.quiet(120)
    assert not cluster.placeholders()
    cluster.server.change(NODES, "n1", "", lambda node: node["spec"].update(unschedulable=False))
    await expect_placeholders(cluster, 1)


@scenario(n1=1)
async def test_a_gpu_that_a_dra_driver_serves_is_shared_like_any_other(
    cluster: FakeCluster,
) -> None:
    def no_plugin(node: Any) -> None:
        cluster.actors.by_claims["n1"] = int(node["status"]["allocatable"].pop("nvidia.com/gpu"))

    cluster.server.change(NODES, "n1", "", no_plugin)
    cluster.server.change(GPUNODES, "n1", "", lambda found: found["spec"].update(draCount=1))
    cluster.start()
    await cluster.run("a", "0.7")
    cluster.share("b", "0.7")
    await expect_pending(cluster, "b")
    assert cluster.shares_gpu("a")


async def decided_for_a_failed_gpu(cluster: FakeCluster) -> str:
    """SharePod b holds a share of a GPU of n1 that has failed since; returns its vGPU."""
    cluster.start()
    cluster.share("a", "0.3", spec={"nodeSelector": {"kubernetes.io/hostname": "n1"}})
    await expect_running(cluster, "a")
    await cluster.kill("scheduler")
    report_gpu(cluster, healthy=False, message="XID 79")
    await expect_degraded(cluster, "GPUUnhealthy")
    [gpuid] = cluster.vgpus()
    cluster.share("b", id=gpuid, attempt=1, spec={"nodeName": "n1"})
    holder = manifests.holder(cluster.sharepod("b")["metadata"]["uid"], "b")
    cluster.server.change(VGPUS, gpuid, "", lambda vgpu: vgpu["status"]["holders"].append(holder))
    await expect_condition(cluster, "b", "Allocated", "GPUUnhealthy")
    cluster.start("scheduler")
    return gpuid


@scenario(n1=1, n2=1)
async def test_a_decision_for_a_gpu_that_has_failed_meanwhile_is_made_again_elsewhere(
    cluster: FakeCluster,
) -> None:
    await decided_for_a_failed_gpu(cluster)
    await expect_running(cluster, "b")
    assert_scheduled(cluster, "b", node="n2")


@scenario(n1=2)
async def test_of_a_gpu_that_has_failed_another_one_of_the_same_node_takes_the_place(
    cluster: FakeCluster,
) -> None:
    failed = await decided_for_a_failed_gpu(cluster)
    await expect_running(cluster, "b")
    assert assert_scheduled(cluster, "b", node="n1").gpuid != failed
    [entry] = cluster.sharepod("b")["spec"]["gpu"]["setAside"]
    assert (entry["node"], entry["id"]) == ("n1", failed)
    assert any(f"Undone: vGPU {failed}" in event for event in cluster.events("b"))


@scenario(n1=2)
async def test_what_is_set_aside_of_a_node_is_not_chosen_though_it_seems_to_be_fine(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("a", "0.1")
    [gpuid] = cluster.vgpus()
    entry = {"node": "n1", "id": gpuid, "until": "2026-01-01T00:05:00Z", "message": "XID 79"}
    cluster.share("b", "0.1", setAside=[entry])
    await expect_running(cluster, "b")
    assert assert_scheduled(cluster, "b").gpuid != gpuid
    cluster.share("c", "1", setAside=[entry])
    await expect_pending(cluster, "c", f"n1/{gpuid}: set aside until", "XID 79")


@scenario(n1=1)
async def test_a_placeholder_that_nobody_saw_end_is_lost_too(cluster: FakeCluster) -> None:
    """As after a reboot: the times are null in JSON."""
    cluster.start()
    await cluster.run("a")
    [placeholder] = cluster.placeholders()
    unknown = {"reason": "ContainerStatusUnknown", "startedAt": None, "finishedAt": None}
    containers = [{"name": "placeholder", "state": {"terminated": unknown}}]
    status = {"phase": "Failed", "containerStatuses": containers}
    cluster.server.change(PODS, placeholder, SYSTEM, lambda pod: pod["status"].update(status))
    await expect_degraded(cluster, "Healthy")


@scenario(n1=1)
async def test_a_node_whose_clock_is_behind_is_no_sign_of_a_lost_gpu(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")

    def behind(pod: dict[str, Any]) -> None:
        for container in pod["status"]["containerStatuses"]:
            container["state"]["running"]["startedAt"] = "2025-12-31T23:59:30Z"

    cluster.server.change(PODS, "a", "default", behind)
    await expect_ready(cluster, "a")
    assert cluster.condition("a", "Allocated")["reason"] == "Allocated"


@scenario(n1=1, agents=True)
async def test_a_kubelet_that_restarts_costs_nobody_a_placeholder(cluster: FakeCluster) -> None:
    """For a while the agent reports no GPU; its node offers none and is not ready."""
    cluster.start()
    await cluster.run("a")
    [placeholder] = cluster.placeholders()
    before = cluster.pod(placeholder, SYSTEM), cluster.server.all(VGPUS)
    machine = cluster.machines["n1"]

    def ready(status: str) -> None:
        conditions = [{"type": "Ready", "status": status}]
        cluster.server.change(
            NODES, "n1", "", lambda node: node["status"].update(conditions=conditions)
        )

    for restarted, gpus, status in ((True, 0, "Unknown"), (False, 1, "True")):
        machine.knows_gpus = not restarted
        cluster.offer("n1", gpus)
        ready(status)
        await cluster.kill("agent/n1")
        cluster.start("agent/n1")
        await cluster.quiet(60)
    assert (cluster.pod(placeholder, SYSTEM), cluster.server.all(VGPUS)) == before
    assert cluster.running("a")
    assert machine.containers
    cluster.share("b")
    await expect_running(cluster, "b")
