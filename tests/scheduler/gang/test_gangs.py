"""Gangs of SharePods: enough members at once, or none."""

import asyncio

import pytest

from expectations import (
    assert_pending,
    assert_scheduled,
    expect_all_scheduled,
    expect_condition,
    expect_decided,
    expect_event,
    expect_holder_count,
    expect_holders,
    expect_holding,
    expect_no_vgpus,
    expect_pending,
    expect_running,
    expect_scheduled,
)
from fakes.cluster import World, scenario
from fakes.cluster.state import gates, holding, is_scheduled
from kubeshare.api.affinity_terms import require_node
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPUS
from kubeshare.kube.resources import NODES
from kubeshare.simulator.control import Fault, run_virtual


def labels(needed: int, name: str = "g", **more: str) -> dict[str, str]:
    said = {"group_name": name, "min_available": str(needed), **more}
    return {f"sharedgpu/{key}": value for key, value in said.items()}


def gang(world: World, *names: str, needed: int = 0, request: str = "1") -> None:
    for name in names:
        world.share(name, request, labels=labels(needed or len(names)))


@scenario(n1=2, n2=2)
async def test_a_gang_is_placed_in_one_go(world: World) -> None:
    world.start("scheduler")
    gang(world, "a", "b", "c", "d")
    await expect_all_scheduled(world, *"abcd")
    assert holding(world) == ["a", "b", "c", "d"]
    assert len({assert_scheduled(world, name).gpuid for name in "abcd"}) == 4


@scenario(n1=4)
async def test_a_gang_waits_until_enough_of_its_members_are_there(world: World) -> None:
    world.start("scheduler")
    gang(world, "a", "b", needed=3)
    await expect_event(world, "b")
    words = "gang g: 2 of the 3 members that it needs are there"
    for name in "ab":
        assert_pending(world, name, words, reason="GangIncomplete")
    assert not world.vgpus()
    gang(world, "c", needed=3)
    await expect_all_scheduled(world, *"abc")


@scenario(n1=4)
async def test_a_gang_that_loses_a_member_says_so(world: World) -> None:
    world.start("scheduler")
    gang(world, "a", "b", needed=3)
    await expect_decided(world, "b")
    world.delete("a")
    await expect_condition(world, "b", "Scheduled", message="1 of the 3")


@scenario(n1=3)
async def test_case_61_of_four_with_room_for_three_none_starts(world: World) -> None:
    world.start("scheduler", "devices")
    for name in "abcd":
        threshold = {"group_headcount": "4", "group_threshold": "1.0"}
        said = {"group_name": "g", **threshold}
        world.share(name, "1", labels={f"sharedgpu/{key}": value for key, value in said.items()})
    await expect_event(world, "d")
    await world.quiet(30)
    for name in "abcd":
        assert_pending(
            world,
            name,
            "gang g: room for 3 of the 4 members that it needs",
            "n1: no free GPU",
            reason="GangNoRoom",
        )
        assert world.pod(name) is None
    assert not world.vgpus()
    world.add_node("n2", 1)
    await expect_running(world, *"abcd")


@scenario(n1=3)
async def test_who_comes_after_enough_are_placed_is_decided_about_alone(world: World) -> None:
    world.start("scheduler")
    gang(world, "a", "b", needed=2)
    await expect_all_scheduled(world, *"ab")
    gang(world, "c", "d", needed=2)
    await expect_scheduled(world, "c")
    await expect_pending(world, "d", "n1: no free GPU")


@scenario(n1=3)
async def test_more_than_are_needed_are_placed_as_far_as_there_is_room(world: World) -> None:
    gang(world, "a", "b", "c", "d", needed=2)
    world.start("scheduler")
    await expect_all_scheduled(world, *"abc")
    await expect_pending(world, "d", "n1: no free GPU")


