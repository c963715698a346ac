"""Pods of gpushare by their manifests alone: nodes, GPU, annotations."""

from typing import Any

from expectations.pods import expect_condition, expect_running, expect_ungated
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.gpushare import dedicate, gated_pod, offer, published
from kubeshare.api.types.constants import CONDITION_POD_SCHEDULED
from kubeshare.api.types.v1 import VGPUS
from kubeshare.device_manager.owned.controller import SETTLED_SECONDS
from kubeshare.kube.resources import NODES, PODS

GPU_MEM = "aliyun.com/gpu-mem"
PREFIX = "ALIYUN_COM_GPU_MEM_"


async def dedicated(cluster: FakeCluster, *names: str, units: int = 32) -> None:
    """Let these nodes be owned by gpushare pods, with this many units of memory."""
    cluster.deadline = 5 * SETTLED_SECONDS
    for name in names:
        await dedicate(cluster, name, units)


def holder(cluster: FakeCluster, name: str) -> dict[str, Any]:
    """The only holder of a pod."""
    found: list[dict[str, Any]] = [
        each
        for vgpu in cluster.server.all(VGPUS)
        for each in vgpu["status"].get("holders", [])
        if each["name"] == name
    ]
    assert len(found) == 1
    return found[0]


@scenario(n1=2, n2=2)
async def test_pods_are_packed_by_memory_on_a_node_of_the_family(cluster: FakeCluster) -> None:
    cluster.start()
    await dedicated(cluster, "n1")
    for name, units in (("a", "6"), ("b", "12"), ("c", "4"), ("d", "10")):
        gated_pod(cluster, name, units)
        await expect_running(cluster, name)
    assert {name: published(cluster, name)["IDX"] for name in "abcd"} == {
        "a": "0",
        "b": "1",
        "c": "1",
        "d": "0",
    }
    share = holder(cluster, "b")
    assert (share["memoryBytes"], share["requestMicros"]) == (12 << 30, 750_000)
    assert share["limitMicros"] == 1_000_000


@scenario(n1=1)
async def test_the_published_annotations_hold_from_the_decision_to_the_end(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await dedicated(cluster, "n1", units=16)
    gated_pod(cluster, "a", "3", annotations={PREFIX + "IDX": "7", PREFIX + "ASSIGNED": "true"})
    await expect_running(cluster, "a")
    found = published(cluster, "a")
    assert found.pop("ASSUME_TIME").isdigit()
    assert found.pop("ASSIGNED") in ("false", "true")
    assert found == {"IDX": "0", "POD": "3", "DEV": "16"}
    running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    state = {"containerStatuses": [{"name": "main", "state": running}]}
    cluster.server.change(PODS, "a", "default", lambda obj: obj["status"].update(state))
    await cluster.until(lambda: published(cluster, "a")["ASSIGNED"] == "true")
    cluster.end("a")
    await cluster.until(lambda: not published(cluster, "a"))


@scenario(n1=2)
async def test_the_memory_of_a_pod_with_the_label_is_divided_among_gpus(
    cluster: FakeCluster,
) -> None:
    cluster.invariants.doubles = True  # it counts the GPUs of SharePods only
    cluster.start()
    await dedicated(cluster, "n1")
    gated_pod(cluster, "a", "8", labels={"aliyun.com/gpu-count": "2"})
    await expect_running(cluster, "a")
    allocation = published(cluster, "a")["scheduler.framework.gpushare.allocation"]
    assert allocation == '{"0": {"0": 4, "1": 4}}'


@scenario(n1=2, n2=2)
async def test_neither_family_uses_the_nodes_of_the_other(cluster: FakeCluster) -> None:
    cluster.start()
    await dedicated(cluster, "n1")
    cluster.share("s", "0.1")
    await expect_running(cluster, "s")
    assert cluster.sharepod("s")["spec"]["nodeName"] == "n2"
    gated_pod(cluster, "a", "16")
    gated_pod(cluster, "b", "16")
    await expect_running(cluster, "a", "b")
    gated_pod(cluster, "c", "1")
    await expect_condition(cluster, "c", CONDITION_POD_SCHEDULED, status="False")
    condition = cluster.pod_condition("c")
    assert "n2: not dedicated to gpushare pods" in condition["message"]


@scenario(n1=1)
async def test_a_node_that_does_not_offer_the_memory_has_none(cluster: FakeCluster) -> None:
    cluster.start()
    await dedicated(cluster, "n1")
    withdrawn: dict[str, str] = {"nvidia.com/gpu": "0"}
    cluster.server.change(NODES, "n1", "", lambda obj: obj["status"].update(allocatable=withdrawn))
    gated_pod(cluster, "a", "3")
    await expect_condition(cluster, "a", CONDITION_POD_SCHEDULED, status="False")
    assert f"{GPU_MEM} 0 left, 3 asked" in cluster.pod_condition("a")["message"]
    offer(cluster, "n1", 16)
    await expect_running(cluster, "a")


@scenario(n1=1)
async def test_the_unit_is_that_of_the_configuration(cluster: FakeCluster) -> None:
    cluster.configure(gpushare={"memoryUnit": "MiB"})
    cluster.start()
    await dedicated(cluster, "n1", units=16384)
    gated_pod(cluster, "a", "1024")
    await expect_running(cluster, "a")
    assert holder(cluster, "a")["memoryBytes"] == 1 << 30
    assert published(cluster, "a")["DEV"] == "16384"


@scenario(n1=1)
async def test_a_pod_that_asks_for_nothing_possible_is_invalid(cluster: FakeCluster) -> None:
    cluster.start()
    await dedicated(cluster, "n1")
    gated_pod(cluster, "a", "3", labels={"aliyun.com/gpu-count": "2"})
    await expect_condition(cluster, "a", CONDITION_POD_SCHEDULED, "Invalid")
    assert "aliyun.com/gpu-count: 3 units" in cluster.pod_condition("a")["message"]
    gated_pod(cluster, "b", "17")
    await expect_condition(cluster, "b", CONDITION_POD_SCHEDULED, "NeverFits")


@scenario(n1=2)
async def test_pods_of_the_extender_are_left_to_it_but_for_gangs(cluster: FakeCluster) -> None:
    cluster.configure(gpushare={"door": "extender"})
    cluster.start()
    await dedicated(cluster, "n1")
    gated_pod(cluster, "a", "6")
    await expect_ungated(cluster, "a")
    for name in "bc":
        gang = {"sharedgpu/group_name": "g", "sharedgpu/min_available": "2"}
        gated_pod(cluster, name, "6", labels=gang)
    await expect_running(cluster, "b", "c")
    assert all(holder(cluster, name)["memoryBytes"] == 6 << 30 for name in "bc")
    names = {
        each["name"]
        for vgpu in cluster.server.all(VGPUS)
        for each in vgpu["status"].get("holders", [])
    }
    assert names == {"b", "c"}
