"""Which pod has how much of which GPU: by holders, or by annotations."""

import json
from typing import Any

import pytest

from expectations.pods import expect_running
from fakes import manifests
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.gpushare import dedicate, gated_pod
from kubeshare.cli.inspect.command import as_fields
from kubeshare.cli.inspect.objects import NoNodeError, read
from kubeshare.cli.inspect.tables import details, summary
from kubeshare.cli.inspect.usage import NodeUsage
from kubeshare.device_manager.owned.controller import SETTLED_SECONDS
from kubeshare.kube.resources import NODES, PODS

INDEX = "ALIYUN_COM_GPU_MEM_IDX"
ALLOCATION = "scheduler.framework.gpushare.allocation"


def offer(cluster: FakeCluster, name: str, memory: str, count: str) -> None:
    """Let a node offer GPU memory, with an address."""
    resources = {"aliyun.com/gpu-mem": memory, "aliyun.com/gpu-count": count}
    addresses = [
        {"type": "Hostname", "address": name},
        {"type": "InternalIP", "address": "10.0.0.1"},
    ]

    def change(node: dict[str, Any]) -> None:
        node["status"]["allocatable"].update(resources)
        node["status"]["addresses"] = addresses

    cluster.server.change(NODES, name, "", change)


def annotated(
    cluster: FakeCluster, name: str, *units: str, phase: str = "Running", **annotations: str
) -> None:
    """A pod on node n1, as Alibaba's extender bound it; each container has its units."""
    metadata = {"namespace": "default", "annotations": annotations}
    containers = [
        {
            "name": f"c{number}",
            "image": "train:1",
            "resources": {"limits": {"aliyun.com/gpu-mem": each}},
        }
        for number, each in enumerate(units)
    ]
    made = manifests.pod(name, metadata=metadata, nodeName="n1", containers=containers)
    cluster.server.seed(PODS, made | {"status": {"phase": phase}})


async def inspected(cluster: FakeCluster, node: str | None = None) -> list[NodeUsage]:
    async with cluster.server.client() as client:
        return await read(client, node)


def held(node: NodeUsage) -> dict[str, Any]:
    return {pod.name: dict(pod.gpus) or pod.pending for pod in node.pods}


@scenario(n1=2)
async def test_pods_of_a_foreign_node_are_read_by_their_annotations(cluster: FakeCluster) -> None:
    offer(cluster, "n1", "33", "2")
    annotated(cluster, "a", "3", **{INDEX: "0"})
    annotated(
        cluster, "b", "4", **{INDEX: "0", ALLOCATION: json.dumps({"0": {"1": 1}, "1": {"0": 3}})}
    )
    annotated(cluster, "c", "5", **{INDEX: "none"})
    annotated(cluster, "d", "5")
    annotated(cluster, "e", "6", **{INDEX: "1", ALLOCATION: '["x"]'})
    annotated(cluster, "over", "6", phase="Succeeded", **{INDEX: "1"})
    annotated(cluster, "strange", "0", **{INDEX: "1"})
    [node] = await inspected(cluster)
    assert held(node) == {"a": {0: 3}, "b": {1: 1, 0: 3}, "c": 5, "d": 5, "e": {1: 6}}
    assert list(held(node)) == ["a", "b", "e", "c", "d"]
    assert (dict(node.totals), node.unit, node.address) == ({0: 16, 1: 16}, "GiB", "10.0.0.1")
    assert (dict(node.allocated), node.pending, node.owned) == ({0: 6, 1: 7}, 10, False)