@scenario(n1=1)
async def test_two_gangs_of_one_name_in_two_namespaces_are_two(world: World) -> None:
    world.start("scheduler")
    gang(world, "a", needed=2, request="0.1")
    metadata = {"name": "b", "namespace": "other", "labels": labels(2)}
    spec = {"containers": [{"name": "main"}], "gpu": {"request": "0.1", "memory": "1Gi"}}
    world.server.seed(SHAREPODS, {"metadata": metadata, "spec": spec})
    await expect_decided(world, "a")
    await world.quiet()
    assert_pending(world, "a", "1 of the 2", reason="GangIncomplete")


@pytest.mark.parametrize(
    ("said", "label"),
    [
        ({"sharedgpu/min_available": "3"}, "sharedgpu/min_available"),
        ({"sharedgpu/priority": "7"}, "sharedgpu/priority"),
    ],
)
def test_members_have_to_agree_on_what_the_gang_is(said: dict[str, str], label: str) -> None:
    @scenario(n1=2)
    async def play(world: World) -> None:
        world.start("scheduler")
        gang(world, "a", needed=2, request="0.1")
        world.share("b", "0.1", labels=labels(2) | said)
        await expect_pending(world, "b", label, "SharePod default/a", reason="Invalid")
        assert_pending(world, "a", "1 of the 2", reason="GangIncomplete")

    play()


@scenario(n1=2)
async def test_a_label_that_cannot_be_read_is_told_by_its_name(world: World) -> None:
    world.start("scheduler")
    world.share("a", labels={"sharedgpu/priority": "high"})
    await expect_pending(world, "a", "sharedgpu/priority", "high", reason="Invalid")


@scenario(n1=2, n2=2)
async def test_a_refused_part_gives_back_those_before_it(world: World) -> None:
    world.start("scheduler")
    refused = Fault.answer(422, "Invalid")
    # Two holders are written, the third is refused.
    world.server.inject(refused, verb="patch", resource="vgpus/status", skip=2)
    most = 0

    def look(*_: object) -> None:
        nonlocal most
        most = max(most, len(holding(world)))

    world.server.storage.after_change.append(look)
    gang(world, "a", "b", "c")
    await expect_all_scheduled(world, *"abc")
    writes = [each for each in world.server.requests if each.resource == "vgpus/status"]
    removed = [each for each in writes if any(one["op"] == "remove" for one in each.body)]
    assert (most, len(removed)) == (3, 2)


@scenario(n1=4)
async def test_what_was_taken_before_a_kill_is_completed(world: World) -> None:
    world.start("scheduler")
    fault = Fault.hang(after=True)
    world.server.inject(fault, verb="patch", resource="vgpus/status", skip=1)
    gang(world, "a", "b", "c")
    await expect_holder_count(world, 2)
    await world.kill("scheduler")
    assert not any(is_scheduled(world, name) for name in "abc")
    world.start("scheduler")
    await expect_all_scheduled(world, *"abc")
    assert holding(world) == ["a", "b", "c"]


async def cut_off(world: World) -> str:
    """Kills the scheduler when two of three hold shares; returns the third's vGPU."""
    world.start("scheduler", "devices")
    world.server.inject(Fault.hang(after=True), verb="patch", resource="vgpus/status", skip=1)
    gang(world, "a", "b", "c")
    await expect_holder_count(world, 2)
    await world.kill("scheduler")
    return next(gpuid for gpuid, held in world.vgpus().items() if not held)


@pytest.mark.slow
@scenario(n1=3)
async def test_what_was_taken_is_given_back_where_the_rest_has_no_room_any_more(
    world: World,
) -> None:
    gpuid = await cut_off(world)
    world.share("x", "0.5", id=gpuid, spec={"nodeName": "n1"})
    await expect_running(world, "x")
    world.start("scheduler")
    await expect_pending(world, "c")
    assert holding(world) == ["x"]
    for name in "abc":
        assert_pending(world, name, "room for 2 of the 3", reason="GangNoRoom")


@pytest.mark.slow
@scenario(n1=3)
async def test_what_was_taken_is_given_back_when_a_member_is_gone(world: World) -> None:
    await cut_off(world)
    world.delete("c")
    world.start("scheduler")
    await expect_pending(world, "b")
    for name in "ab":
        assert_pending(world, name, "2 of the 3", reason="GangIncomplete")
    await expect_no_vgpus(world)


