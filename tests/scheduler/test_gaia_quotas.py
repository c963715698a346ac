"""Gaia's quota cases Q1 to Q7 with vcuda pods and the ConfigMap of gpu-admission."""

from collections.abc import Mapping
from functools import partial

from expectations.pods import expect_running
from expectations.scheduling import expect_decided, expect_pending
from expectations.vgpus import expect_holders
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.quotas import gaia_limits, label_gpus, running_micros, write_gaia_quotas
from fakes.cluster.vcuda import asking, dedicate, gated_pod
from kubeshare.api.types.v1 import GPUNODES
from kubeshare.device_manager.owned.controller import SETTLED_SECONDS
from kubeshare.kube.resources import Raw

M40 = {"quota": {"M40": 2}}


async def start(cluster: FakeCluster, **namespaces: Mapping[str, object]) -> None:
    """Starts the programs; nodes whose names begin with ``m`` have M40 GPUs, others V100."""
    cluster.start()
    cluster.deadline = 5 * SETTLED_SECONDS
    for node in cluster.server.all(GPUNODES):
        name = node["metadata"]["name"]
        model = "M40" if name[0] == "m" else "V100"
        cluster.server.change(GPUNODES, name, "", partial(_set_model, model))
        await dedicate(cluster, name, len(node["spec"]["devices"]))
        label_gpus(cluster, name, pool=name)
    write_gaia_quotas(cluster, **namespaces)
    for namespace in namespaces:
        await cluster.until(partial(gaia_limits, cluster, namespace))
    await cluster.quiet(1)


def _set_model(model: str, node: Raw) -> None:
    for gpu in node["spec"]["devices"]:
        gpu["model"] = model


def pod(cluster: FakeCluster, name: str, cores: int, **annotations: str) -> None:
    blocks = "" if cores >= 100 else "4"
    gated_pod(cluster, name, asking("c", str(cores), blocks), **annotations)


@scenario(m1=4)
async def test_q1_as_much_as_the_quota_passes_and_no_more(cluster: FakeCluster) -> None:
    await start(cluster, default=M40)
    pod(cluster, "p1", 100)
    pod(cluster, "p2", 50)
    await expect_running(cluster, "p1", "p2")
    pod(cluster, "p3", 60)
    words = "GPUQuota gaia is 2 M40 GPUs: 1.5 held, 0.6 asked"
    await expect_pending(cluster, "p3", words, reason="QuotaExceeded")
    pod(cluster, "p4", 50)
    await expect_running(cluster, "p4")
    assert running_micros(cluster) == 2_000_000


@scenario(m1=1)
async def test_q2_a_namespace_that_is_not_listed_is_free(cluster: FakeCluster) -> None:
    await start(cluster, other={"quota": {"M40": 0}})
    pod(cluster, "p1", 100)
    await expect_running(cluster, "p1")


@scenario(m1=1, m2=1)
async def test_q3_the_nodes_of_other_pools_fail(cluster: FakeCluster) -> None:
    await start(cluster, default=M40 | {"pool": ["m2"]})
    pod(cluster, "p1", 100)
    await expect_running(cluster, "p1")
    assert cluster.pod("p1")["spec"]["nodeName"] == "m2"  # type: ignore[index]
    pod(cluster, "p2", 100)
    await expect_pending(cluster, "p2")
    assert "covers M40 GPUs in pool m1" in cluster.pod_condition("p2")["message"]


@scenario(m1=1)
async def test_q4_a_namespace_that_is_listed_without_models_fails(cluster: FakeCluster) -> None:
    await start(cluster, default={"quota": {}})
    pod(cluster, "p1", 1)
    await expect_pending(cluster, "p1", "is 0 GPUs: 0 held", reason="QuotaExceeded")


@scenario(m1=1, v1=2)
async def test_q5_a_group_stays_on_one_model(cluster: FakeCluster) -> None:
    await start(cluster, default={"quota": {"M40": 9, "V100": 9}})
    group = {"kubeshare.nthu/group": "web"}
    for gpu in ("p1", "p2"):
        pod(cluster, gpu, 100, **group)
    await cluster.quiet(5)
    pod(cluster, "p3", 100, **group)
    await cluster.quiet(5)
    bound = [cluster.pod(name) for name in ("p1", "p2", "p3")]
    nodes = {found["spec"].get("nodeName", "") for found in bound if found} - {""}
    assert len(nodes) == 1


@scenario(m1=4)
async def test_q6_finished_pods_do_not_count(cluster: FakeCluster) -> None:
    await start(cluster, default=M40)
    pod(cluster, "p1", 200)
    await expect_running(cluster, "p1")
    pod(cluster, "p2", 100)
    await expect_pending(cluster, "p2", reason="QuotaExceeded")
    cluster.end("p1")
    await expect_running(cluster, "p2")


@scenario(m1=4)
async def test_q7_pods_that_are_reserved_and_not_bound_count(cluster: FakeCluster) -> None:
    await start(cluster, default=M40)
    cluster.actors.binds = False
    pod(cluster, "p1", 200)
    await expect_decided(cluster, "p1")
    await expect_holders(cluster, ["p1"], ["p1"], [], [])
    pod(cluster, "p2", 1)
    await expect_pending(cluster, "p2", reason="QuotaExceeded")
    assert running_micros(cluster) == 0
