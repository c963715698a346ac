"""Placeholders reserve a GPU, fail, are lost and are deleted."""

import asyncio
from itertools import pairwise

import pytest

from expectations.pods import expect_condition, expect_no_pod, expect_ready, expect_running
from expectations.scheduling import assert_scheduled, expect_decided
from expectations.vgpus import expect_no_vgpus, expect_placeholders, expect_vgpus
from fakes.cluster import FakeCluster, scenario
from kubeshare.api.affinity_terms import require_node
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.v1 import SHAREPODS, VGPUS
from kubeshare.device_manager.placeholder.pods import MAX_FAILURES
from kubeshare.kube.resources import NAMESPACES, PODS, Raw
from kubeshare.simulator.control import Fault


@scenario(n1=1)
async def test_a_placeholder_that_fails_is_made_again_a_bounded_number_of_times(
    cluster: FakeCluster,
) -> None:
    cluster.actors.node_agents = False
    cluster.start()
    cluster.share("a")
    failed: set[str] = set()

    def fail() -> None:
        for pod in cluster.server.all(PODS, "kubeshare-system"):
            failed.add(pod["metadata"]["uid"])
            status = {"phase": "Failed", "message": "UnexpectedAdmissionError"}
            cluster.server.seed(PODS, pod | {"status": status})

    def given_up() -> bool:
        fail()
        [*gpuids] = cluster.vgpus()
        return any("not made again" in event for name in gpuids for event in cluster.events(name))

    started = asyncio.get_running_loop().time()
    await cluster.until(given_up, seconds=120)
    assert asyncio.get_running_loop().time() - started > 10, "without a pause between them"
    assert cluster.condition("a", "Allocated")["reason"] == "PlaceholderFailed"
    await cluster.quiet(600)
    fail()
    assert len(failed) == MAX_FAILURES
    created = [
        each.at
        for each in cluster.server.requests
        if each.resource == "pods" and each.verb == "create" and each.path.namespace == NAMESPACE
    ]
    pauses = [later - earlier for earlier, later in pairwise(created)]
    assert pauses == pytest.approx([2.0**number for number in range(len(pauses))], abs=0.5)
    assert len(pauses) == MAX_FAILURES - 1


@scenario(n1=1)
async def test_an_api_server_that_is_away_is_no_placeholder_that_fails(
    cluster: FakeCluster,
) -> None:
    cluster.actors.node_agents = False
    cluster.start()
    cluster.share("a")
    await expect_placeholders(cluster, 1)
    [name] = cluster.placeholders()
    fault = Fault.answer(500, "InternalError")
    cluster.server.inject(fault, verb="delete", resource="pods", name=name, times=2 * MAX_FAILURES)
    status = {"phase": "Failed", "message": "UnexpectedAdmissionError"}
    cluster.server.change(PODS, name, NAMESPACE, lambda pod: pod.update(status=status))
    cluster.actors.node_agents = True
    await expect_running(cluster, "a")


