"""The lifecycle of SharePods without faults."""

from expectations import (
    assert_scheduled,
    expect_any_running,
    expect_cleaned_up,
    expect_condition,
    expect_no_vgpus,
    expect_ready,
    expect_replaced,
    expect_running,
    expect_shared_gpu,
    expect_sharepod_phase,
)
from fakes.cluster import World, gpu_uuid, scenario
from fakes.cluster.pods import POD_IP, STARTED
from fakes.cluster.state import the_pod
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.kube.resources import PODS, Raw
from kubeshare.simulator.control import Fault


@scenario(n1=1)
async def test_three_sharepods_share_one_gpu_and_it_is_given_back_after_the_last(
    world: World,
) -> None:
    world.start()
    for name, request in (("a", "0.3"), ("b", "0.4"), ("c", "0.3")):
        world.share(name, request)
    await expect_running(world, "a", "b", "c")
    assert world.shares_gpu("a", "b", "c")
    world.native_pod("whole")
    for name in ("a", "b"):
        world.delete(name)
    await expect_shared_gpu(world, "c")
    assert not world.running("whole")
    world.delete("c")
    await expect_running(world, "whole")
    assert not world.vgpus()
    assert not world.placeholders()


@scenario(n1=2)
async def test_a_sharepod_of_two_gpus_runs_on_both_and_gives_both_back(world: World) -> None:
    world.start()
    world.share("a", "0.6", count=2)
    world.share("b", "0.6", count=2)
    [first] = await expect_any_running(world, "a", "b")
    [second] = {"a", "b"} - {first}
    assert list(world.vgpus().values()) == [[first], [first]]
    gpus = world.sharepod(first)["status"]["gpus"]
    assert sorted(each["uuid"] for each in gpus) == sorted(gpu_uuid("n1", i) for i in range(2))
    world.delete(first)
    await expect_running(world, second)
    world.delete(second)
    await expect_cleaned_up(world)


@scenario(n1=1)
async def test_the_status_tells_phase_gpu_and_node(world: World) -> None:
    world.start()
    world.share("a")
    await expect_ready(world, "a")
    status = world.sharepod("a")["status"]
    placed = assert_scheduled(world, "a")
    assert status["phase"] == "Running"
    assert status["nodeName"] == "n1"
    assert status["gpus"] == [{"id": placed.gpuid, "uuid": gpu_uuid("n1", 0), "model": "V100"}]
    assert status["share"] == {"request": "0.3", "limit": "1", "memory": "1Gi"}
    assert world.condition("a", "Allocated")["status"] == "True"
    assert status["podIP"] == POD_IP
    assert status["startTime"] == STARTED
    assert "finishTime" not in status


@scenario(n1=1)
async def test_the_status_tells_when_the_last_container_has_ended(world: World) -> None:
    world.start()
    await world.run("a")
    world.end("a", "Failed")
    await expect_condition(world, "a", "Ready", "PodFailed")
    status = world.sharepod("a")["status"]
    assert status["finishTime"] == "2026-01-01T00:09:00Z"
    assert (status["startTime"], status["podIP"]) == (STARTED, POD_IP)


@scenario(n1=1)
async def test_a_sharepod_on_a_warm_vgpu_costs_six_writes_and_no_read(world: World) -> None:
    world.start()
    world.share("first")
    await expect_ready(world, "first")
    await world.quiet()
    before = len(world.server.requests)
    world.share("second")
    await expect_ready(world, "second")
    await world.quiet()
    asked = [each for each in world.server.requests[before:] if each.resource != "events"]
    assert [f"{each.verb} {each.resource}" for each in asked if each.verb != "watch"] == [
        "patch vgpus/status",
        "patch sharepods",
        "patch sharepods/status",
        "create pods",
        "patch vgpus/status",
        "patch sharepods/status",
    ]


