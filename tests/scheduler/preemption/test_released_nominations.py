"""Room that is reserved for a requester is freed with it, and bounded in number."""

from typing import Any

import pytest

from expectations import (
    expect_decided,
    expect_deleted,
    expect_evictions,
    expect_pending,
    expect_scheduled,
)
from fakes.cluster import World, scenario
from fakes.cluster.state import evicted
from kubeshare.api.types import core_v1, v1
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.meta import ObjectMeta
from kubeshare.scheduler.preemption import nominations, victims
from kubeshare.scheduler.preemption.nominations import MAX_NOMINATIONS, Nomination, Nominations

MARKED = {"kubeshare.nthu/preemptible": "true"}
HIGH = {"sharedgpu/priority": "5"}


@scenario(n1=1)
async def test_a_deleted_requester_frees_the_room_reserved_for_it(world: World) -> None:
    world.configure(preemption=True)
    world.start()
    await world.run("low", "0.8", annotations=MARKED)
    world.actors.node_agents = False  # the share of the evicted pod is not released
    world.share("high", "0.9", labels=HIGH)
    await expect_evictions(world, "low")
    world.share("small", "0.1")
    await expect_pending(world, "small", "kept for SharePod default/high of priority 5")
    world.delete("high")
    await expect_deleted(world, "high")
    # Long before the nomination expires, and without another change in the cluster.
    await expect_scheduled(world, "small", seconds=5)


@scenario(n1=1)
async def test_a_deleted_gang_frees_the_room_reserved_for_it(world: World) -> None:
    world.configure(preemption=True)
    world.start()
    await world.run("low", "0.8", annotations=MARKED)
    world.actors.node_agents = False  # the share of the evicted pod is not released
    gang = HIGH | {"sharedgpu/group_name": "g", "sharedgpu/min_available": "2"}
    for name in ("a", "b"):
        world.share(name, "0.4", labels=gang)
    await expect_evictions(world, "low")
    world.share("small", "0.1")
    await expect_pending(world, "small", "kept for gang g of namespace default of priority 5")
    for name in ("a", "b"):
        world.delete(name)
    await expect_deleted(world, "a", "b")
    await expect_scheduled(world, "small", seconds=5)


@scenario(n1=2)
async def test_a_victim_that_still_holds_its_share_is_waited_for(world: World) -> None:
    world.configure(preemption=True)
    world.start()
    for name in ("a", "b"):
        await world.run(name, "0.4", annotations=MARKED)
    [gpuid] = world.vgpus()
    # Its room would do as well, but it is of a higher priority than the two.
    await world.run("c", "0.9", annotations=MARKED, labels={"sharedgpu/priority": "1"})
    world.actors.node_agents = False
    world.share("high", "1", labels=HIGH)
    await expect_evictions(world, "a", "b")

    def release_one(raw: dict[str, Any]) -> None:
        status = raw["status"]
        status["holders"] = [each for each in status["holders"] if each["name"] == "b"]
        status["summary"] |= {"holders": 1, "requested": "0.4"}

    world.server.change(VGPUS, gpuid, "", release_one)
    await world.quiet(10)
    await expect_evictions(world, "a", "b")
    reported = [event for event in world.events("high") if event.startswith("Preempting")]
    assert len(reported) == 1


@pytest.mark.parametrize("allowed", [1, 2])
def test_no_more_pods_are_evicted_than_nominations_are_allowed(
    allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nominations, "MAX_NOMINATIONS", allowed)

    @scenario(n1=2)
    async def play(world: World) -> None:
        world.configure(preemption=True)
        world.start()
        for name in ("a", "b"):
            await world.run(name, "0.9", annotations=MARKED)
        world.actors.node_agents = False
        for name in ("x", "y"):
            world.share(name, "0.9", labels=HIGH)
        await expect_decided(world, "y")
        await world.quiet(30)
        assert len(evicted(world)) == allowed

    play()


def test_the_number_of_nominations_is_bounded() -> None:
    known = Nominations()

    def nominate(owner: str) -> None:
        known.add(
            Nomination(
                owner=owner,
                uids=frozenset([owner]),
                priority=5,
                devices={},
                victims=frozenset(),
                until=10.0,
            )
        )

    for number in range(MAX_NOMINATIONS - 1):
        nominate(str(number))
    assert MAX_NOMINATIONS == 64
    assert not known.full(0.0)
    nominate("last")
    assert known.full(0.0)
    known.remove("last")
    assert not known.full(0.0)


def a_vgpu(name: str, pod_uid: str, attempt: int = 1) -> v1.VGPU:
    holder = v1.Holder(demand="d", attempt=attempt, pod_uid=pod_uid)
    return v1.VGPU(
        metadata=ObjectMeta(name=name),
        spec=v1.VGPUSpec(node_name="n1"),
        status=v1.VGPUStatus(holders=(holder,)),
    )


@pytest.mark.parametrize(
    ("second", "is_victim"),
    [(a_vgpu("b", "d"), True), (a_vgpu("b", ""), False), (a_vgpu("b", "d", 0), False)],
    ids=["both assigned", "one not assigned to its pod", "one chosen by its author"],
)
def test_a_pod_is_a_victim_only_if_all_its_shares_are_its_own(
    second: v1.VGPU, *, is_victim: bool
) -> None:
    pod = core_v1.Pod(
        metadata=ObjectMeta(name="p", namespace="default", uid="d", annotations=MARKED),
        spec=core_v1.PodSpec(node_name="n1"),
    )
    found = victims.victims_of([pod], lambda _: [a_vgpu("a", "d"), second])
    assert [victim.uid for victim in found] == (["d"] if is_victim else [])
