"""The configuration says who places gpushare's pods: Sched, or kube-scheduler and the extender."""

import asyncio

import pytest

from expectations.pods import expect_condition, expect_running, expect_ungated
from expectations.vgpus import expect_holders
from fakes import manifests
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.actors import BY_EXTENDER
from fakes.cluster.extender import bind, fit, offer, placed, pod, schedule, start, vgpus
from fakes.cluster.state import gates, the_pod
from kubeshare.api.types.constants import CONDITION_POD_SCHEDULED
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.resources import PODS
from kubeshare.simulator.control import Fault
from kubeshare.simulator.control_tier.stored import bound

BY_THE_EXTENDER = {"door": "extender"}


@scenario(n1=1)
async def test_the_gate_goes_and_the_extender_places_the_pod(cluster: FakeCluster) -> None:
    cluster.configure(gpushare=BY_THE_EXTENDER)
    await start(cluster)
    cluster.start("scheduler")
    pod(cluster, "a", 4, gated=True)
    await expect_ungated(cluster, "a")
    assert placed(cluster) == {}
    assert "annotations" not in the_pod(cluster, "a")["metadata"]
    assert await schedule(cluster, "a") == ""
    await expect_running(cluster, "a")


@scenario(n1=1)
async def test_pods_that_wait_are_handed_over_when_the_door_changes(cluster: FakeCluster) -> None:
    await start(cluster)
    cluster.start("scheduler")
    pod(cluster, "a", 4, gated=True)
    await expect_condition(cluster, "a", CONDITION_POD_SCHEDULED, "NoRoom")
    cluster.configure(gpushare=BY_THE_EXTENDER)
    await expect_ungated(cluster, "a")
    assert await schedule(cluster, "a") == ""
    await expect_running(cluster, "a")


@scenario(n1=1)
async def test_a_gate_whose_removal_fails_is_removed_again(cluster: FakeCluster) -> None:
    cluster.configure(gpushare=BY_THE_EXTENDER)
    await start(cluster)
    cluster.server.inject(Fault.answer(409, "Conflict"), verb="patch", resource="pods")
    cluster.server.inject(Fault.reset(after=True), verb="patch", resource="pods")
    pod(cluster, "a", 4, gated=True)
    cluster.start("scheduler")
    await expect_ungated(cluster, "a")
    assert await schedule(cluster, "a") == ""
    await expect_holders(cluster, ["a"])


@scenario(n1=1)
async def test_sched_releases_nothing_of_a_pod_that_it_has_handed_over(
    cluster: FakeCluster,
) -> None:
    cluster.configure(gpushare=BY_THE_EXTENDER)
    await start(cluster)
    await cluster.kill("devices", "extender")
    made = pod(cluster, "a", 4, gated=True)
    [vgpu] = vgpus(cluster)
    holder = manifests.holder(made["metadata"]["uid"], "a")
    cluster.server.change(
        VGPUS, vgpu["metadata"]["name"], "", lambda obj: obj["status"].update(holders=[holder])
    )
    conflict = Fault.answer(409, "Conflict", after=True)
    cluster.server.inject(conflict, verb="patch", resource="pods")
    cluster.start("scheduler")
    await expect_ungated(cluster, "a")
    await cluster.quiet(5)
    await expect_holders(cluster, ["a"])


@scenario(n1=1)
async def test_an_invalid_amount_stays_behind_the_gate(cluster: FakeCluster) -> None:
    cluster.configure(gpushare=BY_THE_EXTENDER)
    await start(cluster)
    cluster.start("scheduler")
    pod(cluster, "a", "1.5", gated=True)
    await expect_condition(cluster, "a", CONDITION_POD_SCHEDULED, "Invalid")
    assert gates(cluster, "a")


@scenario(n1=2)
async def test_other_pods_are_placed_by_sched(cluster: FakeCluster) -> None:
    cluster.configure(gpushare=BY_THE_EXTENDER, owned={"mixed": True})
    await start(cluster)
    cluster.start("scheduler")
    cluster.plain("a")
    await expect_running(cluster, "a")


