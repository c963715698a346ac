"""A deleted SharePod is removed after its pod; orphaned pods run on."""

import pytest

from expectations import (
    expect_condition,
    expect_decided,
    expect_deleted,
    expect_event,
    expect_no_pod,
    expect_no_vgpus,
    expect_pod,
    expect_ready,
    expect_running,
)
from fakes.cluster import World, scenario
from fakes.cluster.state import is_same_pod, the_pod
from kubeshare.api.finalizer import FINALIZER
from kubeshare.api.types.constants import LABEL_VGPU
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.kube.resources import PODS, Raw
from kubeshare.simulator.control import Fault, ObjectPath


def sharepod_exists(world: World, name: str = "a") -> bool:
    return world.server.stored(SHAREPODS, name, "default") is not None


def finalizers(world: World, name: str = "a") -> list[str]:
    found: list[str] = world.sharepod(name)["metadata"].get("finalizers", [])
    return found


def has_event(world: World, words: str) -> bool:
    return any(words in each for each in world.events("a"))


def pods_at_its_end(world: World, name: str = "a") -> list[list[str]]:
    """Collects the names of the pods that exist when the SharePod is removed."""
    seen: list[list[str]] = []

    def note(place: ObjectPath, new: Raw | None) -> None:
        if new is None and (place.plural, place.name) == ("sharepods", name):
            seen.append([pod["metadata"]["name"] for pod in world.server.all(PODS, "default")])

    world.server.storage.after_change.append(note)
    return seen


@scenario(n1=1, agents=True)
async def test_a_deleted_sharepod_goes_when_its_containers_have_stopped(world: World) -> None:
    world.start()
    await world.run("a")
    world.machines["n1"].stopping = 20.0
    seen = pods_at_its_end(world)
    world.delete("a")
    await world.quiet(15)
    assert sharepod_exists(world)
    assert world.machines["n1"].containers
    assert world.condition("a", "Ready")["reason"] == "Stopping"
    assert world.condition("a", "Allocated")["status"] == "True"
    await expect_deleted(world, "a")
    assert seen == [[]]
    assert not has_event(world, "Stopping"), "nothing is wrong with it"
    await expect_no_vgpus(world)


@scenario(n1=1)
async def test_one_that_never_had_a_pod_goes_at_once(world: World) -> None:
    world.start()
    await world.run("a", "0.7")
    world.share("b", "0.7")
    await expect_decided(world, "b")
    await world.kill()
    world.delete("b")
    assert not sharepod_exists(world, "b")


@scenario(n1=1)
async def test_a_pod_that_is_not_bound_yet_goes_with_it(world: World) -> None:
    world.actors.full = {"n1"}
    world.start()
    world.share("a")
    await expect_pod(world, "a")
    world.delete("a")
    await expect_deleted(world, "a")
    await expect_no_vgpus(world)
    assert world.pod("a") is None


@pytest.mark.parametrize("gpu", [{"id": "x", "spec": {"nodeName": "n1"}}, {"request": None}])
def test_a_sharepod_without_a_decision_of_sched_waits_for_its_pod_too(gpu: Raw) -> None:
    @scenario(n1=1)
    async def play(world: World) -> None:
        world.start()
        world.share("a", **gpu)
        await expect_ready(world, "a")
        assert finalizers(world) == [FINALIZER]
        seen = pods_at_its_end(world)
        world.delete("a")
        await expect_deleted(world, "a")
        assert seen == [[]]

    play()


@scenario(n1=1)
async def test_an_orphan_runs_on_with_its_part(world: World) -> None:
    world.start()
    await world.run("a")
    before = the_pod(world, "a")
    world.delete("a", "Orphan")
    await expect_deleted(world, "a")
    await world.quiet(30)
    pod = the_pod(world, "a")
    assert pod["metadata"]["uid"] == before["metadata"]["uid"]
    assert "deletionTimestamp" not in pod["metadata"]
    assert world.running("a")
    assert world.shares_gpu("a")
    world.actors.delete(pod)
    await expect_no_vgpus(world)


@scenario(n1=1)
async def test_a_pod_that_was_orphaned_unseen_is_not_deleted(world: World) -> None:
    """The garbage collector was faster than the watch of pods."""
    world.start("scheduler", "devices")
    await world.run("a")
    world.server.inject(Fault.hang(), verb="watch", resource="pods", times=4)
    world.server.freeze_watches()
    world.delete("a", "Orphan")
    world.actors.reconcile()
    assert finalizers(world) == [FINALIZER]
    world.server.freeze_watches(frozen=False)
    world.server.reset_watches()
    await expect_deleted(world, "a", seconds=600)
    assert world.running("a")
    assert world.shares_gpu("a")


@scenario(n1=1)
async def test_a_deletion_in_the_foreground_ends_as_ever(world: World) -> None:
    world.start()
    await world.run("a")
    seen = pods_at_its_end(world)
    world.delete("a", "Foreground")
    await expect_deleted(world, "a")
    await expect_no_vgpus(world)
    assert seen == [[]]


