"""What the scheduler writes into a SharePod: its decision, and the condition about it."""

from functools import partial
from typing import Any

import pytest

from expectations.pods import expect_running
from expectations.scheduling import expect_decided, expect_pending, expect_scheduled
from fakes.cluster import FakeCluster, run_scenario, scenario
from kubeshare.api.types.constants import DEVICE_MANAGER, NAMESPACE
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.kube.resources import LEASES
from kubeshare.scheduler.requesters.sharepod import CONFIRM_SECONDS


def gpu_of(cluster: FakeCluster, name: str) -> dict[str, Any]:
    gpu: dict[str, Any] = cluster.sharepod(name)["spec"]["gpu"]
    return gpu


@pytest.mark.parametrize(
    ("more", "decision"),
    [
        ({}, {"idGiven": False, "nodeGiven": False}),
        ({"id": "mine"}, {"idGiven": True, "nodeGiven": False, "id": "mine"}),
        ({"node": "n1"}, {"idGiven": False, "nodeGiven": True}),
    ],
)
def test_the_decision_says_what_the_author_had_chosen(
    more: dict[str, str], decision: dict[str, object]
) -> None:
    async def play(cluster: FakeCluster) -> None:
        cluster.start("scheduler")
        spec = {"nodeName": more["node"]} if "node" in more else {}
        cluster.share("a", "0.3", spec=spec, **{k: v for k, v in more.items() if k == "id"})
        placed = await expect_scheduled(cluster, "a")
        gpu = gpu_of(cluster, "a")
        assert gpu["attempt"] == 1
        assert {key: gpu[key] for key in decision} == decision
        assert gpu["id"] == placed.gpuid
        assert "ids" not in gpu
        sharepod = cluster.sharepod("a")
        assert sharepod["metadata"]["finalizers"] == ["kubeshare.nthu/pod"]
        annotations = sharepod["metadata"].get("annotations", {})
        assert annotations.get("kubeshare/GPUID", placed.gpuid) == placed.gpuid
        condition = cluster.condition("a", "Scheduled")
        assert (condition["status"], condition["reason"]) == ("True", "Bound")
        assert condition["message"] == f"vGPU {placed.gpuid} on node n1"
        assert condition["observedGeneration"] == sharepod["metadata"]["generation"]
        assert sharepod["status"]["share"]["request"] == "0.3"

    run_scenario(play, n1=1)


@scenario(n1=2)
async def test_the_decision_lists_several_gpus_by_name(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    cluster.share("a", "0.3", count=2)
    await expect_decided(cluster, "a")
    gpu = gpu_of(cluster, "a")
    assert "id" not in gpu
    assert sorted(gpu["ids"]) == sorted(cluster.vgpus())
    message = cluster.condition("a", "Scheduled")["message"]
    assert message == f"vGPU {', '.join(gpu['ids'])} on node n1"


@scenario(n1=1)
async def test_a_decision_of_the_author_is_confirmed_as_such(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    cluster.share("a", "0.3", id="mine", spec={"nodeName": "n1"})
    await cluster.until(lambda: cluster.sharepod("a").get("status", {}).get("conditions"))
    condition = cluster.condition("a", "Scheduled")
    assert (condition["status"], condition["reason"]) == ("True", "Given")
    assert condition["message"] == "given by its author: vGPU mine on node n1"
    assert "attempt" not in gpu_of(cluster, "a")


@scenario(n1=1)
async def test_a_condition_of_an_earlier_generation_or_with_other_words_is_written_again(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    cluster.share("a", "0.3")
    await expect_scheduled(cluster, "a")
    right = cluster.condition("a", "Scheduled")
    wrong: dict[str, Any] = {
        "message": "elsewhere",
        "reason": "Given",
        "status": "False",
        "observedGeneration": 99,
    }
    for field, value in wrong.items():
        cluster.server.change(SHAREPODS, "a", "default", partial(_spoil, field=field, value=value))
        await cluster.until(partial(_is_right, cluster, right))


def _spoil(obj: dict[str, Any], field: str, value: object) -> None:
    [condition] = obj["status"]["conditions"]
    condition[field] = value


def _is_right(cluster: FakeCluster, right: dict[str, Any]) -> bool:
    now = cluster.condition("a", "Scheduled")
    return all(now[key] == right[key] for key in right.keys() - {"lastTransitionTime"})


@scenario(n1=1)
async def test_what_is_deleted_or_has_ended_gets_no_gpu(cluster: FakeCluster) -> None:
    cluster.share("deleted")
    cluster.delete("deleted", "Foreground")
    assert cluster.sharepod("deleted")["metadata"]["deletionTimestamp"]
    cluster.share("ended")
    cluster.server.change(
        SHAREPODS, "ended", "default", lambda obj: obj.update(status={"phase": "Succeeded"})
    )
    cluster.start("scheduler")
    cluster.share("next")
    await expect_scheduled(cluster, "next")
    await cluster.quiet(5)
    assert list(cluster.vgpus().values()) == [["next"]]


def status_writes(cluster: FakeCluster, name: str) -> list[str]:
    """Who has written the status of a SharePod, once for each write."""
    return [
        each.client.partition("-")[0]
        for each in cluster.server.requests
        if each.is_write and each.resource == "sharepods/status" and each.path.name == name
    ]


@scenario(n1=1)
async def test_one_write_of_status_shows_the_decision_and_that_it_runs(
    cluster: FakeCluster,
) -> None:
    cluster.elect = True
    cluster.start()
    await cluster.run("a", "0.3")
    await cluster.quiet(2 * CONFIRM_SECONDS)
    condition = cluster.condition("a", "Scheduled")
    assert (condition["status"], condition["reason"]) == ("True", "Bound")
    assert condition["observedGeneration"] == cluster.sharepod("a")["metadata"]["generation"]
    assert cluster.condition("a", "Ready")["status"] == "True"
    assert status_writes(cluster, "a") == ["devices"]


@scenario(n1=1)
async def test_a_decision_is_confirmed_where_the_device_manager_does_not_in_time(
    cluster: FakeCluster,
) -> None:
    cluster.server.seed(
        LEASES,
        {
            "metadata": {"name": DEVICE_MANAGER, "namespace": NAMESPACE},
            "spec": {"holderIdentity": "dead"},
        },
    )
    cluster.start("scheduler")
    cluster.share("a", "0.3")
    await cluster.until(lambda: cluster.sharepod("a")["spec"].get("nodeName"))
    await cluster.quiet(CONFIRM_SECONDS - 1)
    assert not status_writes(cluster, "a")
    await expect_scheduled(cluster, "a")
    assert status_writes(cluster, "a") == ["scheduler"]


@scenario(n1=1)
async def test_one_that_has_waited_is_confirmed_at_once(cluster: FakeCluster) -> None:
    cluster.elect = True
    cluster.start()
    await cluster.run("a", "0.6")
    cluster.share("b", "0.6")
    await expect_pending(cluster, "b", "compute 0.4 left")
    cluster.delete("a")
    await cluster.until(lambda: cluster.sharepod("b")["spec"].get("nodeName"))
    await expect_running(cluster, "b")
    assert cluster.condition("b", "Scheduled")["reason"] == "Bound"
    assert status_writes(cluster, "b")[:2] == ["scheduler", "scheduler"]
