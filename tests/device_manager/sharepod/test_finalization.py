"""A deleted SharePod is removed after its pod; orphaned pods run on."""

import pytest

from expectations.pods import (
    expect_condition,
    expect_deleted,
    expect_event,
    expect_no_pod,
    expect_pod,
    expect_ready,
    expect_running,
)
from expectations.scheduling import expect_decided
from expectations.vgpus import expect_no_vgpus
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.state import is_same_pod, the_pod
from kubeshare.api.finalizer import FINALIZER
from kubeshare.api.types.constants import LABEL_VGPU
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.kube.resources import PODS, Raw
from kubeshare.simulator.control import Fault, ObjectPath


def sharepod_exists(cluster: FakeCluster, name: str = "a") -> bool:
    return cluster.server.stored(SHAREPODS, name, "default") is not None


def finalizers(cluster: FakeCluster, name: str = "a") -> list[str]:
    found: list[str] = cluster.sharepod(name)["metadata"].get("finalizers", [])
    return found


def has_event(cluster: FakeCluster, words: str) -> bool:
    return any(words in each for each in cluster.events("a"))


def pods_at_its_end(cluster: FakeCluster, name: str = "a") -> list[list[str]]:
    """Collects the names of the pods that exist when the SharePod is removed."""
    seen: list[list[str]] = []

    def note(place: ObjectPath, new: Raw | None) -> None:
        if new is None and (place.plural, place.name) == ("sharepods", name):
            seen.append([pod["metadata"]["name"] for pod in cluster.server.all(PODS, "default")])

    cluster.server.storage.after_change.append(note)
    return seen


