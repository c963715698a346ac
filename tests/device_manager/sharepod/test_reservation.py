"""GPUs that the author of a SharePod names, instead of the scheduler."""

from typing import Any

from expectations.pods import (
    expect_any_running,
    expect_condition,
    expect_event,
    expect_pod,
    expect_running,
)
from fakes.cluster import FakeCluster, scenario, seed_held
from kubeshare.api.types.v1 import SHAREPODS, VGPUS
from kubeshare.simulator.control import Fault

CREATE_VGPU = ("create", "vgpus")


@scenario(n1=1)
async def test_a_gpuid_given_with_a_node_is_shared_by_all_who_name_it(cluster: FakeCluster) -> None:
    cluster.start("devices")
    cluster.share("a", "0.5", id="abcde", spec={"nodeName": "n1"})
    cluster.share("b", "0.5", id="abcde", spec={"nodeName": "n1"})
    await expect_running(cluster, "a", "b")
    assert cluster.vgpus() == {"abcde": ["a", "b"]}


@scenario(n1=1)
async def test_a_gpuid_without_room_waits_with_the_reason_until_there_is(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("a", "0.6", id="abcde", spec={"nodeName": "n1"})
    cluster.share("b", "0.5", id="abcde", spec={"nodeName": "n1"})
    await expect_condition(cluster, "b", "Allocated")
    condition = cluster.condition("b", "Allocated")
    assert condition["reason"] == "NoRoom"
    assert "compute 0.4 left, 0.5 asked" in condition["message"]
    assert cluster.pod("b") is None
    await expect_event(cluster, "b", "0.4 left")
    cluster.delete("a")
    await expect_running(cluster, "b")


@scenario(n1=1)
async def test_a_part_given_by_name_that_was_not_seen_yet_is_not_taken_twice(
    cluster: FakeCluster,
) -> None:
    cluster.server.inject(Fault.hang(), verb="watch", resource="vgpus")
    cluster.start("devices")
    await cluster.quiet(1)
    seed_held(cluster, "the-uid")
    made = {"metadata": {"name": "a", "namespace": "default", "uid": "the-uid"}}
    gpu = {"request": "0.1", "memory": "1Gi", "id": "x"}
    spec = {"nodeName": "n1", "gpu": gpu, "containers": [{"name": "main", "image": "i:1"}]}
    cluster.server.seed(SHAREPODS, made | {"spec": spec})
    await expect_running(cluster, "a")
    assert cluster.vgpus() == {"x": ["a"]}


@scenario(n1=2)
async def test_several_gpus_given_by_name_are_had_together(cluster: FakeCluster) -> None:
    cluster.start()
    cluster.share("a", "0.6", count=2, ids=["y", "x"], spec={"nodeName": "n1"})
    await expect_running(cluster, "a")
    assert cluster.vgpus() == {"x": ["a"], "y": ["a"]}
    uids = {each["spec"]["uuid"] for each in cluster.server.all(VGPUS)}
    assert len(uids) == 2
    parts = [holder["parts"] for name in "xy" for holder in cluster.vgpu(name)["status"]["holders"]]
    assert parts == [2, 2]


@scenario(n1=2)
async def test_none_of_several_is_held_while_one_has_no_room(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("b", "0.6", id="y", spec={"nodeName": "n1"})
    cluster.share("a", "0.6", count=2, ids=["x", "y"], spec={"nodeName": "n1"})
    await expect_condition(cluster, "a", "Allocated")
    condition = cluster.condition("a", "Allocated")
    assert condition["reason"] == "NoRoom"
    assert "vGPU y on node n1: compute 0.4 left, 0.6 asked" in condition["message"]
    await cluster.quiet(30)
    assert cluster.vgpus() == {"y": ["b"]}
    cluster.delete("b")
    await expect_running(cluster, "a")


@scenario(n1=1)
async def test_more_gpus_given_by_name_than_the_node_has_are_none(cluster: FakeCluster) -> None:
    cluster.start()
    cluster.share("a", "0.6", count=2, ids=["x", "y"], spec={"nodeName": "n1"})
    await expect_condition(cluster, "a", "Allocated")
    assert cluster.condition("a", "Allocated")["reason"] == "NoRoom"
    await cluster.quiet(30)
    assert cluster.vgpus() == {}


@scenario(n1=2)
async def test_who_was_cut_off_between_two_gpus_given_by_name_gives_back_the_first(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("b", "0.6", id="y", spec={"nodeName": "n1"})
    made = cluster.share("a", "0.6", count=2, ids=["x", "y"], spec={"nodeName": "n1"})
    seed_held(cluster, made["metadata"]["uid"])
    await expect_condition(cluster, "a", "Allocated")
    await cluster.until(lambda: cluster.vgpus().get("x", []) == [])
    assert cluster.condition("a", "Allocated")["reason"] == "NoRoom"


async def chosen_again(cluster: FakeCluster, name: str, **more: Any) -> dict[str, Any]:
    """Have a SharePod's part of vGPU x taken back before its pod is bound; its ask, had again."""
    cluster.start()
    await cluster.run("a", "0.5", id="x", spec={"nodeName": "n1"})
    cluster.actors.binds = False
    cluster.share(name, "0.3", **more)
    await expect_pod(cluster, name)
    await cluster.quiet(1)
    await cluster.kill()
    assert cluster.vgpus() == {"x": ["a", name]}
    cluster.server.change(VGPUS, "x", "", lambda vgpu: vgpu["status"]["holders"].pop())
    cluster.actors.binds = True
    cluster.actors.reconcile()
    cluster.start()

    def ask() -> dict[str, Any]:
        return dict(cluster.sharepod(name)["spec"]["gpu"])

    await cluster.until(lambda: cluster.running(name) and ask()["attempt"] == 2)
    return ask()


@scenario(n1=1)
async def test_a_vgpu_of_any_name_is_the_schedulers_choice_where_the_author_gave_only_the_node(
    cluster: FakeCluster,
) -> None:
    ask = await chosen_again(cluster, "b", spec={"nodeName": "n1"})
    assert (ask["idGiven"], ask["nodeGiven"]) == (False, True)


@scenario(n1=1)
async def test_a_vgpu_that_the_author_named_outlives_the_choice_of_the_node(
    cluster: FakeCluster,
) -> None:
    ask = await chosen_again(cluster, "b", id="x")
    assert (ask["idGiven"], ask["nodeGiven"]) == (True, False)


def created_vgpus(cluster: FakeCluster) -> list[str]:
    """The names of the vGPUs of requests, in order."""
    asked = [each for each in cluster.server.requests if (each.verb, each.resource) == CREATE_VGPU]
    return [each.body["metadata"]["name"] for each in asked]


@scenario(n1=1)
async def test_two_that_name_the_same_new_gpu_at_once_are_decided_one_after_the_other(
    cluster: FakeCluster,
) -> None:
    for name in ("a", "b"):
        cluster.share(name, "0.6", id="x", spec={"nodeName": "n1"})
    cluster.start("devices")
    [running] = await expect_any_running(cluster, "a", "b")
    assert created_vgpus(cluster) == ["x"]
    assert cluster.vgpus() == {"x": [running]}


@scenario(n1=1)
async def test_a_vgpu_whose_creation_was_not_answered_counts_for_the_next_reservation(
    cluster: FakeCluster,
) -> None:
    cluster.server.inject(Fault.hang(), verb="watch", resource="vgpus")
    cluster.server.inject(Fault.reset(after=True), verb="create", resource="vgpus")
    cluster.share("a", "0.6", id="x", spec={"nodeName": "n1"})
    cluster.share("b", "0.6", id="y", spec={"nodeName": "n1"})
    cluster.start("devices")
    await expect_condition(cluster, "b", "Allocated", "NoRoom")
    await expect_running(cluster, "a")
    assert created_vgpus(cluster) == ["x"]
