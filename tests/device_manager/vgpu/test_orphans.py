"""Garbage-collects holders whose SharePod or pod no longer wants them."""

from expectations import (
    assert_pending,
    expect_any_running,
    expect_cleaned_up,
    expect_condition,
    expect_no_pod,
    expect_no_vgpus,
    expect_pending,
    expect_pod,
    expect_ready,
    expect_running,
    expect_shared_gpu,
)
from fakes import manifests
from fakes.cluster import World, scenario, seed_held
from fakes.cluster.state import the_pod
from kubeshare.api.types.v1 import SHAREPODS, VGPUS
from kubeshare.device_manager.pool.idle_times import FIRST_HOLDER_SECONDS
from kubeshare.kube.resources import PODS, Raw
from kubeshare.simulator.control import Fault


@scenario(n1=1)
async def test_a_force_deleted_pod_keeps_its_part_until_its_node_says_that_it_has_stopped(
    world: World,
) -> None:
    world.start()
    await world.run("a", "0.7")
    world.actors.node_agents = False
    world.server.remove(PODS, "a", "default")
    world.share("b", "0.7")
    await world.quiet(60)
    assert world.shares_gpu("a")
    assert world.pod("a") is None, "its former self may still run"
    assert_pending(world, "b")
    assert world.condition("a", "Allocated")["reason"] == "Releasing"
    world.actors.node_agents = True
    world.actors.reconcile()
    await expect_any_running(world, "a", "b")


@scenario(n1=1)
async def test_a_sharepod_that_is_deleted_before_its_pod_is_bound_leaves_nothing(
    world: World,
) -> None:
    world.start()
    await world.run("a")
    world.actors.binds = False
    world.share("b")
    await expect_pod(world, "b")
    await world.quiet(1)
    assert world.pod_uids()["b"] == "", "only what was bound may run on the node"
    world.delete("b")
    await expect_no_pod(world, "b")
    await expect_shared_gpu(world, "a")


@scenario(n1=1)
async def test_a_decision_taken_back_while_the_pod_runs_frees_nothing_before_its_node_says_so(
    world: World,
) -> None:
    world.start()
    world.share("a", "0.6")
    await expect_ready(world, "a")
    undecided = {"gpu": {"request": "0.5", "memory": "1Gi", "attempt": 1}, "nodeName": ""}
    world.server.change(SHAREPODS, "a", "default", lambda shp: shp["spec"].update(undecided))
    await expect_pending(world, "a", reason="Releasing")
    assert world.shares_gpu("a")
    pod = the_pod(world, "a")
    world.actors.delete(pod)
    await expect_condition(world, "a", "Scheduled", "Bound")
    await expect_running(world, "a")


@scenario(n1=1)
async def test_a_holder_whose_sharepod_was_not_seen_yet_is_not_taken_for_an_orphan(
    world: World,
) -> None:
    world.server.inject(Fault.hang(), verb="watch", resource="sharepods")
    world.start("devices")
    await world.quiet(1)
    seed_held(world, world.share("a")["metadata"]["uid"])
    await world.quiet(5)
    assert world.shares_gpu("a")


@scenario(n1=1)
async def test_a_part_for_nobody_is_taken_back_from_a_gpu_that_is_shared(world: World) -> None:
    world.start("scheduler", "devices")
    await world.run("a", "0.3")
    await world.quiet(1)

    def join(vgpu: Raw) -> None:
        parts = vgpu["status"]["holders"]
        parts.append(parts[0] | {"demand": "nobody", "name": "b", "podUid": ""})

    (gpuid,) = world.vgpus()
    world.server.change(VGPUS, gpuid, "", join)
    assert world.shares_gpu("a", "b")
    await expect_shared_gpu(world, "a")


@scenario(n1=1)
async def test_a_finished_sharepod_holds_nothing(world: World) -> None:
    made = world.share("a", id="x", spec={"nodeName": "n1"})
    world.server.seed(SHAREPODS, made | {"status": {"phase": "Succeeded"}})
    seed_held(world, made["metadata"]["uid"])
    world.start("devices")
    await expect_no_vgpus(world)


