"""Gangs of SharePods: enough members at once, or none."""

import asyncio

import pytest

from fakes.cluster import World, expect_pending, expect_scheduled, story
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


def placed(world: World, *names: str) -> bool:
    return all(world.condition(name, "Scheduled").get("status") == "True" for name in names)


def holding(world: World) -> list[str]:
    return sorted(name for held in world.vgpus().values() for name in held)


@story(n1=2, n2=2)
async def test_a_gang_is_placed_in_one_go(world: World) -> None:
    world.start("scheduler")
    gang(world, "a", "b", "c", "d")
    await world.until(lambda: placed(world, *"abcd"))
    assert holding(world) == ["a", "b", "c", "d"]
    assert len({expect_scheduled(world, name).gpuid for name in "abcd"}) == 4


@story(n1=4)
async def test_a_gang_waits_until_enough_of_its_members_are_there(world: World) -> None:
    world.start("scheduler")
    gang(world, "a", "b", needed=3)
    await world.until(lambda: world.events("b"))
    words = "gang g: 2 of the 3 members that it needs are there"
    for name in "ab":
        expect_pending(world, name).because(words, reason="GangIncomplete")
    assert not world.vgpus()
    gang(world, "c", needed=3)
    await world.until(lambda: placed(world, *"abc"))


@story(n1=4)
async def test_a_gang_that_loses_a_member_says_so(world: World) -> None:
    world.start("scheduler")
    gang(world, "a", "b", needed=3)
    await world.until(lambda: world.condition("b", "Scheduled"))
    world.delete("a")
    await world.until(lambda: "1 of the 3" in world.condition("b", "Scheduled")["message"])


@story(n1=3)
async def test_case_61_of_four_with_room_for_three_none_starts(world: World) -> None:
    world.start("scheduler", "devices")
    for name in "abcd":
        threshold = {"group_headcount": "4", "group_threshold": "1.0"}
        said = {"group_name": "g", **threshold}
        world.share(name, "1", labels={f"sharedgpu/{key}": value for key, value in said.items()})
    await world.until(lambda: world.events("d"))
    await world.quiet(30)
    for name in "abcd":
        expect_pending(world, name).because(
            "gang g: room for 3 of the 4 members that it needs",
            "n1: no free GPU",
            reason="GangNoRoom",
        )
        assert world.pod(name) is None
    assert not world.vgpus()
    world.add_node("n2", 1)
    await world.until(lambda: world.running(*"abcd"))


@story(n1=3)
async def test_who_comes_after_enough_are_placed_is_decided_about_alone(world: World) -> None:
    world.start("scheduler")
    gang(world, "a", "b", needed=2)
    await world.until(lambda: placed(world, *"ab"))
    gang(world, "c", "d", needed=2)
    await world.until(lambda: placed(world, "c") and world.condition("d", "Scheduled"))
    expect_pending(world, "d").because("n1: no free GPU")


@story(n1=3)
async def test_more_than_are_needed_are_placed_as_far_as_there_is_room(world: World) -> None:
    gang(world, "a", "b", "c", "d", needed=2)
    world.start("scheduler")
    await world.until(lambda: placed(world, *"abc") and world.condition("d", "Scheduled"))
    expect_pending(world, "d").because("n1: no free GPU")


@story(n1=1)
async def test_two_gangs_of_one_name_in_two_namespaces_are_two(world: World) -> None:
    world.start("scheduler")
    gang(world, "a", needed=2, request="0.1")
    metadata = {"name": "b", "namespace": "other", "labels": labels(2)}
    spec = {"containers": [{"name": "main"}], "gpu": {"request": "0.1", "memory": "1Gi"}}
    world.server.seed(SHAREPODS, {"metadata": metadata, "spec": spec})
    await world.until(lambda: world.condition("a", "Scheduled"))
    await world.quiet()
    expect_pending(world, "a").because("1 of the 2", reason="GangIncomplete")