@scenario(n1=1)
async def test_a_gpu_that_a_native_pod_took_first_is_waited_for_with_kube_schedulers_words(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    cluster.share("a")
    await expect_decided(cluster, "a")
    cluster.native_pod("whole")
    await expect_running(cluster, "whole")
    cluster.start("devices")
    await expect_condition(cluster, "a", "Allocated", "GPUNotFree")
    assert "insufficient nvidia.com/gpu" in cluster.condition("a", "Allocated")["message"]
    cluster.end("whole")
    await expect_running(cluster, "a")


@scenario(n1=1, n2=2)
async def test_a_gpu_that_a_native_pod_took_first_is_left_to_it_where_another_node_has_one(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    for name in ("a", "b"):
        cluster.share(name, "0.4", affinity="together")
    await expect_vgpus(cluster, 1)
    assert_scheduled(cluster, "a", node="n1")
    cluster.native_pod("whole", affinity=require_node({}, "n1"))
    await expect_running(cluster, "whole")
    cluster.start("devices")
    await expect_ready(cluster, "a", "b", seconds=60)
    assert_scheduled(cluster, "b", node="n2", gpuid=assert_scheduled(cluster, "a").gpuid)
    assert any("set aside" in event for event in cluster.events("a"))
    await expect_vgpus(cluster, 1)
    assert cluster.running("whole")


@scenario(n1=1, n2=1)
async def test_a_gpu_that_its_author_has_named_is_waited_for_wherever_else_there_is_one(
    cluster: FakeCluster,
) -> None:
    cluster.native_pod("whole", affinity=require_node({}, "n1"))
    cluster.start("devices")
    await expect_running(cluster, "whole")
    cluster.share("a", id="abcde", spec={"nodeName": "n1"})
    await cluster.quiet(60)
    assert cluster.pod("a") is None
    cluster.end("whole")
    await expect_running(cluster, "a")
    assert cluster.sharepod("a")["spec"]["nodeName"] == "n1"


@scenario(n1=1)
async def test_a_node_agent_that_is_down_is_told_after_a_moment(cluster: FakeCluster) -> None:
    cluster.actors.node_agents = False
    cluster.start()
    cluster.share("a")
    await expect_condition(cluster, "a", "Allocated", "Creating")
    assert "node agent of n1" in cluster.condition("a", "Allocated")["message"]
    cluster.actors.node_agents = True
    cluster.actors.reconcile()
    await expect_ready(cluster, "a")


@scenario(n1=1)
async def test_a_placeholder_without_its_vgpu_goes(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    await cluster.kill()
    [gpuid] = cluster.vgpus()
    cluster.server.remove(SHAREPODS, "a", "default")
    await expect_no_pod(cluster, "a")
    cluster.server.remove(VGPUS, gpuid)
    cluster.start()
    await expect_placeholders(cluster, 0)


@scenario(n1=1)
async def test_the_placeholder_goes_before_its_vgpu(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    kept: list[bool] = []
    cluster.server.storage.after_change.append(
        lambda *_: kept.append(bool(cluster.vgpus()) or not cluster.placeholders())
    )
    cluster.delete("a")
    await expect_no_vgpus(cluster)
    assert all(kept)


@scenario(n1=1)
async def test_a_placeholder_has_a_controller_without_which_no_drain_would_begin(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    cluster.share("a")
    await expect_running(cluster, "a")
    (pod,) = cluster.server.all(PODS, NAMESPACE)
    (owner,) = pod["metadata"]["ownerReferences"]
    namespace = cluster.server.stored(NAMESPACES, NAMESPACE)
    assert namespace is not None
    assert (owner["kind"], owner["uid"]) == ("Namespace", namespace["metadata"]["uid"])
    assert owner["controller"]
    assert "blockOwnerDeletion" not in owner


@scenario(n1=1)
async def test_a_failed_placeholder_that_another_leader_has_replaced_is_not_deleted_again(
    cluster: FakeCluster,
) -> None:
    cluster.actors.node_agents = False
    cluster.start()
    cluster.share("a")
    [name] = await expect_placeholders(cluster, 1)
    replaced: list[Raw] = []

    def replace() -> None:
        pod = cluster.server.stored(PODS, name, NAMESPACE)
        assert pod is not None
        cluster.server.remove(PODS, name, NAMESPACE)
        for field in ("uid", "resourceVersion"):
            del pod["metadata"][field]
        replaced.append(cluster.server.seed(PODS, pod | {"status": {"phase": "Pending"}}))

    cluster.server.inject(Fault.preceded_by(replace), verb="delete", resource="pods", name=name)
    status = {"phase": "Failed", "message": "UnexpectedAdmissionError"}
    cluster.server.change(PODS, name, NAMESPACE, lambda pod: pod.update(status=status))
    await cluster.until(lambda: replaced)
    await cluster.quiet(5)
    pod = cluster.server.stored(PODS, name, NAMESPACE)
    assert pod is not None
    assert pod["metadata"]["uid"] == replaced[0]["metadata"]["uid"]
    assert "deletionTimestamp" not in pod["metadata"]


@scenario(n1=1)
async def test_a_placeholder_gets_a_moment_to_end_so_that_its_gpu_is_free_afterwards(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("a")
    [name] = cluster.placeholders()
    cluster.delete("a")
    await expect_no_vgpus(cluster)
    [asked] = [
        each for each in cluster.server.requests if (each.verb, each.path.name) == ("delete", name)
    ]
    assert asked.body["gracePeriodSeconds"] == 1