@scenario(n1=3)
async def test_a_member_that_changes_while_it_is_told_does_not_stop_the_others(
    world: World,
) -> None:
    world.start("scheduler")
    conflict = Fault.answer(409, "Conflict")
    world.server.inject(conflict, verb="patch", resource="sharepods", name="a")
    gang(world, "a", "b", "c")
    await expect_all_scheduled(world, *"abc")
    assert holding(world) == ["a", "b", "c"]


@scenario(n1=3)
async def test_what_is_told_of_a_gang_that_waits_is_told_once(world: World) -> None:
    world.start("scheduler")
    gang(world, "a", "b", "c", "d")
    await expect_event(world, "d")
    await world.quiet(5)
    before = len(world.server.requests)
    labels = {"new": "label"}
    world.server.change(NODES, "n1", "", lambda node: node["metadata"].update(labels=labels))
    await world.quiet(60)
    assert len(world.server.requests) == before


@scenario(n1=2)
async def test_plain_pods_start_together_too(world: World) -> None:
    world.start()
    world.plain("a", "1", labels=labels(2))
    await expect_pending(world, "a", reason="GangIncomplete")
    world.plain("b", "1", labels=labels(2))
    await expect_running(world, "a", "b")


@scenario(n1=2)
async def test_a_sharepod_and_a_plain_pod_may_be_of_one_gang(world: World) -> None:
    world.start()
    gang(world, "a", needed=2)
    await expect_decided(world, "a")
    world.plain("b", "1", labels=labels(2))
    await expect_running(world, "a", "b")


@pytest.mark.slow
@scenario(n1=2)
async def test_no_pod_of_a_gang_is_let_go_before_all_of_their_gpus_are_there(
    world: World,
) -> None:
    world.configure(gangTimeoutSeconds=60)
    world.start()
    await world.run("x", "0.4")
    # The second one needs a vGPU that no node agent activates.
    world.actors.node_agents = False
    world.plain("a", "0.6", labels=labels(2))
    world.plain("b", "0.6", labels=labels(2))
    await expect_pending(world, "b", reason="Creating")
    assert gates(world, "a")
    assert gates(world, "b")
    assert "gang g: " in world.pod_condition("a")["message"]
    await expect_pending(world, "a", reason="GangTimedOut", seconds=120)
    assert holding(world) == ["x"]
    assert "has not started within 60 s" in world.pod_condition("b")["message"]
    assert gates(world, "a")
    world.actors.node_agents = True
    await expect_running(world, "a", "b", seconds=120)


@scenario(n1=3)
async def test_one_beyond_those_that_are_needed_is_told_once_why_it_has_no_part(
    world: World,
) -> None:
    world.actors.node_agents = False
    world.start()
    for name in "abcd":
        world.plain(name, "1", labels=labels(3))
    await expect_pending(world, "d", reason="NoRoom")
    await expect_pending(world, "a", reason="Creating")
    before = len(world.server.requests)
    await world.quiet(20)
    assert len(world.server.requests) == before
    assert "n1: no free GPU" in world.pod_condition("d")["message"]


async def robbed(world: World) -> None:
    """A gang of two holds a GPU of n1 and one of n2; a native pod gets the GPU of n1."""
    world.start("scheduler")
    for name in "ab":
        world.plain(name, "1", labels=labels(2))
    await expect_holder_count(world, 2)
    assert nodes(world) == ["n1", "n2"]
    world.native_pod("whole", affinity=require_node({}, "n1"))
    await expect_running(world, "whole")
    world.start("devices")


def nodes(world: World) -> list[str]:
    return sorted(vgpu["spec"]["nodeName"] for vgpu in world.server.all(VGPUS))