@pytest.mark.parametrize(
    ("said", "label"),
    [
        ({"sharedgpu/min_available": "3"}, "sharedgpu/min_available"),
        ({"sharedgpu/priority": "7"}, "sharedgpu/priority"),
    ],
)
def test_members_have_to_agree_on_what_the_gang_is(said: dict[str, str], label: str) -> None:
    @story(n1=2)
    async def play(world: World) -> None:
        world.start("scheduler")
        gang(world, "a", needed=2, request="0.1")
        world.share("b", "0.1", labels=labels(2) | said)
        await world.until(lambda: world.events("b"))
        expect_pending(world, "b").because(label, "SharePod default/a", reason="Invalid")
        expect_pending(world, "a").because("1 of the 2", reason="GangIncomplete")

    play()


@story(n1=2)
async def test_a_label_that_cannot_be_read_is_told_by_its_name(world: World) -> None:
    world.start("scheduler")
    world.share("a", labels={"sharedgpu/priority": "high"})
    await world.until(lambda: world.events("a"))
    expect_pending(world, "a").because("sharedgpu/priority", "high", reason="Invalid")


@story(n1=2, n2=2)
async def test_a_refused_part_gives_back_those_before_it(world: World) -> None:
    world.start("scheduler")
    refused = Fault.answer(422, "Invalid")
    # Two parts are taken, the third is refused, and so is taking them a second time.
    world.server.inject(refused, verb="patch", resource="vgpus/status", skip=2)
    most = 0

    def look(*_: object) -> None:
        nonlocal most
        most = max(most, len(holding(world)))

    world.server.storage.after_change.append(look)
    gang(world, "a", "b", "c")
    await world.until(lambda: placed(world, *"abc"))
    writes = [each for each in world.server.requests if each.resource == "vgpus/status"]
    removed = [each for each in writes if any(one["op"] == "remove" for one in each.body)]
    assert (most, len(removed)) == (3, 2)


@story(n1=4)
async def test_what_was_taken_before_a_kill_is_completed(world: World) -> None:
    world.start("scheduler")
    fault = Fault.hang(after=True)
    world.server.inject(fault, verb="patch", resource="vgpus/status", skip=1)
    gang(world, "a", "b", "c")
    await world.until(lambda: len(holding(world)) == 2)
    await world.kill("scheduler")
    assert not any(placed(world, name) for name in "abc")
    world.start("scheduler")
    await world.until(lambda: placed(world, *"abc"))
    assert holding(world) == ["a", "b", "c"]


async def cut_off(world: World) -> str:
    """Two of three have taken their parts when the scheduler is killed; the third's vGPU."""
    world.start("scheduler", "devices")
    world.server.inject(Fault.hang(after=True), verb="patch", resource="vgpus/status", skip=1)
    gang(world, "a", "b", "c")
    await world.until(lambda: len(holding(world)) == 2)
    await world.kill("scheduler")
    return next(gpuid for gpuid, held in world.vgpus().items() if not held)


@pytest.mark.slow
@story(n1=3)
async def test_what_was_taken_is_given_back_where_the_rest_has_no_room_any_more(
    world: World,
) -> None:
    gpuid = await cut_off(world)
    world.share("x", "0.5", id=gpuid, spec={"nodeName": "n1"})
    await world.until(lambda: world.running("x"))
    world.start("scheduler")
    await world.until(lambda: world.condition("c", "Scheduled").get("status") == "False")
    assert holding(world) == ["x"]
    for name in "abc":
        expect_pending(world, name).because("room for 2 of the 3", reason="GangNoRoom")


@pytest.mark.slow
@story(n1=3)
async def test_what_was_taken_is_given_back_when_a_member_is_gone(world: World) -> None:
    await cut_off(world)
    world.delete("c")
    world.start("scheduler")
    await world.until(lambda: world.condition("b", "Scheduled").get("status") == "False")
    for name in "ab":
        expect_pending(world, name).because("2 of the 3", reason="GangIncomplete")
    await world.until(lambda: not world.vgpus())


