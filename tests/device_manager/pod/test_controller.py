"""Plain pods after their gate is removed, and cleanup of those never started."""

from itertools import pairwise
from typing import Any

import pytest

from expectations.pods import (
    expect_bound,
    expect_condition,
    expect_event,
    expect_plain_pods,
    expect_replicas,
    expect_running,
    expect_ungated,
)
from expectations.vgpus import expect_cleaned_up, expect_holders, expect_no_vgpus, expect_vgpus
from fakes import manifests
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.state import the_pod
from kubeshare.api.types.constants import CONDITION_POD_SCHEDULED
from kubeshare.api.types.v1 import VGPUS
from kubeshare.device_manager.pod.controller import FIRST_WAIT_SECONDS
from kubeshare.kube.resources import NODES, PODS

Raw = dict[str, Any]


@scenario(n1=1)
async def test_a_pod_that_is_deleted_while_it_waits_for_its_gpu_leaves_nothing(
    cluster: FakeCluster,
) -> None:
    cluster.actors.node_agents = False
    cluster.start()
    pod = cluster.plain("a")
    await expect_holders(cluster, ["a"])
    cluster.actors.delete(pod)
    await expect_cleaned_up(cluster)


@scenario(n1=1)
async def test_a_pod_that_ends_gives_its_part_back(cluster: FakeCluster) -> None:
    cluster.start()
    cluster.plain("a")
    await expect_running(cluster, "a")
    cluster.end("a")
    await expect_cleaned_up(cluster)


@scenario(n1=1)
async def test_a_pod_that_fails_before_it_is_bound_gives_its_part_back(
    cluster: FakeCluster,
) -> None:
    """As a pod fails whose active deadline is exceeded."""
    cluster.actors.node_agents = False
    cluster.start()
    cluster.plain("a")
    await expect_holders(cluster, ["a"])
    cluster.server.change(PODS, "a", "default", lambda pod: pod["status"].update(phase="Failed"))
    await expect_no_vgpus(cluster)


@scenario(n1=1)
async def test_replicas_share_one_gpu_and_are_replaced_one_by_one(cluster: FakeCluster) -> None:
    cluster.start()
    cluster.replicas("web", 2)
    first, _ = await expect_replicas(cluster, 2)
    assert len(cluster.vgpus()) == 1
    cluster.actors.delete(the_pod(cluster, first))
    replicas = await expect_replicas(cluster, 2, without=first)
    assert [sorted(names) for names in cluster.vgpus().values()] == [sorted(replicas)]


@scenario(n1=1, n2=1)
async def test_a_controllers_pod_for_which_there_is_no_room_after_all_is_made_again(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    cluster.actors.full = {"n1", "n2"}
    cluster.replicas("web", 1)
    await expect_event(cluster, "web-0", "NodeFull")
    await expect_plain_pods(cluster, 1, without="web-0")
    cluster.actors.full = set()
    cluster.actors.reconcile()
    await expect_replicas(cluster, 1)
    assert len(cluster.vgpus()) == 1


@scenario(n1=1)
async def test_the_pods_of_a_controller_are_made_again_less_and_less_often(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    cluster.actors.full = {"n1"}
    cluster.replicas("web", 1)
    await cluster.quiet(150)
    asked = [each for each in cluster.server.requests if each.verb == "delete"]
    deleted = [each for each in asked if each.path.name.startswith("web-")]
    assert 2 <= len(deleted) <= 4
    # The next pod is made, and found to be unschedulable, within a second.
    first, *_ = waits = [late.at - early.at for early, late in pairwise(deleted)]
    assert deleted[0].at < FIRST_WAIT_SECONDS + 5
    assert waits == pytest.approx([first * 2**number for number in range(len(waits))], abs=2)
    assert first == pytest.approx(2 * FIRST_WAIT_SECONDS, abs=2)


@scenario(n1=1)
async def test_a_pod_of_its_own_keeps_its_place_and_says_why_it_waits(cluster: FakeCluster) -> None:
    cluster.start()
    cluster.actors.full = {"n1"}
    cluster.plain("a")
    await expect_event(cluster, "a", "Unschedulable")
    event = next(each for each in cluster.events("a") if "Unschedulable" in each)
    assert "kube-scheduler says: insufficient cpu" in event
    assert "keeps its share" in event
    cluster.actors.full = set()
    cluster.actors.reconcile()
    await expect_running(cluster, "a")


@scenario(n1=2)
async def test_a_pod_of_two_gpus_has_its_uid_in_both_holders(cluster: FakeCluster) -> None:
    cluster.start()
    pod = cluster.plain("a", "0.6", annotations={"kubeshare.nthu/count": "2"})
    cluster.invariants.doubles = True
    await expect_running(cluster, "a")
    assert list(cluster.vgpus().values()) == [["a"], ["a"]]
    assert cluster.pod_uids() == {"a": pod["metadata"]["uid"]}


@scenario(n1=2)
async def test_a_pod_is_not_let_run_while_one_of_its_gpus_is_not_held(cluster: FakeCluster) -> None:
    cluster.actors.binds = False
    cluster.invariants.doubles = True
    cluster.start()
    cluster.plain("a", "0.6", annotations={"kubeshare.nthu/count": "2"})
    await expect_ungated(cluster, "a")
    await cluster.kill()
    cluster.server.change(
        VGPUS, min(cluster.vgpus()), "", lambda obj: obj["status"].update(holders=[])
    )
    cluster.actors.binds = True
    cluster.start("devices")
    await expect_bound(cluster, "a")
    await cluster.quiet(5)
    assert cluster.pod_uids() == {"a": ""}


@scenario(n1=1, n2=1)
async def test_a_pod_that_somebody_bound_elsewhere_is_given_nothing(cluster: FakeCluster) -> None:
    cluster.actors.binds = False
    cluster.start()
    cluster.plain("a")
    await expect_condition(cluster, "a", CONDITION_POD_SCHEDULED, "Bound")
    (gpuid,) = cluster.vgpus()
    other = {"n1": "n2", "n2": "n1"}[cluster.vgpu(gpuid)["spec"]["nodeName"]]
    cluster.server.change(PODS, "a", "default", lambda pod: pod["spec"].update(nodeName=other))
    await expect_no_vgpus(cluster)
    assert not cluster.running("a")


@scenario(n1=1, n2=1)
async def test_a_controllers_pod_on_a_node_that_is_gone_runs_elsewhere(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    cluster.replicas("web", 1)
    (first,) = await expect_replicas(cluster, 1)
    cluster.lose_node(the_pod(cluster, first)["spec"]["nodeName"])
    await expect_replicas(cluster, 1, without=first)
    await expect_vgpus(cluster, 1, placeholders=1)
    assert len(cluster.server.all(NODES)) == 1


@scenario(n1=1)
async def test_a_pod_that_asks_for_a_number_of_gpus_alone_is_told_that_it_gets_none(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.quiet(1)
    count, memory = {"aliyun.com/gpu-count": "2"}, {"aliyun.com/gpu-mem": "3"}
    for name, limits in (("a", count), ("b", count | memory), ("c", {"cpu": "1"})):
        made = manifests.pod(name, limits, metadata={"namespace": "default"})
        cluster.server.seed(PODS, made | {"status": {"phase": "Pending"}})
    await expect_event(cluster, "a", "NoGPU", "ask for aliyun.com/gpu-mem")
    await cluster.quiet(5)
    assert not [each for name in "bc" for each in cluster.events(name) if "NoGPU" in each]
    assert len([each for each in cluster.events("a") if "NoGPU" in each]) == 1