@scenario(n1=1)
async def test_a_pod_that_failed_before_it_was_bound_holds_nothing(world: World) -> None:
    made = world.share("a", id="x", spec={"nodeName": "n1"})
    uid = made["metadata"]["uid"]
    seed_held(world, uid)
    owner = {"apiVersion": "v1", "kind": "SharePod", "name": "a", "controller": True}
    metadata = {"name": "a", "namespace": "default", "ownerReferences": [owner | {"uid": uid}]}
    pod = {"metadata": metadata, "spec": {"containers": []}, "status": {"phase": "Failed"}}
    world.server.seed(PODS, pod)
    world.start("devices")
    await expect_no_vgpus(world)
    assert world.sharepod("a")["status"]["phase"] == "Failed"


@scenario(n1=1)
async def test_a_vgpu_that_nobody_took_a_part_of_goes_after_a_moment(world: World) -> None:
    world.server.seed(VGPUS, manifests.vgpu("left", pool="onDemand"))
    world.start()
    await world.quiet(FIRST_HOLDER_SECONDS - 1)
    assert world.vgpus(), "whoever made it is about to take a part"
    await expect_cleaned_up(world)


@scenario(n1=1)
async def test_a_vgpu_that_gets_a_holder_in_the_last_moment_stays(world: World) -> None:
    world.start()
    await world.run("a")
    [gpuid] = world.vgpus()

    def take_a_part() -> None:
        uid = world.share("b", id=gpuid, spec={"nodeName": "n1"})["metadata"]["uid"]
        taken = {"holders": [manifests.holder(uid, "b")]}
        world.server.change(VGPUS, gpuid, "", lambda vgpu: vgpu["status"].update(taken))

    conflict = Fault("answer", 409, "Conflict", action=take_a_part)
    world.server.inject(conflict, verb="patch", resource="vgpus/status")
    world.delete("a")
    await expect_running(world, "b")
    assert world.vgpus() == {gpuid: ["b"]}
    patches = [each for each in world.server.requests if each.resource == "vgpus/status"]
    tries = [each for each in patches if "Deleting" in str(each.body)]
    assert len(tries) == 1


@scenario(n1=1)
async def test_a_gpu_whose_vgpu_was_deleted_by_force_is_kept_while_pods_run_on_it(
    world: World,
) -> None:
    world.start()
    await world.run("a")
    [gpuid] = world.vgpus()
    world.server.remove(VGPUS, gpuid)
    world.native_pod("whole")
    await world.quiet()
    assert world.running("a")
    assert not world.running("whole")
    world.delete("a")
    await expect_running(world, "whole")


@scenario(n1=1)
async def test_a_former_sharepods_holder_goes_though_a_namesake_wants_the_same_gpu(
    world: World,
) -> None:
    seed_held(world, "the former one")
    world.share("a", "1", id="x", spec={"nodeName": "n1"})
    world.start("devices")
    await expect_running(world, "a")
    assert world.vgpus() == {"x": ["a"]}


@scenario(n1=2)
async def test_a_former_sharepods_holder_goes_though_a_namesakes_pod_runs_elsewhere(
    world: World,
) -> None:
    world.share("a", id="y", spec={"nodeName": "n1"})
    world.start("devices")
    await expect_running(world, "a")
    seed_held(world, "the former one")
    await world.until(lambda: world.vgpus() == {"y": ["a"]})


@scenario(n1=1)
async def test_a_former_pods_holder_goes_though_a_namesake_waits_behind_its_gate(
    world: World,
) -> None:
    seed_held(world, "the former one")
    world.plain("a", "1")
    world.start("devices")
    await expect_no_vgpus(world)


@scenario(n1=1)
async def test_a_holder_whose_plain_pod_was_not_seen_yet_is_not_taken_for_an_orphan(
    world: World,
) -> None:
    world.server.inject(Fault.hang(), verb="watch", resource="pods")
    world.start("devices")
    await world.quiet(1)
    seed_held(world, world.plain("a")["metadata"]["uid"])
    await world.quiet(5)
    assert world.vgpus() == {"x": ["a"]}