@scenario(n1=1, n2=1)
async def test_a_pod_that_sched_has_placed_is_bound_where_it_said(cluster: FakeCluster) -> None:
    await start(cluster)
    cluster.start("scheduler")
    for name in ("n1", "n2"):
        offer(cluster, name, 16)
    pod(cluster, "a", 4, gated=True)
    await expect_ungated(cluster, "a")
    decided = the_pod(cluster, "a")["metadata"]["annotations"]
    node = decided["kubeshare.nthu/node"]
    await cluster.quiet(1)
    assert (await fit(cluster, "a"))["NodeNames"] == [node]
    assert await bind(cluster, "a", node) == (200, "")
    await expect_running(cluster, "a")
    assert placed(cluster) == {"a": (node, 0)}
    changed = {"ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}
    assert the_pod(cluster, "a")["metadata"]["annotations"] == decided | changed


@scenario(n1=1)
async def test_a_pod_without_a_node_is_not_deleted_for_its_reservation(
    cluster: FakeCluster,
) -> None:
    await start(cluster)
    cluster.server.inject(Fault.hang(), verb="create", resource="pods/binding")
    controller = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r"}
    made = pod(cluster, "a", 4, ownerReferences=[controller | {"controller": True}])
    assert made["spec"]["schedulerName"] == BY_EXTENDER
    binding = asyncio.create_task(bind(cluster, "a"))
    await expect_holders(cluster, ["a"])
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    cluster.server.change(
        PODS, "a", "default", lambda obj: obj["status"].update(conditions=[condition])
    )
    await cluster.quiet(30)
    assert (await binding)[0] == 500
    assert await schedule(cluster, "a") == ""
    assert the_pod(cluster, "a")["metadata"]["uid"] == made["metadata"]["uid"]


@pytest.mark.parametrize("write", [1, 2, 3])
@pytest.mark.parametrize("after", [False, True])
def test_a_pod_with_several_gpus_has_all_or_none(write: int, *, after: bool) -> None:
    @scenario(n1=2)
    async def run(cluster: FakeCluster) -> None:
        cluster.invariants.doubles = True  # it counts the GPUs of SharePods only
        await start(cluster)
        labels = {"aliyun.com/gpu-count": "2"}
        pod(cluster, "a", 8, labels=labels)
        fault = Fault.answer(409, "Conflict", after=after)
        cluster.server.inject_at_write(cluster.server.writes + write, fault)
        assert await schedule(cluster, "a") == ""
        await expect_running(cluster, "a", seconds=90)
        await expect_holders(cluster, ["a"], ["a"])
        found = the_pod(cluster, "a")
        assert bound(found)
        annotations = found["metadata"]["annotations"]
        assert annotations["scheduler.framework.gpushare.allocation"] == '{"0": {"0": 4, "1": 4}}'
        assert len(annotations["kubeshare.nthu/gpuids"].split(",")) == 2
        pod(cluster, "b", 26, labels=labels)
        await cluster.quiet(1)
        assert (await bind(cluster, "b"))[0] == 500
        await expect_holders(cluster, ["a"], ["a"])

    run()


@pytest.mark.parametrize("seen", [True, False])
def test_a_gated_pod_is_not_bound_and_keeps_what_sched_has_reserved(*, seen: bool) -> None:
    """Anybody may call ``bind``; kube-scheduler does not for a gated pod."""

    @scenario(n1=1)
    async def run(cluster: FakeCluster) -> None:
        await start(cluster)
        made = pod(cluster, "a", 4, gated=True)
        holder = manifests.holder(made["metadata"]["uid"], "a")
        [vgpu] = vgpus(cluster)
        cluster.server.change(
            VGPUS, vgpu["metadata"]["name"], "", lambda obj: obj["status"].update(holders=[holder])
        )
        if seen:
            await cluster.quiet(1)
        status, error = await bind(cluster, "a")
        assert (status, "KubeShare's scheduler" in error) == (500, True)
        await expect_holders(cluster, ["a"])

    run()
