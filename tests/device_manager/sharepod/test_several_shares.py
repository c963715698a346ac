"""SharePods and pods of several different shares, from the manifest to their release."""

from typing import Any

import pytest

from expectations.pods import (
    expect_bound,
    expect_condition,
    expect_evictions,
    expect_ready,
    expect_running,
)
from expectations.scheduling import expect_pending
from expectations.vgpus import expect_cleaned_up, expect_holding, expect_no_vgpus, expect_released
from fakes.cluster import FakeCluster, run_scenario, scenario
from fakes.cluster.state import holding, the_pod
from kubeshare.api.types.constants import VGPU_RESOURCE
from kubeshare.api.types.v1 import SHAREPODS, VGPUS
from kubeshare.dialects.shares import read_annotation
from kubeshare.kube.resources import RESOURCE_QUOTAS
from kubeshare.simulator.control_tier.stored import holders

Raw = dict[str, Any]

CONTAINERS = [{"name": name, "image": "x"} for name in ("learn", "serve", "log")]
"""Of which the last uses no GPU."""
ABSENT = {"kubeshare.nthu/request": "", "kubeshare.nthu/memory": ""}


def two_containers(learn: str, serve: str) -> list[Raw]:
    """A share for each of two containers, with these requests."""
    return [
        {"name": name, "request": request, "memory": "2Gi", "containers": [name]}
        for name, request in (("learn", learn), ("serve", serve))
    ]


def placed(cluster: FakeCluster) -> list[list[tuple[str, int]]]:
    """The shares and requests of the holders of each GPU, the fullest GPU first."""
    found = [
        sorted((each["share"], each["requestMicros"]) for each in holders(vgpu))
        for vgpu in cluster.server.all(VGPUS)
    ]
    return sorted(found, key=lambda shares: [-sum(micros for _, micros in shares), shares])


def pod_uids(cluster: FakeCluster) -> set[str]:
    """The uids of pods that the holders name."""
    return {each["podUid"] for vgpu in cluster.server.all(VGPUS) for each in holders(vgpu)}


def users(pod: Raw) -> list[str]:
    """The containers that ask for the GPUs of their pod."""
    limits = {
        each["name"]: each.get("resources", {}).get("limits", {})
        for each in pod["spec"]["containers"]
    }
    return [name for name, limit in limits.items() if limit.get(VGPU_RESOURCE) == "1"]


@scenario(n1=3)
async def test_two_and_a_half_gpus(cluster: FakeCluster) -> None:
    cluster.start()
    cluster.share("a", gpu={"request": "2.5"})
    await expect_ready(cluster, "a")
    whole, rest = ("whole", 1_000_000), ("rest", 500_000)
    assert placed(cluster) == [[whole], [whole], [rest]]
    made = cluster.sharepod("a")
    assert len(made["spec"]["gpu"]["ids"]) == 3
    gpus = [each["id"] for each in made["status"]["gpus"]]
    assert (len(gpus), made["status"]["summary"]["ids"]) == (3, ",".join(gpus))
    share = {"request": "2.5", "limit": "3", "memory": "2.5"}
    assert made["status"]["share"] == share
    pod = the_pod(cluster, "a")
    assert pod_uids(cluster) == {pod["metadata"]["uid"]}
    assert users(pod) == ["main"]
    assert "request=1,limit=1,memory=1,count=2" in pod["metadata"]["annotations"].values()
    # The rest of the third GPU is for others.
    cluster.share("b", "0.5", memory="1Gi")
    await expect_running(cluster, "b")
    cluster.delete("a")
    await expect_released(cluster, "a")
    cluster.delete("b")
    await expect_cleaned_up(cluster)


