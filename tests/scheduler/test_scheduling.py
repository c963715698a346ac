"""The scheduler against an API server in memory."""

from typing import Any

import pytest

from expectations import (
    assert_pending,
    assert_scheduled,
    expect_decided,
    expect_event,
    expect_holders,
    expect_pending,
    expect_running,
    expect_scheduled,
    expect_shared_gpu,
    expect_vgpus,
)
from fakes import manifests
from fakes.cluster import GIB, World, run_scenario, scenario
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPUS
from kubeshare.kube.resources import NODES
from kubeshare.simulator.control import Fault

Raw = dict[str, Any]


@scenario(n1=1)
async def test_a_sharepod_on_an_empty_node_gets_a_new_vgpu(world: World) -> None:
    world.share("a")
    world.start("scheduler")
    placed = await expect_scheduled(world, "a", node="n1")
    vgpu = world.server.stored(VGPUS, placed.gpuid)
    assert vgpu is not None
    assert vgpu["spec"]["memoryBytes"] == 16 << 30
    assert vgpu["spec"]["model"] == "V100"
    assert world.condition("a", "Scheduled")["reason"] == "Bound"
    await expect_event(world, "a")
    assert f"Bound: new vGPU {placed.gpuid} on node n1" in world.events("a")


@scenario(n1=1)
async def test_the_published_annotations_are_read_and_kept(world: World) -> None:
    amounts = {"gpu_request": "0.5", "gpu_limit": "1.0", "gpu_mem": "3145728000"}
    annotations = {f"kubeshare/{key}": value for key, value in amounts.items()}
    world.share("a", None, annotations=annotations)
    world.start("scheduler")
    gpuid = (await expect_scheduled(world, "a")).gpuid
    ask = {"id": gpuid, "attempt": 1, "idGiven": False, "nodeGiven": False}
    assert world.sharepod("a")["spec"]["gpu"] == ask
    vgpu = world.server.stored(VGPUS, gpuid)
    assert vgpu is not None
    [holder] = vgpu["status"]["holders"]
    assert (holder["requestMicros"], holder["memoryBytes"]) == (500_000, 3_145_728_000)


@scenario(n1=2)
async def test_a_burst_of_two_that_do_not_fit_together_never_shares_a_gpu(world: World) -> None:
    world.share("a", "0.6")
    world.share("b", "0.6")
    world.server.freeze_watches()  # the scheduler knows only its own writes
    world.start("scheduler")
    await expect_decided(world, "a", "b")
    assert assert_scheduled(world, "a").gpuid != assert_scheduled(world, "b").gpuid
    reads = [each for each in world.server.requests if each.verb == "get"]
    assert not reads, "it decided from an old state and had to read again"


@scenario(n1=1)
async def test_six_that_fill_one_gpu_exactly_share_it(world: World) -> None:
    names = "abcdef"
    for name, request in zip(names, (".1", ".1", ".1", ".3", ".3", ".1"), strict=True):
        world.share(name, request, memory="1Gi")
    world.start("scheduler")
    await expect_shared_gpu(world, *names)


@scenario(n1=1, n2=2)
async def test_a_sharepod_of_two_gpus_gets_equal_parts_of_both_or_waits(world: World) -> None:
    world.start("scheduler")
    world.share("a", "0.7", count=2)
    await expect_decided(world, "a")
    spec = world.sharepod("a")["spec"]
    assert spec["nodeName"] == "n2"
    ids = spec["gpu"]["ids"]
    assert len(ids) == 2
    for gpuid in ids:
        vgpu = world.server.stored(VGPUS, gpuid)
        assert vgpu is not None
        [holder] = vgpu["status"]["holders"]
        assert holder["requestMicros"] == 700_000
    world.share("b", "0.7", count=2)
    await expect_decided(world, "b")
    assert world.condition("b", "Scheduled")["reason"] == "NoRoom"
    assert not world.condition("b", "Scheduled")["message"].startswith("count")


@scenario(n1=1)
async def test_what_does_not_fit_waits_and_is_told_why_for_each_gpu(world: World) -> None:
    world.start("scheduler")
    world.share("a", "0.7")
    await expect_decided(world, "a")
    world.share("b", "0.6")
    await expect_pending(world, "b", "compute 0.3 left, 0.6 asked", "n1: no free GPU")
    gpuid = assert_scheduled(world, "a").gpuid
    assert f"; it fits when a leaves n1/{gpuid}. It is tried again" in world.events("b")[0]