@scenario(n1=1, agents=True)
async def test_a_deleted_sharepod_goes_when_its_containers_have_stopped(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("a")
    cluster.machines["n1"].stopping = 20.0
    seen = pods_at_its_end(cluster)
    cluster.delete("a")
    await cluster.quiet(15)
    assert sharepod_exists(cluster)
    assert cluster.machines["n1"].containers
    assert cluster.condition("a", "Ready")["reason"] == "Stopping"
    assert cluster.condition("a", "Allocated")["status"] == "True"
    await expect_deleted(cluster, "a")
    assert seen == [[]]
    assert not has_event(cluster, "Stopping"), "nothing is wrong with it"
    await expect_no_vgpus(cluster)


@scenario(n1=1)
async def test_one_that_never_had_a_pod_goes_at_once(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a", "0.7")
    cluster.share("b", "0.7")
    await expect_decided(cluster, "b")
    await cluster.kill()
    cluster.delete("b")
    assert not sharepod_exists(cluster, "b")


@scenario(n1=1)
async def test_a_pod_that_is_not_bound_yet_goes_with_it(cluster: FakeCluster) -> None:
    cluster.actors.full = {"n1"}
    cluster.start()
    cluster.share("a")
    await expect_pod(cluster, "a")
    cluster.delete("a")
    await expect_deleted(cluster, "a")
    await expect_no_vgpus(cluster)
    assert cluster.pod("a") is None


@pytest.mark.parametrize("gpu", [{"id": "x", "spec": {"nodeName": "n1"}}, {"request": None}])
def test_a_sharepod_without_a_decision_of_sched_waits_for_its_pod_too(gpu: Raw) -> None:
    @scenario(n1=1)
    async def play(cluster: FakeCluster) -> None:
        cluster.start()
        cluster.share("a", **gpu)
        await expect_ready(cluster, "a")
        assert finalizers(cluster) == [FINALIZER]
        seen = pods_at_its_end(cluster)
        cluster.delete("a")
        await expect_deleted(cluster, "a")
        assert seen == [[]]

    play()


@scenario(n1=1)
async def test_an_orphan_runs_on_with_its_part(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    before = the_pod(cluster, "a")
    cluster.delete("a", "Orphan")
    await expect_deleted(cluster, "a")
    await cluster.quiet(30)
    pod = the_pod(cluster, "a")
    assert pod["metadata"]["uid"] == before["metadata"]["uid"]
    assert "deletionTimestamp" not in pod["metadata"]
    assert cluster.running("a")
    assert cluster.shares_gpu("a")
    cluster.actors.delete(pod)
    await expect_no_vgpus(cluster)


@scenario(n1=1)
async def test_a_pod_that_was_orphaned_unseen_is_not_deleted(cluster: FakeCluster) -> None:
    """The garbage collector was faster than the watch of pods."""
    cluster.start("scheduler", "devices")
    await cluster.run("a")
    cluster.server.inject(Fault.hang(), verb="watch", resource="pods", times=4)
    cluster.server.freeze_watches()
    cluster.delete("a", "Orphan")
    cluster.actors.reconcile()
    assert finalizers(cluster) == [FINALIZER]
    cluster.server.freeze_watches(frozen=False)
    cluster.server.reset_watches()
    await expect_deleted(cluster, "a", seconds=600)
    assert cluster.running("a")
    assert cluster.shares_gpu("a")


@scenario(n1=1)
async def test_a_deletion_in_the_foreground_ends_as_ever(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    seen = pods_at_its_end(cluster)
    cluster.delete("a", "Foreground")
    await expect_deleted(cluster, "a")
    await expect_no_vgpus(cluster)
    assert seen == [[]]


@scenario(n1=1, agents=True)
async def test_a_node_that_does_not_answer_is_named_and_waited_for_until_somebody_forces_it(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("a")
    cluster.machines["n1"].stopping = 10_000.0
    cluster.delete("a")
    await expect_event(cluster, "a", "Stopping", seconds=90)
    ready = cluster.condition("a", "Ready")
    assert ready["reason"] == "Stopping"
    assert "node n1 has not said that its containers have stopped" in ready["message"]
    assert "kubectl delete pod a -n default --force" in ready["message"]
    await cluster.quiet(600)
    assert sharepod_exists(cluster)
    cluster.server.remove(PODS, "a", "default")
    await expect_deleted(cluster, "a")
    assert cluster.shares_gpu("a"), "its containers may still run"


@scenario(n1=1)
async def test_a_pod_that_others_keep_is_waited_for_and_they_are_named(
    cluster: FakeCluster,
) -> None:
    cluster.actors.full = {"n1"}
    cluster.start()
    cluster.share("a")
    await expect_pod(cluster, "a")
    kept = {"finalizers": ["example.com/theirs"]}
    cluster.server.change(PODS, "a", "default", lambda pod: pod["metadata"].update(kept))
    cluster.delete("a")
    await expect_event(cluster, "a", "example.com/theirs", seconds=90)
    assert sharepod_exists(cluster)
    cluster.server.change(PODS, "a", "default", lambda pod: pod["metadata"].pop("finalizers"))
    await expect_deleted(cluster, "a")
    await expect_no_vgpus(cluster)


@scenario(n1=1)
async def test_the_finalizers_of_others_stay_and_nothing_else_does(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    theirs = "example.com/theirs"
    cluster.server.change(
        SHAREPODS, "a", "default", lambda shp: shp["metadata"]["finalizers"].insert(0, theirs)
    )
    cluster.delete("a")
    await cluster.until(lambda: finalizers(cluster) == [theirs] and not cluster.vgpus())
    assert cluster.pod("a") is None
    await cluster.quiet(30)
    assert cluster.pod("a") is None


@scenario(n1=1)
async def test_a_sharepod_of_before_goes_at_once_and_its_pod_after_it(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    cluster.server.change(
        SHAREPODS, "a", "default", lambda shp: shp["metadata"].update(finalizers=[])
    )
    cluster.delete("a")
    assert not sharepod_exists(cluster)
    await expect_no_vgpus(cluster)
    await expect_no_pod(cluster, "a")


@scenario(n1=1)
async def test_a_pod_of_somebody_else_is_let_be(cluster: FakeCluster) -> None:
    cluster.start()
    cluster.native_pod("a", 0)
    cluster.share("a")
    await expect_condition(cluster, "a", "Ready", "NameTaken")
    cluster.delete("a")
    await expect_deleted(cluster, "a")
    await expect_no_vgpus(cluster)
    assert cluster.pod("a") is not None


@scenario(n1=1)
async def test_a_deletion_waits_for_a_device_manager_that_is_away(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    await cluster.kill("devices")
    cluster.delete("a")
    await cluster.quiet(60)
    assert sharepod_exists(cluster)
    assert cluster.running("a"), "nothing is ended without it"
    cluster.start("devices")
    await expect_deleted(cluster, "a")
    await expect_no_vgpus(cluster)


@scenario(n1=1)
async def test_one_that_is_finished_takes_its_pod_with_it(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    cluster.end("a")
    await expect_condition(cluster, "a", "Ready", "PodSucceeded")
    cluster.delete("a")
    await expect_deleted(cluster, "a")
    await expect_no_pod(cluster, "a")


@scenario(n1=2)
async def test_no_pod_is_created_for_a_gpu_that_was_changed_while_the_finalizer_is_added(
    cluster: FakeCluster,
) -> None:
    labels: list[str] = []

    def note(place: ObjectPath, new: Raw | None) -> None:
        if new is not None and (place.plural, place.name) == ("pods", "a"):
            labels.append(new["metadata"]["labels"][LABEL_VGPU])

    def name_other_gpu() -> None:
        cluster.server.change(
            SHAREPODS, "a", "default", lambda shp: shp["spec"]["gpu"].update(id="y")
        )

    cluster.server.storage.after_change.append(note)
    cluster.server.inject(Fault.preceded_by(name_other_gpu), verb="patch", resource="sharepods")
    cluster.share("a", id="x", spec={"nodeName": "n1"})
    cluster.start("devices")
    await expect_running(cluster, "a")
    assert set(labels) == {"y"}


@scenario(n1=1)
async def test_a_pod_that_is_orphaned_while_it_is_being_deleted_runs_on(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("a")
    pod = the_pod(cluster, "a")

    def orphan() -> None:
        cluster.server.change(
            PODS, "a", "default", lambda pod: pod["metadata"].pop("ownerReferences")
        )

    cluster.server.inject(Fault.preceded_by(orphan), verb="delete", resource="pods", name="a")
    cluster.delete("a")
    await expect_deleted(cluster, "a")
    await cluster.quiet()
    assert cluster.running("a")
    assert is_same_pod(cluster, pod)
