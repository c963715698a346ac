"""The status of a GPUQuota shows what is held, and which of its GPUs there are."""

from typing import Any

import pytest

from expectations.pods import expect_running
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.quotas import expect_used, label_gpus, limit, quota
from kubeshare.api.types.constants import MANAGER_DEVICES
from kubeshare.api.types.gpu_quota import GPUQUOTAS, GPULimit, GPUQuota, GPUQuotaSpec
from kubeshare.core.quota.rows import Place
from kubeshare.device_manager.quota.controller import summary
from kubeshare.kube.meta import ObjectMeta
from kubeshare.simulator.control import Fault


def of(*limits: GPULimit) -> GPUQuota:
    metadata = ObjectMeta(name="gpus", namespace="ns", uid="q")
    return GPUQuota(metadata=metadata, spec=GPUQuotaSpec(limits=limits))


@pytest.mark.parametrize(
    ("limits", "columns"),
    [
        ((), ("", "")),
        ((GPULimit(gpus=4),), ("GPUs 1.5", "GPUs 4")),
        ((GPULimit(model="V100", gpus="500m"),), ("V100 1", "V100 0.5")),
        ((GPULimit(pools=("a", "b"), gpus=2),), ("GPUs@a+b 1.5", "GPUs@a+b 2")),
        ((GPULimit(pools=("b",), gpus=2),), ("GPUs@b 0.5", "GPUs@b 2")),
        ((GPULimit(group="web", gpus=1),), ("web:GPUs 1", "web:GPUs 1")),
        (
            (GPULimit(model="T4", gpus=1), GPULimit(group="x", model="V100", pools=("a",))),
            ("T4 0.5, x:V100@a 0", "T4 1, x:V100@a 0"),
        ),
    ],
)
def test_the_columns_name_each_limit(
    limits: tuple[GPULimit, ...], columns: tuple[str, str]
) -> None:
    held: Any = {
        Place(pool="a", model="V100", group="web"): 1_000_000,
        Place(pool="a", model="V100"): 1_000_000,
        Place(pool="b", model="T4"): 500_000,
    }
    shown = summary(of(*limits), held)
    assert (shown.used, shown.hard) == columns


def matched(cluster: FakeCluster) -> dict[str, Any]:
    [found] = quota(cluster)["status"]["conditions"]
    return dict(found)


async def expect_matched(cluster: FakeCluster, reason: str, message: str) -> None:
    await cluster.until(lambda: quota(cluster).get("status", {}).get("conditions"))
    await cluster.until(lambda: matched(cluster)["message"] == message)
    assert matched(cluster)["reason"] == reason
    assert matched(cluster)["status"] == ("True" if reason == "Matched" else "False")


@scenario(n1=1)
async def test_it_says_which_gpus_no_node_has_until_one_has_them(cluster: FakeCluster) -> None:
    limit(cluster, {"model": "T4", "gpus": 1}, {"model": "V100", "pools": ["a", "b"], "gpus": 1})
    cluster.start("devices")
    words = "the cluster has no {}; it has V100"
    await expect_matched(cluster, "NoSuchGPU", words.format("T4 GPUs, no V100 GPUs in pools a, b"))
    since = matched(cluster)["lastTransitionTime"]
    label_gpus(cluster, "n1", pool="b")
    await expect_matched(cluster, "NoSuchGPU", words.format("T4 GPUs"))
    assert matched(cluster)["lastTransitionTime"] == since
    label_gpus(cluster, "n1", model="T4")
    await expect_matched(cluster, "Matched", "the cluster has GPUs for each limit")
    limit(cluster, {"model": "A100", "gpus": 1})
    await expect_matched(cluster, "NoSuchGPU", "the cluster has no A100 GPUs; it has T4")


@scenario(n1=1, n2=1)
async def test_it_lists_the_gpus_that_there_are(cluster: FakeCluster) -> None:
    label_gpus(cluster, "n2", model="T4")
    limit(cluster, {"model": "A100", "gpus": 1})
    cluster.start("devices")
    await expect_matched(cluster, "NoSuchGPU", "the cluster has no A100 GPUs; it has T4, V100")


@scenario()
async def test_a_cluster_without_gpus_has_none(cluster: FakeCluster) -> None:
    limit(cluster, {"gpus": 1})
    cluster.start("devices")
    await expect_matched(cluster, "NoSuchGPU", "the cluster has no GPUs; it has no GPUs")
    cluster.add_node("n1", 1)
    await expect_matched(cluster, "Matched", "the cluster has GPUs for each limit")


@scenario(n1=1)
async def test_it_is_written_once_for_each_change_and_nothing_is_written_into_a_deleted_one(
    cluster: FakeCluster,
) -> None:
    limit(cluster, {"group": "web", "gpus": 1}, {"gpus": 2})
    cluster.server.inject(Fault.answer(404, "NotFound"), resource="gpuquotas/status", times=1)
    cluster.start()
    await cluster.quiet(5)
    assert "status" not in quota(cluster)
    limit(cluster, {"gpus": 2})
    await expect_used(cluster, ("GPUs 0", "GPUs 2"))
    cluster.share("a", "0.5")
    await expect_running(cluster, "a")
    await expect_used(cluster, ("GPUs 0.5", "GPUs 2"))
    await cluster.quiet(5)
    writes = [each for each in cluster.server.requests if each.resource == "gpuquotas/status"]
    assert len(writes) == 3
    assert {each.query["fieldManager"] for each in writes} == {MANAGER_DEVICES}
    assert writes[-1].body["metadata"]["name"] == "gpus"
    cluster.server.remove(GPUQUOTAS, "gpus", "default")
    await cluster.quiet(5)
    assert [each for each in cluster.server.requests if each.resource == "gpuquotas/status"] == (
        writes
    )
