"""Placeholders reserve a GPU, fail, are lost and are deleted."""

import asyncio

from expectations import (
    assert_scheduled,
    expect_condition,
    expect_decided,
    expect_no_pod,
    expect_no_vgpus,
    expect_placeholders,
    expect_ready,
    expect_running,
    expect_vgpus,
)
from fakes.cluster import World, scenario
from kubeshare.api.affinity_terms import require_node
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.v1 import SHAREPODS, VGPUS
from kubeshare.device_manager.placeholder.pods import MAX_FAILURES
from kubeshare.kube.resources import NAMESPACES, PODS, Raw
from kubeshare.simulator.control import Fault


@scenario(n1=1)
async def test_a_placeholder_that_fails_is_made_again_a_bounded_number_of_times(
    world: World,
) -> None:
    world.actors.node_agents = False
    world.start()
    world.share("a")
    failed: set[str] = set()

    def fail() -> None:
        for pod in world.server.all(PODS, "kubeshare-system"):
            failed.add(pod["metadata"]["uid"])
            status = {"phase": "Failed", "message": "UnexpectedAdmissionError"}
            world.server.seed(PODS, pod | {"status": status})

    def given_up() -> bool:
        fail()
        [*gpuids] = world.vgpus()
        return any("not made again" in event for name in gpuids for event in world.events(name))

    started = asyncio.get_running_loop().time()
    await world.until(given_up, seconds=120)
    assert asyncio.get_running_loop().time() - started > 10, "without a pause between them"
    assert world.condition("a", "Allocated")["reason"] == "PlaceholderFailed"
    await world.quiet(600)
    fail()
    assert len(failed) == MAX_FAILURES


@scenario(n1=1)
async def test_an_api_server_that_is_away_is_no_placeholder_that_fails(world: World) -> None:
    world.actors.node_agents = False
    world.start()
    world.share("a")
    await expect_placeholders(world, 1)
    [name] = world.placeholders()
    fault = Fault.answer(500, "InternalError")
    world.server.inject(fault, verb="delete", resource="pods", name=name, times=2 * MAX_FAILURES)
    status = {"phase": "Failed", "message": "UnexpectedAdmissionError"}
    world.server.change(PODS, name, NAMESPACE, lambda pod: pod.update(status=status))
    world.actors.node_agents = True
    await expect_running(world, "a")


@scenario(n1=1)
async def test_a_gpu_that_a_native_pod_took_first_is_waited_for_with_kube_schedulers_words(
    world: World,
) -> None:
    world.start("scheduler")
    world.share("a")
    await expect_decided(world, "a")
    world.native_pod("whole")
    await expect_running(world, "whole")
    world.start("devices")
    await expect_condition(world, "a", "Allocated", "GPUNotFree")
    assert "insufficient nvidia.com/gpu" in world.condition("a", "Allocated")["message"]
    world.end("whole")
    await expect_running(world, "a")


@scenario(n1=1, n2=2)
async def test_a_gpu_that_a_native_pod_took_first_is_left_to_it_where_another_node_has_one(
    world: World,
) -> None:
    world.start("scheduler")
    for name in ("a", "b"):
        world.share(name, "0.4", affinity="together")
    await expect_vgpus(world, 1)
    assert_scheduled(world, "a", node="n1")
    world.native_pod("whole", affinity=require_node({}, "n1"))
    await expect_running(world, "whole")
    world.start("devices")
    await expect_ready(world, "a", "b", seconds=60)
    assert_scheduled(world, "b", node="n2", gpuid=assert_scheduled(world, "a").gpuid)
    assert any("set aside" in event for event in world.events("a"))
    await expect_vgpus(world, 1)
    assert world.running("whole")


