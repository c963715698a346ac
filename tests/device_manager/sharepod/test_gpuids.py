"""A vGPU is identified by its node and its GPUID, which may be any printable text."""

from expectations.pods import expect_condition, expect_running
from expectations.vgpus import expect_activated, expect_vgpu_deleted
from fakes import manifests
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.disruptions import cordon
from kubeshare.api.types.v1 import VGPUS
from kubeshare.core.gpuid import hashed_name
from kubeshare.kube.resources import RESOURCE_QUOTAS
from kubeshare.simulator.control import Fault

ANY_TEXT = 'GPU 0, "é" / #1'


def identities(cluster: FakeCluster) -> dict[tuple[str, str], list[str]]:
    """Node and GPUID of each vGPU -> the names of its holders."""
    held = cluster.vgpus()
    return {
        (each["spec"]["nodeName"], each["spec"]["gpuid"]): held[each["metadata"]["name"]]
        for each in cluster.server.all(VGPUS)
    }


@scenario(n1=1, n2=1)
async def test_one_gpuid_on_two_nodes_is_two_gpus(cluster: FakeCluster) -> None:
    cluster.start()
    cluster.share("a", id="gpu0", spec={"nodeName": "n1"})
    await expect_running(cluster, "a")
    cluster.share("b", id="gpu0", spec={"nodeName": "n2"})
    cluster.share("c", id="gpu0", spec={"nodeName": "n1"})
    await expect_running(cluster, "b", "c")
    assert identities(cluster) == {("n1", "gpu0"): ["a", "c"], ("n2", "gpu0"): ["b"]}
    assert cluster.vgpus() == {"gpu0": ["a", "c"], hashed_name("n2", "gpu0"): ["b"]}
    assert {"gpu0"} == {each["id"] for each in cluster.sharepod("b")["status"]["gpus"]}
    cluster.delete("b")
    await expect_vgpu_deleted(cluster, hashed_name("n2", "gpu0"))
    assert cluster.running("a", "c")