@scenario(n1=2, n2=1)
async def test_holders_say_what_pods_have_on_an_owned_node(cluster: FakeCluster) -> None:
    cluster.deadline = 5 * SETTLED_SECONDS
    cluster.start()
    await dedicate(cluster, "n1", 32)
    offer(cluster, "n1", "32", "2")
    gated_pod(cluster, "a", "12")
    await expect_running(cluster, "a")
    annotated(cluster, "forged", "3", **{INDEX: "1"})
    [node] = await inspected(cluster)
    assert held(node) == {"a": {0: 12}, "forged": 3}
    assert (dict(node.totals), node.unit, node.owned) == ({0: 16, 1: 16}, "GiB", True)
    fields: Any = as_fields([node])
    assert (fields["unit"], fields["allocated"], fields["total"]) == ("GiB", 15, 32)
    first = {"id": 0, "model": "V100", "allocated": 12, "total": 16}
    assert fields["nodes"][0]["gpus"][0] == first
    assert fields["nodes"][0]["pods"][0]["gpus"] == {"0": 12}
    assert await inspected(cluster, "n2") == []
    assert [each.name for each in await inspected(cluster, "n1")] == ["n1"]


@scenario(n1=1)
async def test_a_node_that_is_not_there_is_named(cluster: FakeCluster) -> None:
    with pytest.raises(NoNodeError, match="there is no node n7"):
        await inspected(cluster, "n7")


@scenario(n1=1)
async def test_more_than_a_hundred_units_of_a_gpu_are_mib(cluster: FakeCluster) -> None:
    offer(cluster, "n1", "16276", "1")
    [node] = await inspected(cluster)
    assert node.unit == "MiB"


@scenario(n1=1)
async def test_without_a_count_there_are_no_gpus(cluster: FakeCluster) -> None:
    offer(cluster, "n1", "16", "0")
    annotated(cluster, "a", "3", **{INDEX: "0"})
    [node] = await inspected(cluster)
    assert (node.unit, node.total, node.used) == ("", 16, 3)


def line(table: str, name: str) -> list[str]:
    """The cells of a row."""
    [found] = [row.split() for row in table.splitlines() if row.startswith(f"{name} ")]
    return found


@scenario(n1=4)
async def test_the_table_of_a_foreign_node_is_alibabas(cluster: FakeCluster) -> None:
    """Objects and numbers are those of bench/results/2026-11-23-inspect-beside-alibaba.txt.

    Amounts are spelled as the API server spells 64000.
    """
    offer(cluster, "n1", "64k", "4")
    annotated(cluster, "two-containers", "5k", "3k", **{INDEX: "0"})
    annotated(cluster, "large", "16k", **{INDEX: "1"})
    annotated(cluster, "ended", "4k", phase="Succeeded", **{INDEX: "0"})
    annotated(cluster, "ending", "2k", **{INDEX: "0"})
    cluster.server.delete(PODS, "ending", "default")
    annotated(cluster, "pair", "700", **{ALLOCATION: json.dumps({"0": {"0": 300, "3": 400}})})
    annotated(cluster, "strange", "300", **{INDEX: "first"})
    annotated(cluster, "unplaced", "1k")
    nodes = await inspected(cluster)
    cells = ["10300/16000", "16000/16000", "0/16000", "400/16000", "1300", "28000/64000"]
    assert line(summary(nodes), "n1") == ["n1", "10.0.0.1", *cells]
    rows = {
        "two-containers": "8000 0 0 0 0",
        "large": "0 16000 0 0 0",
        "ending": "2000 0 0 0 0",
        "pair": "300 0 0 400 0",
        "strange": "0 0 0 0 300",
        "unplaced": "0 0 0 0 1000",
    }
    shown = details(nodes)
    assert {name: " ".join(line(shown, name)[2:]) for name in rows} == rows
    assert "ended" not in shown
    assert "Allocated :     28000 (43%)" in shown.splitlines()


@scenario(n1=2)
async def test_the_total_of_a_foreign_node_is_what_it_offers(cluster: FakeCluster) -> None:
    offer(cluster, "n1", "32553", "2")
    nodes = await inspected(cluster)
    assert line(summary(nodes), "n1") == ["n1", "10.0.0.1", "0/16276", "0/16276", "0/32553"]