@scenario(n1=1)
async def test_memory_larger_than_any_gpu_is_told_with_the_numbers(world: World) -> None:
    world.start("scheduler")
    world.share("a", "0.5", memory="99Gi")
    await expect_pending(world, "a", "99Gi asked", "16Gi", reason="NeverFits")


@scenario(n1=1)
async def test_a_value_that_is_not_acceptable_is_told_by_the_name_of_its_field(
    world: World,
) -> None:
    world.start("scheduler")
    world.share("a", "0.7", limit="0.5")
    await expect_pending(world, "a", "spec.gpu.request", "0.7", reason="Invalid")
    assert not world.vgpus()


@scenario(n1=1)
async def test_only_one_of_the_three_amounts_is_refused_by_name(world: World) -> None:
    world.start("scheduler")
    world.share("a", None, annotations={"kubeshare/gpu_request": "0.5"})
    await expect_pending(world, "a", "kubeshare/gpu_limit", reason="Invalid")


@scenario(n1=1)
async def test_one_that_is_no_pod_is_told_so_and_hinders_nobody(world: World) -> None:
    world.start("scheduler")
    # The schema keeps most of a PodSpec as it came.
    world.share("a", spec={"affinity": "ssd"})
    world.share("b")
    await expect_decided(world, "a")
    await expect_event(world, "b")
    assert_pending(world, "a", "spec.affinity", reason="Invalid")
    assert assert_scheduled(world, "b")


@scenario(n1=1)
async def test_nothing_of_a_gpu_is_none_of_the_schedulers_business(world: World) -> None:
    world.start("scheduler")
    world.share("a", None)
    await world.quiet()
    assert not world.condition("a", "Scheduled")
    assert not world.server.writes


async def _fill_and_wait(world: World) -> None:
    world.start("scheduler")
    world.share("a", "0.7")
    await expect_decided(world, "a")
    world.share("b", "0.6")
    world.share("c", "0.6")
    await expect_decided(world, "c")
    assert_pending(world, "b")


@scenario(n1=1)
async def test_what_waits_is_tried_again_when_a_part_is_given_back_oldest_first(
    world: World,
) -> None:
    await _fill_and_wait(world)
    gpuid = assert_scheduled(world, "a").gpuid
    world.server.change(VGPUS, gpuid, "", lambda vgpu: vgpu["status"].update(holders=[]))
    await expect_scheduled(world, "b", gpuid=gpuid)
    assert_pending(world, "c")


@scenario(n1=1)
async def test_what_waits_is_tried_again_when_a_node_comes(world: World) -> None:
    await _fill_and_wait(world)
    world.add_node("n2", 1)
    await expect_scheduled(world, "b", node="n2")


@scenario(n1=1)
async def test_what_waits_is_tried_again_when_a_native_pod_ends(world: World) -> None:
    world.native_pod("whole")
    await expect_running(world, "whole")
    world.start("scheduler")
    world.share("a")
    await expect_pending(world, "a")
    world.end("whole")
    await expect_scheduled(world, "a")


@scenario(n1=1)
async def test_nothing_is_asked_of_the_server_while_something_waits(world: World) -> None:
    await _fill_and_wait(world)
    await world.quiet(5)
    before = len(world.server.requests)
    await world.quiet(60)
    assert len(world.server.requests) == before


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"unschedulable": True}, "cordoned"),
        ({"taints": [{"key": "gpu", "effect": "NoSchedule"}]}, "taint gpu is not tolerated"),
    ],
    ids=["cordoned", "tainted"],
)
def test_a_node_that_takes_no_pods_is_passed_over(spec: Raw, why: str) -> None:
    async def scenario(world: World) -> None:
        world.add_node("n1", 1, **spec)
        world.start("scheduler")
        world.share("a")
        await expect_pending(world, "a", f"n1: {why}")
        world.server.change(NODES, "n1", "", lambda node: node.update(spec={}))
        await expect_scheduled(world, "a")

    run_scenario(scenario)