@story(n1=3)
async def test_a_member_that_changes_while_it_is_told_does_not_stop_the_others(
    world: World,
) -> None:
    world.start("scheduler")
    conflict = Fault.answer(409, "Conflict")
    world.server.inject(conflict, verb="patch", resource="sharepods", name="a")
    gang(world, "a", "b", "c")
    await world.until(lambda: placed(world, *"abc"))
    assert holding(world) == ["a", "b", "c"]


@story(n1=3)
async def test_what_is_told_of_a_gang_that_waits_is_told_once(world: World) -> None:
    world.start("scheduler")
    gang(world, "a", "b", "c", "d")
    await world.until(lambda: world.events("d"))
    await world.quiet(5)
    before = len(world.server.requests)
    labels = {"new": "label"}
    world.server.change(NODES, "n1", "", lambda node: node["metadata"].update(labels=labels))
    await world.quiet(60)
    assert len(world.server.requests) == before


def gates(world: World, name: str) -> list[str]:
    pod = world.pod(name)
    assert pod is not None
    return [gate["name"] for gate in pod["spec"].get("schedulingGates", [])]


@story(n1=2)
async def test_plain_pods_start_together_too(world: World) -> None:
    world.start()
    world.plain("a", "1", labels=labels(2))
    await world.until(lambda: world.pod_condition("a").get("reason") == "GangIncomplete")
    world.plain("b", "1", labels=labels(2))
    await world.until(lambda: world.running("a", "b"))


@story(n1=2)
async def test_a_sharepod_and_a_plain_pod_may_be_of_one_gang(world: World) -> None:
    world.start()
    gang(world, "a", needed=2)
    await world.until(lambda: world.condition("a", "Scheduled"))
    world.plain("b", "1", labels=labels(2))
    await world.until(lambda: world.running("a", "b"))


@pytest.mark.slow
@story(n1=2)
async def test_no_pod_of_a_gang_is_let_go_before_all_of_their_gpus_are_there(
    world: World,
) -> None:
    world.configure(gangTimeoutSeconds=60)
    world.start()
    await world.run("x", "0.4")
    # The second one needs a GPU that no node agent names.
    world.actors.node_agents = False
    world.plain("a", "0.6", labels=labels(2))
    world.plain("b", "0.6", labels=labels(2))
    await world.until(lambda: world.pod_condition("b").get("reason") == "Creating")
    assert gates(world, "a")
    assert gates(world, "b")
    assert "gang g: " in world.pod_condition("a")["message"]
    await world.until(lambda: world.pod_condition("a").get("reason") == "GangTimedOut", 120)
    assert holding(world) == ["x"]
    assert "has not started within 60 s" in world.pod_condition("b")["message"]
    assert gates(world, "a")
    world.actors.node_agents = True
    await world.until(lambda: world.running("a", "b"), 120)


@story(n1=3)
async def test_one_beyond_those_that_are_needed_is_told_once_why_it_has_no_part(
    world: World,
) -> None:
    world.actors.node_agents = False
    world.start()
    for name in "abcd":
        world.plain(name, "1", labels=labels(3))
    await world.until(lambda: world.pod_condition("d").get("reason") == "NoRoom")
    await world.until(lambda: world.pod_condition("a").get("reason") == "Creating")
    before = len(world.server.requests)
    await world.quiet(20)
    assert len(world.server.requests) == before
    assert "n1: no free GPU" in world.pod_condition("d")["message"]


async def robbed(world: World) -> None:
    """A gang of two has a GPU of n1 and one of n2, and a native pod gets the former."""
    world.start("scheduler")
    for name in "ab":
        world.plain(name, "1", labels=labels(2))
    await world.until(lambda: len(holding(world)) == 2)
    assert nodes(world) == ["n1", "n2"]
    world.native_pod("whole", affinity=require_node({}, "n1"))
    await world.until(lambda: world.running("whole"))
    world.start("devices")


def nodes(world: World) -> list[str]:
    return sorted(vgpu["spec"]["nodeName"] for vgpu in world.server.all(VGPUS))


@story(n1=1, n2=2)
async def test_a_gpu_of_a_gang_that_a_native_pod_took_first_is_had_on_another_node(
    world: World,
) -> None:
    await robbed(world)
    await world.until(lambda: world.running("a", "b"), 60)
    assert nodes(world) == ["n2", "n2"]
    assert any("GPUNotFree" in event for event in [*world.events("a"), *world.events("b")])