@scenario(n1=2)
async def test_a_gpuid_that_is_no_name_of_an_object_is_shared_by_all_who_name_it(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    cluster.share("a", "0.5", id=ANY_TEXT)
    cluster.share("b", "0.5", id=ANY_TEXT, spec={"nodeName": "n1"})
    await expect_running(cluster, "a", "b")
    assert identities(cluster) == {("n1", ANY_TEXT): ["a", "b"]}
    cluster.delete("a")
    cluster.delete("b")
    await expect_vgpu_deleted(cluster, hashed_name("n1", ANY_TEXT))
    assert cluster.placeholders() == []


@scenario(n1=2)
async def test_several_gpus_of_gpuids_that_are_no_names_are_had_together(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    cluster.share("a", "0.6", count=2, ids=["B, 1", "A"], spec={"nodeName": "n1"})
    await expect_running(cluster, "a")
    assert identities(cluster) == {("n1", "A"): ["a"], ("n1", "B, 1"): ["a"]}


@scenario(n1=1, n2=2)
async def test_without_a_node_one_that_has_the_gpuid_is_chosen_and_no_other_is_opened(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    cluster.share("a", "0.6", id="gpu0", spec={"nodeName": "n1"})
    cluster.share("b", "0.5", id="gpu0", spec={"nodeName": "n2"})
    await expect_running(cluster, "a", "b")
    cluster.share("c", "0.4", id="gpu0")
    cluster.share("d", "0.5", id="gpu0")
    await expect_running(cluster, "c", "d")
    assert identities(cluster) == {("n1", "gpu0"): ["a", "c"], ("n2", "gpu0"): ["b", "d"]}
    cluster.share("e", "0.5", id="gpu0")
    await expect_condition(cluster, "e", "Scheduled")
    assert cluster.condition("e", "Scheduled")["reason"] == "NoRoom"
    await cluster.quiet(30)
    assert len(cluster.vgpus()) == 2


@scenario(n1=1, n2=1)
async def test_a_node_that_has_the_gpuid_and_takes_no_pods_is_waited_for(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("a", "0.1", id="gpu0", spec={"nodeName": "n1"})
    cordon(cluster, "n1")
    cluster.share("b", "0.1", id="gpu0")
    await expect_condition(cluster, "b", "Scheduled")
    assert cluster.condition("b", "Scheduled")["status"] == "False"
    await cluster.quiet(30)
    assert len(cluster.vgpus()) == 1


@scenario(n1=1)
async def test_a_vgpu_of_an_earlier_version_has_its_name_as_gpuid(cluster: FakeCluster) -> None:
    cluster.start()
    cluster.configure(pool={"policy": "reservation"})
    cluster.server.seed(VGPUS, manifests.vgpu("gpu0", "n1", pool="reserved"))
    cluster.share("a", "0.5", id="gpu0")
    cluster.share("b", "0.5", id="gpu0", spec={"nodeName": "n1"})
    await expect_running(cluster, "a", "b")
    assert cluster.vgpus() == {"gpu0": ["a", "b"]}
    assert "gpuid" not in cluster.vgpu("gpu0")["spec"]


@scenario(n1=2)
async def test_of_two_vgpus_of_one_node_and_gpuid_only_one_takes_holders(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    cluster.configure(pool={"policy": "reservation"})
    await cluster.run("a", "0.1", id="gpu0", spec={"nodeName": "n1"})
    double = hashed_name("n1", "gpu0")
    cluster.server.seed(VGPUS, manifests.vgpu(double, "n1", pool="reserved", gpuid="gpu0"))
    cluster.share("b", "0.1", id="gpu0", spec={"nodeName": "n1"})
    cluster.share("c", "0.1", id="gpu0")
    await expect_running(cluster, "b", "c")
    await expect_vgpu_deleted(cluster, hashed_name("n1", "gpu0"))
    assert sorted(cluster.vgpus()["gpu0"]) == ["a", "b", "c"]


@scenario(n1=1, n2=1)
async def test_a_name_that_turns_out_to_be_taken_leads_to_no_pod_on_another_gpu(
    cluster: FakeCluster,
) -> None:
    cluster.server.inject(Fault.hang(), verb="watch", resource="vgpus")
    cluster.start("devices")
    await cluster.quiet(1)
    cluster.server.seed(VGPUS, manifests.vgpu("gpu0", "n2", pool="reserved"))
    cluster.share("a", "0.1", id="gpu0", spec={"nodeName": "n1"})
    await expect_running(cluster, "a")
    assert cluster.vgpus()[hashed_name("n1", "gpu0")] == ["a"]
    assert cluster.vgpus().get("gpu0", []) == []
    assert cluster.pod("a", "default")["spec"]["nodeName"] == "n1"  # type: ignore[index]


@scenario(n1=1)
async def test_a_generated_name_is_not_for_authors(cluster: FakeCluster) -> None:
    cluster.start()
    cluster.share("a", "0.1", id="vgpu-mine")
    await expect_condition(cluster, "a", "Scheduled")
    assert "of that prefix are not for users" in cluster.condition("a", "Scheduled")["message"]


@scenario(n1=1)
async def test_an_administrator_may_switch_off_that_authors_choose_gpuids(
    cluster: FakeCluster,
) -> None:
    cluster.configure(gpuidScope="none")
    cluster.start()
    cluster.share("a", "0.1", id="gpu0")
    cluster.share("b", "0.1", id="gpu0", spec={"nodeName": "n1"})
    await expect_condition(cluster, "a", "Scheduled")
    assert "gpuidScope: none" in cluster.condition("a", "Scheduled")["message"]
    await expect_condition(cluster, "b", "Allocated")
    assert "gpuidScope: none" in cluster.condition("b", "Allocated")["message"]
    await cluster.run("c", "0.1")
    cluster.configure(gpuidScope="cluster", pool={"policy": "onDemand"})
    cluster.delete("c")
    await expect_running(cluster, "a", "b")


@scenario(n1=3)
async def test_one_that_waits_for_a_quota_is_let_in_when_another_gpu_is_released(
    cluster: FakeCluster,
) -> None:
    hard = {"requests.kubeshare.nthu/gpu": "1"}
    metadata = {"name": "gpus", "namespace": "default"}
    cluster.server.seed(RESOURCE_QUOTAS, {"metadata": metadata, "spec": {"hard": hard}})
    cluster.start()
    cluster.share("a", "0.1", id="gpu0", exclusion="x", spec={"nodeName": "n1"})
    await expect_running(cluster, "a")
    cluster.share("b", "0.1", id="gpu1", exclusion="y", spec={"nodeName": "n1"})
    await expect_condition(cluster, "b", "Allocated")
    assert "1 held, 1 asked" in cluster.condition("b", "Allocated")["message"]
    cluster.delete("a")
    await expect_running(cluster, "b")


@scenario(n1=2)
async def test_of_two_vgpus_with_one_gpuid_the_one_that_it_holds_is_its_own(
    cluster: FakeCluster,
) -> None:
    """As two programs leave them that each made one for the same GPUID."""
    cluster.reserve("n1", "x")
    cluster.server.seed(VGPUS, manifests.vgpu("twin", "n1", gpuid="x", pool="reserved"))
    cluster.start("devices")
    await expect_activated(cluster)
    cluster.share("a", id="x", attempt=1, spec={"nodeName": "n1"})
    holder = manifests.holder(cluster.sharepod("a")["metadata"]["uid"], "a")
    cluster.server.change(VGPUS, "twin", "", lambda vgpu: vgpu["status"].update(holders=[holder]))
    await expect_running(cluster, "a")
    assert (
        cluster.sharepod("a")["status"]["gpus"][0]["uuid"] == cluster.vgpu("twin")["spec"]["uuid"]
    )