@scenario(n1=1)
async def test_a_pod_that_succeeds_stays_and_gives_its_gpu_back(world: World) -> None:
    world.start()
    await world.run("a")
    world.end("a")
    await expect_no_vgpus(world)
    assert world.sharepod("a")["status"]["phase"] == "Succeeded"
    assert world.condition("a", "Ready")["reason"] == "PodSucceeded"
    assert world.condition("a", "Allocated")["reason"] == "Released"
    assert len(world.sharepod("a")["status"]["gpus"]) == 1, "where it was can still be read"
    assert world.pod("a") is not None
    world.server.remove(PODS, "a", "default")
    await world.quiet()
    assert world.pod("a") is None, "it has succeeded and must not run again"
    assert not world.vgpus()


@scenario(n1=1)
async def test_a_pod_that_is_deleted_is_made_again_and_scheduled_again(world: World) -> None:
    world.start()
    world.share("a")
    await expect_ready(world, "a")
    first = the_pod(world, "a")
    world.actors.delete(first)
    await expect_replaced(world, first)
    await expect_running(world, "a")
    assert_scheduled(world, "a")


@scenario(n1=1)
async def test_a_sharepod_that_is_being_deleted_gets_no_pod(world: World) -> None:
    made = world.share("a", id="x", spec={"nodeName": "n1"})
    made["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["theirs"]}
    world.server.seed(SHAREPODS, made)
    world.start()
    await world.quiet()
    assert world.pod("a") is None
    assert not world.vgpus()


@scenario(n1=1)
async def test_a_decision_whose_part_was_not_seen_yet_is_not_undone(world: World) -> None:
    world.server.inject(Fault.hang(), verb="watch", resource="vgpus")
    world.start("devices")
    await world.quiet(1)
    world.start("scheduler")
    await world.run("a")
    assert world.sharepod("a")["spec"]["gpu"]["attempt"] == 1


@scenario(n1=1)
async def test_a_decision_whose_pod_was_not_seen_yet_is_not_undone(world: World) -> None:
    world.server.inject(Fault.hang(), verb="watch", resource="pods")
    world.start("devices")
    await world.quiet(1)
    world.server.seed(
        PODS,
        {
            "metadata": {"name": "a", "namespace": "default"},
            "spec": {"containers": [], "nodeName": "n1"},
            "status": {"phase": "Running"},
        },
    )
    world.share("a", id="x", attempt=1, spec={"nodeName": "n1"})
    await world.quiet(5)
    assert world.sharepod("a")["spec"]["nodeName"] == "n1"


@scenario(n1=1)
async def test_a_sharepod_whose_pod_is_evicted_gets_another_one(world: World) -> None:
    await evict_and_go_on(world, "Failed")


@scenario(n1=1)
async def test_so_does_one_whose_containers_end_politely(world: World) -> None:
    await evict_and_go_on(world, "Succeeded")


async def evict_and_go_on(world: World, phase: str) -> None:
    """The kubelet reports the end of an evicted pod before the pod is gone."""
    world.start()
    world.share("a")
    await expect_ready(world, "a")

    def ended(obj: Raw) -> None:
        obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
        obj["status"]["phase"] = phase

    world.actors.removes = False
    world.server.change(PODS, "a", "default", ended)
    await world.quiet(1)
    assert world.sharepod("a")["status"]["phase"] == "Running"
    world.actors.removes = True
    world.server.remove(PODS, "a", "default")
    await expect_running(world, "a")
    await expect_ready(world, "a")


@scenario(n1=1)
async def test_a_sharepod_that_has_ended_stays_so_when_its_pod_is_deleted(world: World) -> None:
    world.start()
    world.share("a", spec={"restartPolicy": "Never"})
    await expect_ready(world, "a")
    world.end("a", "Failed")
    await expect_sharepod_phase(world, "a", "Failed")
    mark = {"deletionTimestamp": "2026-01-01T00:01:00Z"}
    world.actors.removes = False
    world.server.change(PODS, "a", "default", lambda obj: obj["metadata"].update(mark))
    await world.quiet(30)
    world.server.remove(PODS, "a", "default")
    await world.quiet(60)
    assert world.sharepod("a")["status"]["phase"] == "Failed"
    assert world.pod("a") is None
