"""Pods of Tencent's Gaia by their manifests alone: nodes, GPUs, limits, annotations."""

from typing import Any

import pytest

from expectations.pods import expect_condition, expect_running
from fakes.cluster import FakeCluster, run_scenario, scenario
from fakes.cluster.vcuda import asking, dedicate, gated_pod, published
from kubeshare.api.types.constants import CONDITION_POD_SCHEDULED
from kubeshare.api.types.v1 import VGPUS
from kubeshare.device_manager.owned.controller import SETTLED_SECONDS
from kubeshare.dialects.vcuda import MEMORY
from kubeshare.dialects.write_back import VCUDA_INDEX as INDEX
from kubeshare.kube.resources import PODS


async def dedicated(cluster: FakeCluster, node: str) -> None:
    """Let a node be owned by vcuda pods, with four GPUs as in the Gaia paper."""
    cluster.deadline = 5 * SETTLED_SECONDS
    await dedicate(cluster, node, 4)
    cluster.link(node, gpu_0_1="PXB", gpu_2_3="PIX")


def holders(cluster: FakeCluster, name: str) -> list[dict[str, Any]]:
    return [
        each
        for vgpu in cluster.server.all(VGPUS)
        for each in vgpu["status"].get("holders", [])
        if each["name"] == name
    ]


async def until_false(cluster: FakeCluster, name: str) -> str:
    """The message of a pod's condition once it is not scheduled."""
    await expect_condition(cluster, name, CONDITION_POD_SCHEDULED, status="False")
    return str(cluster.pod_condition(name)["message"])


@scenario(n1=4, n2=4)
async def test_shares_fill_a_gpu_and_whole_gpus_are_others_of_a_node_of_the_family(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await dedicated(cluster, "n1")
    for name, cores, blocks in (("a", "50", "4"), ("b", "60", "4"), ("c", "40", "4")):
        gated_pod(cluster, name, asking("main", cores, blocks))
        await expect_running(cluster, name)
    gated_pod(cluster, "d", asking("main", "200"))
    await expect_running(cluster, "d")
    assert {name: published(cluster, name)[INDEX + "0"] for name in "abcd"} == {
        "a": "2",
        "b": "3",
        "c": "3",
        "d": "0,1",
    }
    [share] = holders(cluster, "b")
    assert (share["requestMicros"], share["limitMicros"]) == (600_000, 600_000)
    assert share["memoryBytes"] == 1 << 30
    gated_pod(cluster, "e", asking("main", "100"))
    assert "n2: not dedicated to vcuda pods" in await until_false(cluster, "e")


@scenario(n1=4)
async def test_the_published_annotations_hold_from_the_decision_to_the_end(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await dedicated(cluster, "n1")
    forged = {INDEX + "0": "1", INDEX + "5": "7", "tencent.com/predicate-node": "elsewhere"}
    gated_pod(cluster, "a", asking("main", "50", "4"), **forged)
    await expect_running(cluster, "a")
    found = published(cluster, "a")
    assert found.pop("tencent.com/predicate-time").isdigit()
    assert found.pop("tencent.com/gpu-assigned") in ("false", "true")
    assert found == {INDEX + "0": "2", "tencent.com/predicate-node": "n1"}
    running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    state = {"containerStatuses": [{"name": "main", "state": running}]}
    cluster.server.change(PODS, "a", "default", lambda obj: obj["status"].update(state))
    await cluster.until(lambda: published(cluster, "a")["tencent.com/gpu-assigned"] == "true")
    cluster.end("a")
    await cluster.until(lambda: not published(cluster, "a"))


@scenario(n1=4)
async def test_each_container_has_its_own_gpus(cluster: FakeCluster) -> None:
    cluster.start()
    await dedicated(cluster, "n1")
    gated_pod(cluster, "a", asking("side", "50", "4"), {"name": "no"}, asking("main", "200"))
    await expect_running(cluster, "a")
    found = published(cluster, "a")
    gpus = found[INDEX + "2"].split(",")
    assert len(gpus) == 2
    assert found[INDEX + "0"] not in gpus
    assert INDEX + "1" not in found
    assert sorted(each["share"] for each in holders(cluster, "a")) == ["main", "main", "side"]


@scenario(n1=4)
async def test_a_container_is_held_to_its_cores_unless_annotations_say_otherwise(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await dedicated(cluster, "n1")
    alone = {"kubeshare.nthu/limit-alone": "true"}
    for name, annotations in (
        ("a", {}),
        ("b", {"tencent.com/vcuda-core-limit": "40"}),
        ("c", alone),
    ):
        gated_pod(cluster, name, asking("main", "30", "4"), **annotations)
        await expect_running(cluster, name)
    limits = {}
    for name in "abc":
        [share] = holders(cluster, name)
        limits[name] = (share["limitMicros"], share["limitAloneMicros"])
    assert limits == {"a": (300_000, 0), "b": (400_000, 0), "c": (300_000, 1_000_000)}


@scenario(n1=4)
async def test_what_no_gpu_can_give_is_never_placed(cluster: FakeCluster) -> None:
    cluster.start()
    await dedicated(cluster, "n1")
    gated_pod(cluster, "a", asking("main", "50", "65"))
    await expect_condition(cluster, "a", CONDITION_POD_SCHEDULED, "NeverFits")
    gated_pod(cluster, "b", asking("main", "150", "4"))
    await expect_condition(cluster, "b", CONDITION_POD_SCHEDULED, "Invalid")
    assert "150 is more than one GPU" in cluster.pod_condition("b")["message"]
    gated_pod(cluster, "c", asking("main", "100", "1000"))
    assert f"{MEMORY} 256 left, 1000 asked" in await until_false(cluster, "c")


@pytest.mark.parametrize(
    ("cores", "gpus"),
    [
        (["100"], ["2"]),  # experiment 1, which gave GPU 2 or 3 at random
        (["200"], ["2,3"]),
        (["50", "40", "10"], ["2", "2", "2"]),  # experiment 2
        (["100", "100"], ["2", "3"]),  # experiment 3
        (["100", "200"], ["2", "0,1"]),  # experiment 4
        (["300"], ["0,2,3"]),
    ],
)
def test_the_experiments_of_the_paper(cores: list[str], gpus: list[str]) -> None:
    async def play(cluster: FakeCluster) -> None:
        cluster.start()
        await dedicated(cluster, "n1")
        for number, amount in enumerate(cores):
            blocks = "4" if int(amount) < 100 else ""
            gated_pod(cluster, f"p{number}", asking("main", amount, blocks))
            await expect_running(cluster, f"p{number}")
        found = [published(cluster, f"p{number}")[INDEX + "0"] for number in range(len(cores))]
        assert found == gpus

    run_scenario(play, n1=4)


@scenario(n1=2, n2=2, n3=2)
async def test_whole_gpus_are_the_closest_ones_of_all_nodes_of_the_family(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    cluster.deadline = 5 * SETTLED_SECONDS
    for node, link in (("n1", "SYS"), ("n2", "PIX"), ("n3", "NV2")):
        await dedicate(cluster, node, 2)
        cluster.link(node, gpu_0_1=link)
    for name, node in (("a", "n3"), ("b", "n2"), ("c", "n1")):
        gated_pod(cluster, name, asking("main", "200"))
        await expect_running(cluster, name)
        assert published(cluster, name)["tencent.com/predicate-node"] == node