@scenario(n1=1, n2=2)
async def test_a_gpu_of_a_gang_that_a_native_pod_took_first_is_had_on_another_node(
    world: World,
) -> None:
    await robbed(world)
    await expect_running(world, "a", "b", seconds=60)
    assert nodes(world) == ["n2", "n2"]
    assert any("GPUNotFree" in event for event in [*world.events("a"), *world.events("b")])


@pytest.mark.slow
def test_to_move_a_gang_on_may_be_cut_off_at_any_write() -> None:
    """Every third write fails, before it takes effect or before its response."""
    total, write = 1, 1
    while write <= total:
        world = World(n1=1, n2=2)
        fault = Fault.reset(after=write % 2 == 0)
        total = run_virtual(cut_off_when_robbed(world, write, fault))
        write += 3
    assert total > len("ab")


async def cut_off_when_robbed(world: World, write: int, fault: Fault) -> int:
    """Injects a fault at one write; returns the writes since the native pod has the GPU."""
    made = 0

    async def tell(world: World) -> None:
        nonlocal made
        await robbed(world)
        before = world.server.writes
        world.server.inject_at_write(before + write, fault)
        await expect_running(world, "a", "b", seconds=200)
        made = world.server.writes - before
        await world.quiet(30)
        assert nodes(world) == ["n2", "n2"]
        assert holding(world) == ["a", "b"]

    await world.play(tell)
    return made


@scenario(n1=1, n2=1)
async def test_a_gpu_of_a_gang_that_a_native_pod_took_first_is_waited_for_where_there_is_no_other(
    world: World,
) -> None:
    await robbed(world)
    await expect_pending(world, "a", reason="GPUNotFree")
    await world.quiet(60)
    assert holding(world) == ["a", "b"]
    assert gates(world, "a")
    assert gates(world, "b")
    world.end("whole")
    await expect_running(world, "a", "b", seconds=60)


@scenario(n1=3)
async def test_a_gpu_of_a_gang_that_fails_before_all_are_there_is_left_for_another_one(
    world: World,
) -> None:
    world.start()
    await world.run("x", "0.4")
    world.actors.node_agents = False
    for name in "ab":
        world.plain(name, "0.6", labels=labels(2))
    await expect_holding(world, "a", "b", "x")
    (shared,) = [sorted(held) for held in world.vgpus().values() if "x" in held]
    assert len(shared) == 2
    failed = {"healthy": False, "message": "XID 79"}
    world.server.change(GPUNODES, "n1", "", lambda obj: obj["spec"]["devices"][0].update(failed))
    await expect_holders(world, ["a"], ["b"], ["x"])
    waits = [world.pod_condition(name)["message"] for name in "ab"]
    assert any("XID 79" in words for words in waits)
    assert gates(world, "a")
    world.actors.node_agents = True
    world.actors.reconcile()
    await expect_running(world, "a", "b")


@pytest.mark.slow
@scenario(n1=1, n2=1, n3=2)
async def test_a_gang_that_is_moved_on_has_no_more_time_than_others_to_start(
    world: World,
) -> None:
    world.configure(gangTimeoutSeconds=60)
    await robbed(world)
    world.actors.node_agents = False
    await world.until(lambda: "n1" not in nodes(world))
    moved = asyncio.get_running_loop().time()
    await expect_pending(world, "a", reason="GangTimedOut", seconds=120)
    assert asyncio.get_running_loop().time() - moved < 55
    assert not holding(world)


@scenario(n1=2)
async def test_a_member_that_is_done_counts_for_the_others_of_its_job_and_for_no_other_job(
    world: World,
) -> None:
    world.start()
    for name in "ab":
        world.plain(name, "1", labels=labels(2), owner="first job")
    await expect_running(world, "a", "b")
    world.end("a")
    world.end("b", "Failed")
    world.plain("c", "1", labels=labels(2), owner="first job")
    await expect_running(world, "c")
    world.end("c")
    world.plain("d", "1", labels=labels(2), owner="second job")
    await expect_pending(world, "d", reason="GangIncomplete")
    world.plain("e", "1", labels=labels(2), owner="second job")
    await expect_running(world, "d", "e")