@pytest.mark.parametrize(
    ("serve", "gpus"),
    [
        ("0.4", [[("learn", 600_000), ("serve", 400_000)]]),
        ("0.5", [[("learn", 600_000)], [("serve", 500_000)]]),
    ],
)
@pytest.mark.parametrize("plain", [False, True], ids=["SharePod", "pod"])
def test_two_containers_with_shares_of_their_own(
    serve: str, gpus: list[list[tuple[str, int]]], *, plain: bool
) -> None:
    shares = two_containers("0.6", serve)

    async def scenario(cluster: FakeCluster) -> None:
        cluster.start()
        if plain:
            written = {
                f"kubeshare.nthu/share.{each['name']}": (
                    f"request={each['request']},memory=2Gi,containers={each['name']}"
                )
                for each in shares
            }
            # As the admission policy makes it.
            asking = [
                each | {"resources": {"limits": {VGPU_RESOURCE: "1"}}} for each in CONTAINERS[:2]
            ]
            spec = {"containers": [*asking, CONTAINERS[2]]}
            cluster.plain("a", "", annotations=ABSENT | written, spec=spec)
            await expect_running(cluster, "a")
        else:
            cluster.share("a", gpu={"shares": shares}, spec={"containers": CONTAINERS})
            await expect_ready(cluster, "a")
        pod = the_pod(cluster, "a")
        assert placed(cluster) == gpus
        assert pod_uids(cluster) == {pod["metadata"]["uid"]}
        assert users(pod) == ["learn", "serve"]
        for name in ("learn", "serve"):
            key = f"kubeshare.nthu/share.{name}"
            share = read_annotation(name, pod["metadata"]["annotations"][key], key)
            assert share.containers == (name,)
        if plain:
            cluster.actors.delete(pod)
        else:
            cluster.delete("a")
        await expect_no_vgpus(cluster)

    run_scenario(scenario, n1=2)


