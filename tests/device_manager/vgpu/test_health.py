"""vGPUs whose GPU fails or whose placeholder is lost."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from expectations import (
    assert_scheduled,
    expect_activated,
    expect_condition,
    expect_degraded,
    expect_event,
    expect_no_vgpus,
    expect_on_node,
    expect_pending,
    expect_placeholders,
    expect_ready,
    expect_running,
    expect_vgpu_deleted,
    expect_vgpus,
)
from fakes import manifests
from fakes.cluster import World, scenario
from fakes.cluster.state import degraded, the_pod
from kubeshare.api.types.constants import placeholder_name
from kubeshare.api.types.v1 import GPUNODES, VGPU, VGPUS, VGPUSpec
from kubeshare.device_manager.context import Context
from kubeshare.device_manager.placeholder.recovery import FIRST_BACKOFF_SECONDS, MAX_ATTEMPTS
from kubeshare.device_manager.vgpu.health import VGPUHealth
from kubeshare.kube.clock import utc_now
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import NODES, PODS
from kubeshare.simulator.control import FakeApiServer, Fault, run_virtual

SYSTEM = "kubeshare-system"


def lose_placeholder(world: World) -> None:
    [placeholder] = world.placeholders()
    world.server.remove(PODS, placeholder, SYSTEM)


def report_gpu(world: World, *, healthy: bool, message: str = "") -> None:
    """Sets the health of the first GPU of n1, as its agent does."""
    health = {"healthy": healthy, "message": message}
    world.server.change(GPUNODES, "n1", "", lambda obj: obj["spec"]["devices"][0].update(health))


def take(world: World, name: str) -> None:
    """Creates a native pod, and binds it before any other pod."""
    world.native_pod(name)
    world.actors.reconcile()


@scenario(n1=1)
async def test_a_lost_placeholder_is_replaced_by_one_with_the_same_gpu(world: World) -> None:
    world.start()
    world.share("a")
    await expect_ready(world, "a")
    lose_placeholder(world)
    await expect_degraded(world, "Healthy")
    assert len(world.placeholders()) == 1
    [gpuid] = world.vgpus()
    reasons = {event.partition(":")[0] for event in world.events(gpuid)}
    assert {"PlaceholderLost", "Healthy"} <= reasons
    world.share("b")
    await expect_running(world, "b")
    assert_scheduled(world, "b", gpuid=gpuid)


@scenario(n1=1)
async def test_who_had_the_gpu_before_is_told_and_has_it_again_after_a_new_start(
    world: World,
) -> None:
    world.start()
    world.share("a")
    await expect_ready(world, "a")
    await world.quiet(5)
    lose_placeholder(world)
    await expect_condition(world, "a", "Allocated", "GPULost")
    assert any(event.startswith("PlaceholderLost") for event in world.events("a"))
    pod = the_pod(world, "a")
    world.actors.delete(pod)
    await expect_condition(world, "a", "Allocated", "Allocated")


@scenario(n1=1)
async def test_a_gpu_that_a_native_pod_got_takes_nobody_until_its_holders_have_gone(
    world: World,
) -> None:
    world.start()
    world.share("a")
    await expect_ready(world, "a")
    lose_placeholder(world)
    take(world, "whole")
    assert world.running("whole")
    await expect_condition(world, "a", "Allocated", "PlaceholderLost")
    world.share("b")
    await expect_pending(world, "b")
    await world.quiet(300)
    assert degraded(world)["status"] == "True"
    world.delete("a")
    await expect_no_vgpus(world)
    world.end("whole")
    await expect_running(world, "b")


@scenario(n1=2)
async def test_a_placeholder_with_another_gpu_goes_and_few_are_tried(world: World) -> None:
    world.start()
    await world.run("a")
    lose_placeholder(world)
    take(world, "whole")
    made: set[str] = set()

    def count(*_: Any) -> None:
        made.update(pod["metadata"]["uid"] for pod in world.server.all(PODS, SYSTEM))

    world.server.storage.after_change.append(count)
    await world.quiet(1800)
    assert len(made) == MAX_ATTEMPTS
    assert not world.placeholders()
    assert degraded(world)["status"] == "True"
    [gpuid] = world.vgpus()
    assert any("is given up" in event for event in world.events(gpuid))
    world.share("b", "0.9")
    await expect_pending(world, "b")
    world.delete("a")
    await expect_running(world, "b")
    assert world.shares_gpu("b")


@scenario(n1=2)
async def test_a_gpu_is_had_back_when_who_got_it_leaves(world: World) -> None:
    world.start()
    await world.run("a")
    lose_placeholder(world)
    take(world, "whole")
    await world.quiet(10)
    world.end("whole")
    await expect_degraded(world, "Healthy", seconds=120)


@scenario(n1=1)
async def test_a_placeholder_that_has_ended_is_replaced(world: World) -> None:
    world.start()
    world.share("a")
    await expect_ready(world, "a")
    [placeholder] = world.placeholders()
    evicted = {"phase": "Failed", "reason": "Evicted"}
    world.server.change(PODS, placeholder, SYSTEM, lambda pod: pod["status"].update(evicted))
    await expect_degraded(world, "PlaceholderLost")
    await expect_degraded(world, "Healthy")
    [gpuid] = world.vgpus()
    assert not [each for each in world.events(gpuid) if each.startswith("OtherGPU")]


@scenario(n1=1)
async def test_placeholders_that_end_by_themselves_are_tried_a_few_times_with_growing_pauses(
    world: World,
) -> None:
    world.start()
    await world.run("a")
    ended: dict[str, float] = {}

    def end(*_: Any) -> None:
        for pod in world.server.all(PODS, SYSTEM):
            if pod["metadata"]["uid"] not in ended:
                ended[pod["metadata"]["uid"]] = asyncio.get_running_loop().time()
                failed = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
                name = pod["metadata"]["name"]
                world.server.change(
                    PODS,
                    name,
                    SYSTEM,
                    lambda obj: obj["status"].update(failed),  # noqa: B023
                )

    world.server.storage.after_change.append(end)
    lose_placeholder(world)
    await world.quiet(1800)
    assert len(ended) == MAX_ATTEMPTS
    pauses = [late - early for early, late in pairwise(ended.values())]
    expected = [FIRST_BACKOFF_SECONDS * 2**number for number in range(MAX_ATTEMPTS - 1)]
    assert pauses == pytest.approx(expected, abs=1)


@scenario(n1=1)
async def test_no_placeholder_is_made_for_a_vgpu_of_which_none_was_recorded(world: World) -> None:
    """As written by an earlier version: any new placeholder would count as the recorded one."""
    world.start()
    await world.run("a")
    [gpuid] = world.vgpus()
    world.server.change(VGPUS, gpuid, "", lambda vgpu: vgpu["spec"].pop("placeholderUid"))
    lose_placeholder(world)
    await expect_degraded(world, "PlaceholderLost")
    await world.quiet(120)
    assert not world.placeholders()


@scenario(n1=1)
async def test_a_placeholder_that_only_was_not_seen_yet_is_not_taken_for_lost(
    world: World,
) -> None:
    world.start()
    await world.run("a")
    await world.kill()
    world.server.inject(Fault.hang(), verb="list", resource="pods")
    world.start()
    await world.quiet(60)
    assert degraded(world) == {}


def test_a_placeholder_that_the_cache_lacks_is_read_before_it_counts_as_lost() -> None:
    server = FakeApiServer()
    name = placeholder_name("x")
    pod = server.seed(PODS, manifests.pod(name, metadata={"namespace": SYSTEM}))
    spec = VGPUSpec(node_name="n1", uuid="GPU-1", placeholder_uid=pod["metadata"]["uid"])
    vgpu = VGPU(metadata=ObjectMeta(name="x"), spec=spec)
    context = SimpleNamespace(
        client=server.client(),
        pool=None,
        informers=SimpleNamespace(gpunodes=SimpleNamespace(store={})),
        placeholders=SimpleNamespace(of=lambda _: None),
        events=None,
        wall_clock=utc_now,
    )
    health = VGPUHealth(cast("Context", context))
    assert run_virtual(health.reconcile(vgpu)) is vgpu
    assert [(each.verb, each.path.name) for each in server.requests] == [("get", name)]


@scenario(n1=1)
async def test_a_reserved_vgpu_that_lost_its_placeholder_goes_when_it_is_idle(
    world: World,
) -> None:
    world.reserve("n1", "kept")
    world.start()
    await expect_activated(world)
    lose_placeholder(world)
    await expect_vgpu_deleted(world, "kept")
    await expect_placeholders(world, 0)


@scenario(n1=2)
async def test_a_gpu_that_has_failed_takes_nobody_and_its_pods_are_kept_and_told(
    world: World,
) -> None:
    world.start()
    world.share("a")
    await expect_ready(world, "a")
    [gpuid] = world.vgpus()
    report_gpu(world, healthy=False, message="XID 79")
    await expect_degraded(world, "GPUUnhealthy")
    assert "XID 79" in degraded(world)["message"]
    await expect_condition(world, "a", "Allocated", "GPUUnhealthy")
    assert "XID 79" in world.condition("a", "Allocated")["message"]
    assert any("XID 79" in event for event in world.events("a"))
    assert any("It takes no new holder" in event for event in world.events(gpuid))
    world.share("b")
    await expect_running(world, "b")
    assert assert_scheduled(world, "b").gpuid != gpuid
    await world.quiet(300)
    assert world.running("a")


@scenario(n1=1)
async def test_a_gpu_that_is_healthy_again_takes_holders(world: World) -> None:
    world.start()
    world.share("a")
    await expect_ready(world, "a")
    report_gpu(world, healthy=False, message="XID 79")
    await expect_condition(world, "a", "Allocated", "GPUUnhealthy")
    world.share("b")
    await expect_pending(world, "b")
    report_gpu(world, healthy=True)
    await expect_running(world, "b")
    assert world.shares_gpu("a", "b")
    await expect_condition(world, "a", "Allocated", "Allocated")
    assert degraded(world)["status"] == "False"


@scenario(n1=1, n2=1)
async def test_pods_of_a_gpu_that_has_failed_are_evicted_where_that_is_wanted(
    world: World,
) -> None:
    world.configure(gpuFailure="evict")
    world.start()
    await world.run("a")
    assert assert_scheduled(world, "a").node == "n1"
    busy = Fault.answer(429, "TooManyRequests")
    world.server.inject(busy, verb="create", resource="pods/eviction", times=2)
    report_gpu(world, healthy=False, message="XID 79")
    await expect_event(world, "a", "EvictionRefused")
    assert world.running("a"), "its budget keeps it"
    await expect_on_node(world, "a", "n2")
    await expect_ready(world, "a")
    assert any(each.startswith("GPUEviction") for each in world.events("a"))
    await expect_vgpus(world, 1)


@scenario(n1=1, n2=1)
async def test_pods_leave_a_gpu_that_has_failed_when_that_is_configured_afterwards(
    world: World,
) -> None:
    world.configure(gpuFailure="keep")
    world.start()
    await world.run("a")
    report_gpu(world, healthy=False, message="XID 79")
    await expect_degraded(world, "GPUUnhealthy")
    await world.quiet(30)
    assert world.sharepod("a")["spec"]["nodeName"] == "n1"
    world.configure(gpuFailure="evict")
    await expect_on_node(world, "a", "n2")


@scenario(n1=1)
async def test_a_gpu_that_comes_back_as_another_leaves_the_old_ones_vgpu_to_its_end(
    world: World,
) -> None:
    world.start()
    await world.run("a")

    def exchange(obj: Any) -> None:
        [old] = obj["spec"]["devices"]
        gone = old | {"healthy": False, "message": "the driver lists it no more"}
        obj["spec"]["devices"] = [old | {"uuid": "GPU-new"}, gone]

    world.server.change(GPUNODES, "n1", "", exchange)
    lose_placeholder(world)
    await expect_degraded(world, "GPUUnhealthy")
    await world.quiet(60)
    assert not world.placeholders(), "no placeholder can have a GPU back that is no more"
    world.delete("a")
    await expect_no_vgpus(world)
    await world.run("b")
    [vgpu] = world.server.all(VGPUS)
    assert vgpu["spec"]["uuid"] == "GPU-new"


@scenario(n1=1)
async def test_a_placeholder_lost_on_a_cordoned_node_is_not_replaced(world: World) -> None:
    world.start()
    await world.run("a")
    world.server.change(NODES, "n1", "", lambda node: node["spec"].update(unschedulable=True))
    lose_placeholder(world)
    await world.quiet(120)
    assert not world.placeholders()
    world.server.change(NODES, "n1", "", lambda node: node["spec"].update(unschedulable=False))
    await expect_placeholders(world, 1)


@scenario(n1=1)
async def test_a_gpu_that_a_dra_driver_serves_is_shared_like_any_other(world: World) -> None:
    def no_plugin(node: Any) -> None:
        world.actors.by_claims["n1"] = int(node["status"]["allocatable"].pop("nvidia.com/gpu"))

    world.server.change(NODES, "n1", "", no_plugin)
    world.server.change(GPUNODES, "n1", "", lambda found: found["spec"].update(draCount=1))
    world.start()
    await world.run("a", "0.7")
    world.share("b", "0.7")
    await expect_pending(world, "b")
    assert world.shares_gpu("a")


async def decided_for_a_failed_gpu(world: World) -> str:
    """SharePod b holds a share of a GPU of n1 that has failed since; returns its vGPU."""
    world.start()
    world.share("a", "0.3", spec={"nodeSelector": {"kubernetes.io/hostname": "n1"}})
    await expect_running(world, "a")
    await world.kill("scheduler")
    report_gpu(world, healthy=False, message="XID 79")
    await expect_degraded(world, "GPUUnhealthy")
    [gpuid] = world.vgpus()
    world.share("b", id=gpuid, attempt=1, spec={"nodeName": "n1"})
    holder = manifests.holder(world.sharepod("b")["metadata"]["uid"], "b")
    world.server.change(VGPUS, gpuid, "", lambda vgpu: vgpu["status"]["holders"].append(holder))
    await expect_condition(world, "b", "Allocated", "GPUUnhealthy")
    world.start("scheduler")
    return gpuid


@scenario(n1=1, n2=1)
async def test_a_decision_for_a_gpu_that_has_failed_meanwhile_is_made_again_elsewhere(
    world: World,
) -> None:
    await decided_for_a_failed_gpu(world)
    await expect_running(world, "b")
    assert_scheduled(world, "b", node="n2")


@pytest.mark.slow
@scenario(n1=2)
async def test_of_a_gpu_that_has_failed_another_one_of_the_same_node_takes_the_place(
    world: World,
) -> None:
    failed = await decided_for_a_failed_gpu(world)
    await expect_running(world, "b")
    assert assert_scheduled(world, "b", node="n1").gpuid != failed
    [entry] = world.sharepod("b")["spec"]["gpu"]["setAside"]
    assert (entry["node"], entry["id"]) == ("n1", failed)
    assert any(f"Undone: vGPU {failed}" in event for event in world.events("b"))


@scenario(n1=2)
async def test_what_is_set_aside_of_a_node_is_not_chosen_though_it_seems_to_be_fine(
    world: World,
) -> None:
    world.start()
    await world.run("a", "0.1")
    [gpuid] = world.vgpus()
    entry = {"node": "n1", "id": gpuid, "until": "2026-01-01T00:05:00Z", "message": "XID 79"}
    world.share("b", "0.1", setAside=[entry])
    await expect_running(world, "b")
    assert assert_scheduled(world, "b").gpuid != gpuid
    world.share("c", "1", setAside=[entry])
    await expect_pending(world, "c", f"n1/{gpuid}: set aside until", "XID 79")


@scenario(n1=1)
async def test_a_placeholder_that_nobody_saw_end_is_lost_too(world: World) -> None:
    """As after a reboot: the times are null in JSON."""
    world.start()
    await world.run("a")
    [placeholder] = world.placeholders()
    unknown = {"reason": "ContainerStatusUnknown", "startedAt": None, "finishedAt": None}
    containers = [{"name": "placeholder", "state": {"terminated": unknown}}]
    status = {"phase": "Failed", "containerStatuses": containers}
    world.server.change(PODS, placeholder, SYSTEM, lambda pod: pod["status"].update(status))
    await expect_degraded(world, "Healthy")


@scenario(n1=1)
async def test_a_node_whose_clock_is_behind_is_no_sign_of_a_lost_gpu(world: World) -> None:
    world.start()
    await world.run("a")

    def behind(pod: dict[str, Any]) -> None:
        for container in pod["status"]["containerStatuses"]:
            container["state"]["running"]["startedAt"] = "2025-12-31T23:59:30Z"

    world.server.change(PODS, "a", "default", behind)
    await expect_ready(world, "a")
    assert world.condition("a", "Allocated")["reason"] == "Allocated"


@scenario(n1=1, agents=True)
async def test_a_kubelet_that_restarts_costs_nobody_a_placeholder(world: World) -> None:
    """For a while the agent reports no GPU; its node offers none and is not ready."""
    world.start()
    await world.run("a")
    [placeholder] = world.placeholders()
    before = world.pod(placeholder, SYSTEM), world.server.all(VGPUS)
    machine = world.machines["n1"]

    def ready(status: str) -> None:
        conditions = [{"type": "Ready", "status": status}]
        world.server.change(
            NODES, "n1", "", lambda node: node["status"].update(conditions=conditions)
        )

    for restarted, gpus, status in ((True, 0, "Unknown"), (False, 1, "True")):
        machine.knows_gpus = not restarted
        world.offer("n1", gpus)
        ready(status)
        await world.kill("agent/n1")
        world.start("agent/n1")
        await world.quiet(60)
    assert (world.pod(placeholder, SYSTEM), world.server.all(VGPUS)) == before
    assert world.running("a")
    assert machine.containers
    world.share("b")
    await expect_running(world, "b")