@scenario(n1=1, agents=True)
async def test_a_node_that_does_not_answer_is_named_and_waited_for_until_somebody_forces_it(
    world: World,
) -> None:
    world.start()
    await world.run("a")
    world.machines["n1"].stopping = 10_000.0
    world.delete("a")
    await expect_event(world, "a", "Stopping", seconds=90)
    ready = world.condition("a", "Ready")
    assert ready["reason"] == "Stopping"
    assert "node n1 has not said that its containers have stopped" in ready["message"]
    assert "kubectl delete pod a -n default --force" in ready["message"]
    await world.quiet(600)
    assert sharepod_exists(world)
    world.server.remove(PODS, "a", "default")
    await expect_deleted(world, "a")
    assert world.shares_gpu("a"), "its containers may still run"


@scenario(n1=1)
async def test_a_pod_that_others_keep_is_waited_for_and_they_are_named(world: World) -> None:
    world.actors.full = {"n1"}
    world.start()
    world.share("a")
    await expect_pod(world, "a")
    kept = {"finalizers": ["example.com/theirs"]}
    world.server.change(PODS, "a", "default", lambda pod: pod["metadata"].update(kept))
    world.delete("a")
    await expect_event(world, "a", "example.com/theirs", seconds=90)
    assert sharepod_exists(world)
    world.server.change(PODS, "a", "default", lambda pod: pod["metadata"].pop("finalizers"))
    await expect_deleted(world, "a")
    await expect_no_vgpus(world)


@scenario(n1=1)
async def test_the_finalizers_of_others_stay_and_nothing_else_does(world: World) -> None:
    world.start()
    await world.run("a")
    theirs = "example.com/theirs"
    world.server.change(
        SHAREPODS, "a", "default", lambda shp: shp["metadata"]["finalizers"].insert(0, theirs)
    )
    world.delete("a")
    await world.until(lambda: finalizers(world) == [theirs] and not world.vgpus())
    assert world.pod("a") is None
    await world.quiet(30)
    assert world.pod("a") is None


@scenario(n1=1)
async def test_a_sharepod_of_before_goes_at_once_and_its_pod_after_it(world: World) -> None:
    world.start()
    await world.run("a")
    world.server.change(
        SHAREPODS, "a", "default", lambda shp: shp["metadata"].update(finalizers=[])
    )
    world.delete("a")
    assert not sharepod_exists(world)
    await expect_no_vgpus(world)
    await expect_no_pod(world, "a")


@scenario(n1=1)
async def test_a_pod_of_somebody_else_is_let_be(world: World) -> None:
    world.start()
    world.native_pod("a", 0)
    world.share("a")
    await expect_condition(world, "a", "Ready", "NameTaken")
    world.delete("a")
    await expect_deleted(world, "a")
    await expect_no_vgpus(world)
    assert world.pod("a") is not None


@scenario(n1=1)
async def test_a_deletion_waits_for_a_device_manager_that_is_away(world: World) -> None:
    world.start()
    await world.run("a")
    await world.kill("devices")
    world.delete("a")
    await world.quiet(60)
    assert sharepod_exists(world)
    assert world.running("a"), "nothing is ended without it"
    world.start("devices")
    await expect_deleted(world, "a")
    await expect_no_vgpus(world)


@scenario(n1=1)
async def test_one_that_is_finished_takes_its_pod_with_it(world: World) -> None:
    world.start()
    await world.run("a")
    world.end("a")
    await expect_condition(world, "a", "Ready", "PodSucceeded")
    world.delete("a")
    await expect_deleted(world, "a")
    await expect_no_pod(world, "a")


@scenario(n1=2)
async def test_no_pod_is_created_for_a_gpu_that_was_changed_while_the_finalizer_is_added(
    world: World,
) -> None:
    labels: list[str] = []

    def note(place: ObjectPath, new: Raw | None) -> None:
        if new is not None and (place.plural, place.name) == ("pods", "a"):
            labels.append(new["metadata"]["labels"][LABEL_VGPU])

    def name_other_gpu() -> None:
        world.server.change(
            SHAREPODS, "a", "default", lambda shp: shp["spec"]["gpu"].update(id="y")
        )

    world.server.storage.after_change.append(note)
    world.server.inject(Fault.preceded_by(name_other_gpu), verb="patch", resource="sharepods")
    world.share("a", id="x", spec={"nodeName": "n1"})
    world.start("devices")
    await expect_running(world, "a")
    assert set(labels) == {"y"}


@scenario(n1=1)
async def test_a_pod_that_is_orphaned_while_it_is_being_deleted_runs_on(world: World) -> None:
    world.start()
    await world.run("a")
    pod = the_pod(world, "a")

    def orphan() -> None:
        world.server.change(
            PODS, "a", "default", lambda pod: pod["metadata"].pop("ownerReferences")
        )

    world.server.inject(Fault.preceded_by(orphan), verb="delete", resource="pods", name="a")
    world.delete("a")
    await expect_deleted(world, "a")
    await world.quiet()
    assert world.running("a")
    assert is_same_pod(world, pod)