@pytest.mark.slow
def test_to_move_a_gang_on_may_be_cut_off_at_any_write() -> None:
    """Before each third one, and after it but before its answer."""
    total, write = 1, 1
    while write <= total:
        world = World(n1=1, n2=2)
        fault = Fault.reset(after=write % 2 == 0)
        total = run_virtual(cut_off_when_robbed(world, write, fault))
        write += 3
    assert total > len("ab")


async def cut_off_when_robbed(world: World, write: int, fault: Fault) -> int:
    """Its writes after the native pod has the GPU, one of which meets a fault."""
    made = 0

    async def tell(world: World) -> None:
        nonlocal made
        await robbed(world)
        before = world.server.writes
        world.server.inject_at_write(before + write, fault)
        await world.until(lambda: world.running("a", "b"), 200)
        made = world.server.writes - before
        await world.quiet(30)
        assert nodes(world) == ["n2", "n2"]
        assert holding(world) == ["a", "b"]

    await world.play(tell)
    return made


@story(n1=1, n2=1)
async def test_a_gpu_of_a_gang_that_a_native_pod_took_first_is_waited_for_where_there_is_no_other(
    world: World,
) -> None:
    await robbed(world)
    await world.until(lambda: world.pod_condition("a").get("reason") == "GPUNotFree")
    await world.quiet(60)
    assert holding(world) == ["a", "b"]
    assert gates(world, "a")
    assert gates(world, "b")
    world.end("whole")
    await world.until(lambda: world.running("a", "b"), 60)


@story(n1=3)
async def test_a_gpu_of_a_gang_that_fails_before_all_are_there_is_left_for_another_one(
    world: World,
) -> None:
    world.start()
    await world.run("x", "0.4")
    world.actors.node_agents = False
    for name in "ab":
        world.plain(name, "0.6", labels=labels(2))
    await world.until(lambda: holding(world) == ["a", "b", "x"])
    (shared,) = [sorted(held) for held in world.vgpus().values() if "x" in held]
    assert len(shared) == 2
    failed = {"healthy": False, "message": "XID 79"}
    world.server.change(GPUNODES, "n1", "", lambda obj: obj["spec"]["devices"][0].update(failed))
    await world.until(lambda: sorted(world.vgpus().values()) == [["a"], ["b"], ["x"]])
    waits = [world.pod_condition(name)["message"] for name in "ab"]
    assert any("XID 79" in words for words in waits)
    assert gates(world, "a")
    world.actors.node_agents = True
    world.actors.look()
    await world.until(lambda: world.running("a", "b"))


@pytest.mark.slow
@story(n1=1, n2=1, n3=2)
async def test_a_gang_that_is_moved_on_has_no_more_time_than_others_to_start(
    world: World,
) -> None:
    world.configure(gangTimeoutSeconds=60)
    await robbed(world)
    world.actors.node_agents = False
    await world.until(lambda: "n1" not in nodes(world))
    moved = asyncio.get_running_loop().time()
    await world.until(lambda: world.pod_condition("a").get("reason") == "GangTimedOut", 120)
    assert asyncio.get_running_loop().time() - moved < 55
    assert not holding(world)


@story(n1=2)
async def test_a_member_that_is_done_counts_for_the_others_of_its_job_and_for_no_other_job(
    world: World,
) -> None:
    world.start()
    for name in "ab":
        world.plain(name, "1", labels=labels(2), owner="first job")
    await world.until(lambda: world.running("a", "b"))
    world.end("a")
    world.end("b", "Failed")
    world.plain("c", "1", labels=labels(2), owner="first job")
    await world.until(lambda: world.running("c"))
    world.end("c")
    world.plain("d", "1", labels=labels(2), owner="second job")
    await world.until(lambda: world.pod_condition("d").get("reason") == "GangIncomplete")
    world.plain("e", "1", labels=labels(2), owner="second job")
    await world.until(lambda: world.running("d", "e"))