@scenario(n1=1, n2=1)
async def test_a_gpu_that_its_author_has_named_is_waited_for_wherever_else_there_is_one(
    world: World,
) -> None:
    world.native_pod("whole", affinity=require_node({}, "n1"))
    world.start("devices")
    await expect_running(world, "whole")
    world.share("a", id="abcde", spec={"nodeName": "n1"})
    await world.quiet(60)
    assert world.pod("a") is None
    world.end("whole")
    await expect_running(world, "a")
    assert world.sharepod("a")["spec"]["nodeName"] == "n1"


@scenario(n1=1)
async def test_a_node_agent_that_is_down_is_told_after_a_moment(world: World) -> None:
    world.actors.node_agents = False
    world.start()
    world.share("a")
    await expect_condition(world, "a", "Allocated", "Creating")
    assert "node agent of n1" in world.condition("a", "Allocated")["message"]
    world.actors.node_agents = True
    world.actors.reconcile()
    await expect_ready(world, "a")


@scenario(n1=1)
async def test_a_placeholder_without_its_vgpu_goes(world: World) -> None:
    world.start()
    await world.run("a")
    await world.kill()
    [gpuid] = world.vgpus()
    world.server.remove(SHAREPODS, "a", "default")
    await expect_no_pod(world, "a")
    world.server.remove(VGPUS, gpuid)
    world.start()
    await expect_placeholders(world, 0)


@scenario(n1=1)
async def test_the_placeholder_goes_before_its_vgpu(world: World) -> None:
    world.start()
    await world.run("a")
    kept: list[bool] = []
    world.server.storage.after_change.append(
        lambda *_: kept.append(bool(world.vgpus()) or not world.placeholders())
    )
    world.delete("a")
    await expect_no_vgpus(world)
    assert all(kept)


@scenario(n1=1)
async def test_a_placeholder_has_a_controller_without_which_no_drain_would_begin(
    world: World,
) -> None:
    world.start()
    world.share("a")
    await expect_running(world, "a")
    (pod,) = world.server.all(PODS, NAMESPACE)
    (owner,) = pod["metadata"]["ownerReferences"]
    namespace = world.server.stored(NAMESPACES, NAMESPACE)
    assert namespace is not None
    assert (owner["kind"], owner["uid"]) == ("Namespace", namespace["metadata"]["uid"])
    assert owner["controller"]
    assert "blockOwnerDeletion" not in owner


@scenario(n1=1)
async def test_a_failed_placeholder_that_another_leader_has_replaced_is_not_deleted_again(
    world: World,
) -> None:
    world.actors.node_agents = False
    world.start()
    world.share("a")
    [name] = await expect_placeholders(world, 1)
    replaced: list[Raw] = []

    def replace() -> None:
        pod = world.server.stored(PODS, name, NAMESPACE)
        assert pod is not None
        world.server.remove(PODS, name, NAMESPACE)
        for field in ("uid", "resourceVersion"):
            del pod["metadata"][field]
        replaced.append(world.server.seed(PODS, pod | {"status": {"phase": "Pending"}}))

    world.server.inject(Fault.preceded_by(replace), verb="delete", resource="pods", name=name)
    status = {"phase": "Failed", "message": "UnexpectedAdmissionError"}
    world.server.change(PODS, name, NAMESPACE, lambda pod: pod.update(status=status))
    await world.until(lambda: replaced)
    await world.quiet(5)
    pod = world.server.stored(PODS, name, NAMESPACE)
    assert pod is not None
    assert pod["metadata"]["uid"] == replaced[0]["metadata"]["uid"]
    assert "deletionTimestamp" not in pod["metadata"]


@scenario(n1=1)
async def test_a_placeholder_gets_a_moment_to_end_so_that_its_gpu_is_free_afterwards(
    world: World,
) -> None:
    world.start()
    await world.run("a")
    [name] = world.placeholders()
    world.delete("a")
    await expect_no_vgpus(world)
    [asked] = [
        each for each in world.server.requests if (each.verb, each.path.name) == ("delete", name)
    ]
    assert asked.body["gracePeriodSeconds"] == 1