def test_a_tainted_node_does_not_keep_a_sharepod_from_another_one() -> None:
    async def scenario(world: World) -> None:
        world.add_node("n1", 1, taints=[{"key": "gpu", "effect": "NoSchedule"}])
        world.add_node("n2", 2)
        world.start("scheduler")
        for name in ("a", "b", "c"):
            world.share(name, "0.6")
        await expect_decided(world, "c")
        for name in ("a", "b"):
            assert_scheduled(world, name, node="n2")
        assert_pending(world, "c")

    run_scenario(scenario)


def test_a_toleration_opens_a_tainted_node() -> None:
    async def scenario(world: World) -> None:
        world.add_node("n1", 1, taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
        world.start("scheduler")
        toleration = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
        world.share("a", spec={"tolerations": [toleration]})
        await expect_scheduled(world, "a", node="n1")

    run_scenario(scenario)


@scenario(n1=1, n2=1)
async def test_the_node_selector_is_respected_even_where_another_vgpu_has_room(
    world: World,
) -> None:
    world.start("scheduler")
    world.share("a", "0.1", spec={"nodeSelector": {"kubernetes.io/hostname": "n1"}})
    await expect_decided(world, "a")
    world.share("b", "0.1", spec={"nodeSelector": {"kubernetes.io/hostname": "n2"}})
    await expect_decided(world, "b")
    assert_scheduled(world, "a", node="n1")
    assert_scheduled(world, "b", node="n2")


@scenario(n1=1)
async def test_a_gpuid_without_a_node_gets_its_node_from_the_scheduler(world: World) -> None:
    world.start("scheduler")
    world.share("a", "0.5", id="abcde")
    await expect_scheduled(world, "a", gpuid="abcde", node="n1")


@scenario(n1=1)
async def test_a_gpuid_with_a_node_is_left_to_the_device_manager(world: World) -> None:
    world.start("scheduler")
    world.share("a", "0.5", id="abcde", spec={"nodeName": "n1"})
    await expect_decided(world, "a")
    assert world.condition("a", "Scheduled")["reason"] == "Given"
    assert not world.vgpus()


@scenario(n1=2)
async def test_a_decision_from_a_state_that_is_no_more_is_refused_once_and_made_again(
    world: World,
) -> None:
    world.reserve("n1", "x")
    world.server.inject(Fault.hang(), verb="watch", resource="vgpus")
    world.start("scheduler")
    await world.quiet(1)
    # No watch event reports this to the scheduler.
    taken = manifests.holder("u", "other", requestMicros=700_000, memoryBytes=GIB)
    world.server.change(VGPUS, "x", "", lambda vgpu: vgpu.update(status={"holders": [taken]}))
    before = len(world.server.requests)
    world.share("a", "0.6")
    placed = await expect_scheduled(world, "a", node="n1")
    assert placed.gpuid != "x"
    assert world.vgpus()["x"] == ["other"]
    asked = [f"{each.verb} {each.resource}" for each in world.server.requests[before:]]
    wanted = ["patch vgpus/status", "get vgpus", "create vgpus", "patch vgpus/status"]
    assert [each for each in asked if "vgpus" in each] == wanted


@scenario(n1=1)
async def test_whoever_decides_at_the_same_time_wins_and_the_part_is_given_back(
    world: World,
) -> None:
    def decide_first() -> None:
        decision = {"nodeName": "n1", "gpu": {"request": "0.3", "id": "mine"}}
        world.server.change(SHAREPODS, "a", "default", lambda shp: shp["spec"].update(decision))

    conflict = Fault("answer", 409, "Conflict", action=decide_first)
    world.server.inject(conflict, verb="patch", resource="sharepods")
    world.start("scheduler")
    world.share("a")
    await expect_decided(world, "a")
    assert world.sharepod("a")["spec"]["gpu"]["id"] == "mine"
    assert list(world.vgpus().values()) == [[]]


def _held(world: World, uid: str, **holder: Any) -> None:
    """Adds a vGPU with a holder that an earlier run of the scheduler has written."""
    amounts = {"requestMicros": 300_000, "limitMicros": 1_000_000, "memoryBytes": GIB}
    held = manifests.holder(uid, **(amounts | holder))
    vgpu = manifests.vgpu("old", "n1", held, phase="Creating", pool="onDemand")
    world.server.seed(VGPUS, vgpu)


@pytest.mark.parametrize(
    ("holder", "writes"),
    [({"attempt": 1}, 0), ({"attempt": 1, "requestMicros": 200_000}, 2), ({"attempt": 0}, 2)],
    ids=["taken up", "asked otherwise since", "of a decision that was undone"],
)
def test_what_an_earlier_run_holds_is_taken_up_if_it_is_still_right(
    holder: Raw, writes: int
) -> None:
    async def scenario(world: World) -> None:
        _held(world, world.share("a")["metadata"]["uid"], **holder)
        world.start("scheduler")
        await expect_scheduled(world, "a", gpuid="old")
        asked = [each.resource for each in world.server.requests if each.verb == "patch"]
        assert asked.count("vgpus/status") == writes
        vgpu = world.server.stored(VGPUS, "old")
        assert vgpu is not None
        [now] = vgpu["status"]["holders"]
        assert (now["attempt"], now["requestMicros"]) == (1, 300_000)

    run_scenario(scenario, n1=1)


@pytest.mark.parametrize("asks", [{}, {"request": "0.5", "limit": "0.1"}], ids=["nothing", "amiss"])
def test_what_was_taken_is_given_back_when_it_was_changed_to_ask_for(asks: Raw) -> None:
    async def tell(world: World) -> None:
        world.server.inject(Fault.hang(), verb="patch", resource="sharepods")
        world.share("a")
        world.start("scheduler")
        await expect_holders(world, ["a"])
        await world.kill("scheduler")
        world.server.change(
            SHAREPODS, "a", "default", lambda sharepod: sharepod["spec"].update(gpu=asks)
        )
        world.start("scheduler")
        await expect_holders(world, [])

    run_scenario(tell, n1=1)


@scenario(n1=1)
async def test_a_sharepod_that_is_deleted_meanwhile_leaves_no_holder(world: World) -> None:
    gone = Fault("answer", 404, "NotFound", action=lambda: world.delete("a"))
    world.server.inject(gone, verb="patch", resource="sharepods")
    world.start("scheduler")
    world.share("a")
    await expect_holders(world, [])


@scenario(n1=1)
async def test_a_node_whose_agent_has_not_reported_gets_no_new_vgpu(world: World) -> None:
    world.actors.node_agents = False
    world.server.remove(GPUNODES, "n1")
    world.start("scheduler")
    world.share("a")
    await expect_pending(world, "a", "n1: no free GPU")


def test_a_message_about_many_gpus_has_a_bounded_length() -> None:
    async def scenario(world: World) -> None:
        for number in range(60):
            world.add_node(f"node-with-a-long-name-{number}", 0)
        world.start("scheduler")
        world.share("a")
        await expect_decided(world, "a")
        message = world.condition("a", "Scheduled")["message"]
        assert len(message) < 1100
        assert message.endswith("more")

    run_scenario(scenario)


def test_what_makes_it_impossible_is_told_before_what_is_wrong_with_each_gpu() -> None:
    async def scenario(world: World) -> None:
        for number in range(60):
            world.add_node(f"node-with-a-long-name-{number}", 1)
        world.start("scheduler")
        world.share("a", memory="99Gi")
        await expect_event(world, "a")
        message = world.condition("a", "Scheduled")["message"]
        assert message.startswith("memory: 99Gi asked, and the largest GPU has 16Gi")

    run_scenario(scenario)


@scenario(n1=1)
async def test_a_podspec_of_an_odd_form_is_told_of_and_holds_nobody_up(world: World) -> None:
    world.start("scheduler")
    world.share("a", spec={"tolerations": "all"})
    world.share("b", spec={"affinity": {"nodeAffinity": ["n1"]}})
    world.share("c")
    await expect_shared_gpu(world, "c")
    for name, field in (("a", "spec.tolerations"), ("b", "spec.affinity.nodeAffinity")):
        await expect_decided(world, name)
        told = world.condition(name, "Scheduled")
        assert (told["status"], told["reason"]) == ("False", "Invalid")
        assert told["message"].startswith(f"{field}: is not as Kubernetes has it")


@scenario(n1=2)
async def test_a_watch_that_has_gone_silent_makes_nobody_hold_two_gpus(world: World) -> None:
    """No event reports the new vGPU until the reflector detects the silence."""
    world.server.inject_at_write(1, lambda: Fault.preceded_by(world.server.mute_watches))
    world.start("scheduler")
    world.plain("a")
    await expect_vgpus(world, 1)
    world.plain("b")
    await world.quiet(300)
    assert list(world.vgpus().values()) == [["a", "b"]]