@scenario(n1=1)
async def test_all_or_none(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("other", "0.5")
    gpu = {"shares": two_containers("0.5", "0.5")}
    cluster.share("a", gpu=gpu, spec={"containers": CONTAINERS})
    await expect_pending(cluster, "a", "not all shares fit on n1 together")
    assert holding(cluster) == ["other"]
    cluster.delete("other")
    await expect_running(cluster, "a")
    await expect_holding(cluster, "a", "a")


@scenario(n1=2)
async def test_annotations_of_the_author_do_not_reach_the_pod(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run(
        "a", annotations={"kubeshare.nthu/share.learn": "containers=main", "note": "b"}
    )
    annotations = the_pod(cluster, "a")["metadata"]["annotations"]
    assert annotations["note"] == "b"
    assert "kubeshare.nthu/share.learn" not in annotations


@scenario(n1=2)
async def test_the_author_cannot_choose_the_gpus_of_several_shares(cluster: FakeCluster) -> None:
    cluster.start()
    gpu = {"shares": two_containers("0.5", "0.6"), "ids": ["x", "y"]}
    cluster.share("a", gpu=gpu, spec={"containers": CONTAINERS, "nodeName": "n1"})
    await expect_condition(cluster, "a", "Scheduled", "Invalid")
    assert "the scheduler chooses" in cluster.condition("a", "Scheduled")["message"]
    assert not cluster.vgpus()


@scenario(n1=2)
async def test_a_container_that_asks_and_uses_no_share_is_refused_by_name(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    asking = {"resources": {"limits": {VGPU_RESOURCE: "1"}}}
    containers = [*CONTAINERS[:2], CONTAINERS[2] | asking]
    gpu = {"shares": two_containers("0.5", "0.6")}
    cluster.share("a", gpu=gpu, spec={"containers": containers})
    await expect_pending(cluster, "a", "container log asks", "uses no share", reason="Invalid")


@scenario(n1=2)
async def test_a_decision_of_several_shares_is_made_again_when_its_node_is_full(
    cluster: FakeCluster,
) -> None:
    cluster.add_node("n2", 2)
    cluster.actors.full = {"n1"}
    cluster.start()
    gpu = {"shares": two_containers("0.6", "0.6")}
    cluster.share("a", gpu=gpu, spec={"containers": CONTAINERS})
    await expect_running(cluster, "a")
    assert cluster.sharepod("a")["spec"]["nodeName"] == "n2"
    assert [len(each) for each in placed(cluster) if each] == [1, 1]


@scenario(n1=1)
async def test_a_scheduler_that_was_killed_after_its_first_holder_goes_on(
    cluster: FakeCluster,
) -> None:
    gpu = {"shares": two_containers("0.6", "0.4")}
    made = cluster.share("a", gpu=gpu, spec={"containers": CONTAINERS})
    cluster.start()
    await cluster.until(lambda: any(placed(cluster)))
    await cluster.kill("scheduler")
    cluster.start("scheduler")
    await expect_ready(cluster, "a")
    assert placed(cluster) == [[("learn", 600_000), ("serve", 400_000)]]
    assert cluster.server.stored(SHAREPODS, made["metadata"]["name"], "default")
    await expect_condition(cluster, "a", "Allocated", "Allocated")


@scenario(n1=1, n2=1)
async def test_a_pod_of_two_shares_of_a_failed_gpu_is_evicted_once(cluster: FakeCluster) -> None:
    cluster.configure(gpuFailure="evict")
    cluster.start()
    gpu = {"shares": two_containers("0.6", "0.4")}
    cluster.share("a", gpu=gpu, spec={"containers": CONTAINERS})
    await expect_ready(cluster, "a")
    node = cluster.sharepod("a")["spec"]["nodeName"]
    cluster.actors.removes = False
    cluster.fail_gpus(node, "XID 79")
    await expect_evictions(cluster, "a")
    pod = the_pod(cluster, "a")["metadata"]["name"]
    degraded = [event for event in cluster.events(pod) if "that this pod shares" in event]
    assert len(degraded) == 1
    cluster.actors.removes = True
    cluster.actors.reconcile()
    await expect_bound(cluster, "a", without=node)
    await expect_running(cluster, "a")


@scenario(n1=1)
async def test_shares_whose_sharepod_is_gone_are_removed_together(cluster: FakeCluster) -> None:
    cluster.actors.binds = False
    cluster.start()
    gpu = {"shares": two_containers("0.6", "0.4")}
    cluster.share("a", gpu=gpu, spec={"containers": CONTAINERS})
    await expect_holding(cluster, "a", "a")
    await cluster.kill("devices")
    cluster.server.remove(SHAREPODS, "a", "default")
    cluster.start("devices")
    await expect_no_vgpus(cluster)


@scenario(n1=2)
async def test_a_quota_counts_all_shares(cluster: FakeCluster) -> None:
    hard = {"requests.kubeshare.nthu/gpu": "1"}
    metadata = {"name": "gpus", "namespace": "default"}
    cluster.server.seed(RESOURCE_QUOTAS, {"metadata": metadata, "spec": {"hard": hard}})
    cluster.start()
    gpu = {"shares": two_containers("0.6", "0.5")}
    cluster.share("a", gpu=gpu, spec={"containers": CONTAINERS})
    await expect_pending(cluster, "a", "0 held, 1.1 asked", reason="QuotaExceeded")
    gpu = {"shares": two_containers("0.6", "0.4")}
    cluster.share("b", gpu=gpu, spec={"containers": CONTAINERS})
    await expect_running(cluster, "b")


@scenario(n1=2)
async def test_pods_of_several_shares_are_preempted_for_others(cluster: FakeCluster) -> None:
    cluster.configure(preemption=True)
    cluster.start()
    marked = {"kubeshare.nthu/preemptible": "true"}
    gpu = {"shares": two_containers("0.6", "0.6")}
    cluster.share("low", gpu=gpu, spec={"containers": CONTAINERS}, annotations=marked)
    await expect_running(cluster, "low")
    priority = {"sharedgpu/priority": "5"}
    cluster.share("high", gpu=gpu, spec={"containers": CONTAINERS}, labels=priority)
    await expect_evictions(cluster, "low")
    await expect_running(cluster, "high")
    await expect_pending(cluster, "low", reason="NoRoom")


@scenario(n1=2)
async def test_members_of_a_gang_have_several_shares(cluster: FakeCluster) -> None:
    cluster.start()
    labels = {"sharedgpu/group_name": "g", "sharedgpu/min_available": "2"}
    gpu = {"shares": two_containers("0.6", "0.4")}
    cluster.share("a", gpu=gpu, spec={"containers": CONTAINERS}, labels=labels)
    await expect_pending(cluster, "a", reason="GangIncomplete")
    cluster.share("b", gpu=gpu, spec={"containers": CONTAINERS}, labels=labels)
    await expect_running(cluster, "a", "b")
    assert [len(each) for each in placed(cluster)] == [2, 2]
    cluster.delete("a")
    cluster.delete("b")
    await expect_cleaned_up(cluster)
