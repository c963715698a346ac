"""Unschedulable requesters are tried again when that may help, and not otherwise."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from expectations.scheduling import expect_decided, expect_pending, expect_scheduled
from expectations.vgpus import expect_holding
from fakes import manifests
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.state import verdict
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.unschedulable import UnschedulableQueue
from kubeshare.api.types.v1 import SHAREPODS, VGPUS
from kubeshare.core.ledger.device import Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.kube.controller.workqueue import WorkQueue
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import NODES
from kubeshare.scheduler import explanations
from kubeshare.scheduler.explanations import (
    FEW,
    MAX_SECONDS,
    PLACES_AT_ONCE,
    SECONDS_A_MESSAGE,
    Explanations,
)
from kubeshare.scheduler.requesters.base import RequesterKey
from kubeshare.scheduler.wakeups import RESYNC_SECONDS, Wakeups
from kubeshare.simulator.control import run_virtual
from scheduler.gang.gangs import gang

Raw = dict[str, Any]


def looks(cluster: FakeCluster) -> int:
    return cluster.reconciles("scheduler")["scheduler"]


async def fill(cluster: FakeCluster, *requests: str) -> str:
    """Lets the scheduler fill the one GPU, and one SharePod wait; the GPUID."""
    cluster.start("scheduler")
    for number, request in enumerate(requests):
        cluster.share(f"a{number}", request, memory="1Gi")
    gpuid = (await expect_scheduled(cluster, "a0")).gpuid
    cluster.share("waits", "0.6", memory="1Gi")
    await expect_pending(cluster, "waits", "0.6 asked")
    await cluster.quiet()
    return gpuid


def change_holders(cluster: FakeCluster, gpuid: str, *holders: Raw) -> None:
    def change(obj: Raw) -> None:
        obj["status"]["holders"] = list(holders)

    cluster.server.change(VGPUS, gpuid, "", change)


def holders_of(cluster: FakeCluster, gpuid: str) -> list[Raw]:
    stored = cluster.server.stored(VGPUS, gpuid)
    assert stored is not None
    found: list[Raw] = stored["status"]["holders"]
    return found


@scenario(n1=1)
async def test_a_vgpu_that_came_while_nobody_waited_wakes_when_it_goes(
    cluster: FakeCluster,
) -> None:
    cluster.actors.node_agents = False
    cluster.start("scheduler")
    cluster.share("a", "0.6", memory="1Gi")
    gpuid = (await expect_scheduled(cluster, "a")).gpuid
    [holder] = holders_of(cluster, gpuid)
    change_holders(cluster, gpuid, holder | {"podUid": "former"})
    await cluster.quiet()
    undecided = {"gpu": {"request": "0.5", "memory": "1Gi", "attempt": 1}, "nodeName": ""}
    cluster.server.change(SHAREPODS, "a", "default", lambda shp: shp["spec"].update(undecided))
    await expect_pending(cluster, "a", reason="Releasing")
    await cluster.quiet()
    cluster.server.remove(VGPUS, gpuid)
    await expect_scheduled(cluster, "a")


@scenario(n1=1)
async def test_a_holder_that_comes_and_a_heartbeat_wake_nobody(cluster: FakeCluster) -> None:
    gpuid = await fill(cluster, "0.5")
    before = looks(cluster)
    more = manifests.holder("other", "other", requestMicros=100_000)
    change_holders(cluster, gpuid, *holders_of(cluster, gpuid), more)

    def beat(obj: Raw) -> None:
        obj["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-01T00:00:10Z"

    cluster.server.change(NODES, "n1", "", beat)
    await cluster.quiet()
    assert looks(cluster) == before


@scenario(n1=1)
async def test_a_holder_that_leaves_lets_one_in(cluster: FakeCluster) -> None:
    gpuid = await fill(cluster, "0.5", "0.3")
    change_holders(cluster, gpuid)
    await expect_scheduled(cluster, "waits")


@scenario(n1=1)
async def test_less_that_a_holder_asks_for_lets_one_in(cluster: FakeCluster) -> None:
    gpuid = await fill(cluster, "0.5")
    [only] = holders_of(cluster, gpuid)
    change_holders(cluster, gpuid, only | {"requestMicros": 300_000})
    await expect_scheduled(cluster, "waits")


@scenario(n1=1)
async def test_room_that_comes_back_while_watches_are_silent_is_found(
    cluster: FakeCluster,
) -> None:
    """The watch never shows the holder that this program added, and that another removed."""
    cluster.start("scheduler")
    cluster.share("a", "0.2", memory="1Gi")
    gpuid = (await expect_scheduled(cluster, "a")).gpuid
    await cluster.quiet()
    cluster.server.freeze_watches()
    before = holders_of(cluster, gpuid)
    cluster.share("b", "0.5", memory="1Gi")
    cluster.share("waits", "0.6", memory="1Gi")
    cluster.server.freeze_watches(frozen=False)
    cluster.server.reset_watches()
    await expect_decided(cluster, "b", "waits")
    change_holders(cluster, gpuid, *before)
    await expect_scheduled(cluster, "waits")


@scenario(n1=1)
async def test_a_node_that_comes_back_lets_one_in(cluster: FakeCluster) -> None:
    def cordon(obj: Raw) -> None:
        obj.setdefault("spec", {})["unschedulable"] = True

    def uncordon(obj: Raw) -> None:
        obj["spec"]["unschedulable"] = False

    cluster.server.change(NODES, "n1", "", cordon)
    cluster.start("scheduler")
    cluster.share("waits", "0.6", memory="1Gi")
    await expect_pending(cluster, "waits", "cordoned")
    await cluster.quiet()
    cluster.server.change(NODES, "n1", "", uncordon)
    await expect_scheduled(cluster, "waits")


@scenario(n1=1)
async def test_one_that_waits_for_its_gpu_and_one_that_has_none_are_both_tried_again(
    cluster: FakeCluster,
) -> None:
    cluster.actors.node_agents = False
    cluster.start("scheduler")
    cluster.plain("blocked", "0.6")
    await expect_holding(cluster, "blocked")
    cluster.share("waits", "0.6", memory="1Gi")
    await expect_pending(cluster, "waits", "compute 0.4 left")
    cluster.add_node("n2", 1)
    await expect_scheduled(cluster, "waits")


@scenario(n1=1)
async def test_all_are_looked_at_now_and_then_without_a_cause(cluster: FakeCluster) -> None:
    await fill(cluster, "0.5")
    before = looks(cluster)
    await cluster.quiet(RESYNC_SECONDS + 1)
    assert looks(cluster) == before + 1


@scenario(n1=1)
async def test_on_a_small_cluster_all_say_what_is_left_now(cluster: FakeCluster) -> None:
    gpuid = await fill(cluster, "0.5")
    for number in range(5):
        cluster.share(f"w{number}", "0.9", memory="1Gi")
        await expect_pending(cluster, f"w{number}", "compute 0.5 left, 0.9 asked")
    [only] = holders_of(cluster, gpuid)
    change_holders(cluster, gpuid, only | {"requestMicros": 450_000})
    for number in range(5):
        await expect_pending(cluster, f"w{number}", "compute 0.55 left, 0.9 asked")


@scenario(n1=1)
async def test_the_messages_of_many_are_renewed_together_after_many_changes(
    cluster: FakeCluster,
) -> None:
    gpuid = await fill(cluster, "0.5")
    names = [f"w{number}" for number in range(2 * FEW)]
    for name in names:
        cluster.share(name, "0.9", memory="1Gi")
    await expect_left(cluster, names, 0.5)
    writes, changes = messages(cluster), 20
    for change in range(changes):
        leave(cluster, gpuid, 0.51 + change / 1000)
        await cluster.quiet(1)
    delay = (len(names) + 1) * SECONDS_A_MESSAGE
    assert messages(cluster) - writes <= (len(names) + 1) * (changes / delay + 1)
    leave(cluster, gpuid, 0.59)
    await expect_left(cluster, names, 0.59, seconds=delay + 1)
    assert all(len(cluster.events(name)) <= 2 for name in names)


@scenario(n1=1)
async def test_so_are_those_of_the_members_of_a_large_gang(cluster: FakeCluster) -> None:
    gpuid = await fill(cluster, "0.5")
    names = [f"w{number}" for number in range(2 * FEW)]
    gang(cluster, *names, request="0.9")
    await expect_left(cluster, names, 0.5)
    writes = messages(cluster)
    leave(cluster, gpuid, 0.56)
    await cluster.quiet(2)
    assert messages(cluster) <= writes + 1, "the SharePod that is in no gang"
    await expect_left(cluster, names, 0.56, seconds=RESYNC_SECONDS + 10)


def leave(cluster: FakeCluster, gpuid: str, left: float) -> None:
    """Lets the only holder leave so much of the GPU."""
    [only] = holders_of(cluster, gpuid)
    change_holders(cluster, gpuid, only | {"requestMicros": 1_000_000 - round(left * 1e6)})


async def expect_left(
    cluster: FakeCluster, names: Sequence[str], left: float, seconds: float | None = None
) -> None:
    """The conditions of all of these say what is left of the GPU."""
    words = f"compute {left} left"
    await cluster.until(
        lambda: all(words in verdict(cluster, name).get("message", "") for name in names), seconds
    )


def messages(cluster: FakeCluster) -> int:
    """The writes of conditions that the scheduler has sent."""
    return sum(
        request.is_write and request.resource == "sharepods/status"
        for request in cluster.server.requests
    )


@pytest.mark.parametrize("kind", ["SharePod", "Pod"])
def test_on_a_large_cluster_the_message_stays_for_a_while(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explanations, "PLACES_AT_ONCE", 0)
    monkeypatch.setattr(explanations, "_SECONDS_A_PLACE", 0.1)

    @scenario(n1=1)
    async def play(cluster: FakeCluster) -> None:
        gpuid = await fill(cluster, "0.5")
        if kind == "Pod":
            cluster.plain("w", "0.9")
        else:
            cluster.share("w", "0.9", memory="1Gi")
        await expect_pending(cluster, "w", "compute 0.5 left, 0.9 asked")
        before = looks(cluster)
        [only] = holders_of(cluster, gpuid)
        change_holders(cluster, gpuid, only | {"requestMicros": 450_000})
        await cluster.until(lambda: looks(cluster) > before)
        await cluster.quiet(1)
        await expect_pending(cluster, "w", "compute 0.5 left, 0.9 asked")
        if kind == "SharePod":
            # Of another spec, the message says nothing any more.
            cluster.server.change(
                SHAREPODS, "w", "default", lambda shp: shp["spec"]["gpu"].update(limit="0.95")
            )
            await expect_pending(cluster, "w", "compute 0.55 left, 0.9 asked")
        await cluster.quiet(1000)
        change_holders(cluster, gpuid, only | {"requestMicros": 440_000})
        await expect_pending(cluster, "w", "compute 0.56 left, 0.9 asked")

    play()


def test_many_events_in_a_row_queue_each_of_those_that_wait_once() -> None:
    """A thousand nodes and a thousand that wait would take seconds otherwise."""
    ranked: list[RequesterKey] = []

    def rank(key: RequesterKey) -> int:
        ranked.append(key)
        return 0

    async def main() -> None:
        queue: WorkQueue[RequesterKey] = WorkQueue(priority=rank)
        unschedulable: UnschedulableQueue[RequesterKey] = UnschedulableQueue()
        state = cast("ClusterState", SimpleNamespace(subscribe_to_growth=lambda _: None))
        wakeups = Wakeups(queue, unschedulable, state, ["SharePod"])
        key = RequesterKey("SharePod", Key("d", "a"))
        unschedulable.add(key, "2026-01-01T00:00:00Z")
        for times in (1, 2):
            for _ in range(100):
                wakeups.queue_all()
                assert not wakeups.all(None)
            assert await queue.get() == key
            queue.done(key)
            assert ranked == times * [key]

    run_virtual(main())


def test_on_a_large_cluster_the_reasons_of_many_are_renewed_seldom() -> None:
    async def main() -> None:
        known, key = Explanations(), RequesterKey("SharePod", Key("d", "a"))
        large = Ledger([Node(f"n{number}") for number in range(10 * PLACES_AT_ONCE)])
        assert known.seconds_left(key) == 0
        known.computed(key, large, 1000)
        assert known.seconds_left(key) == MAX_SECONDS
        known.computed(key, large, FEW)
        assert MAX_SECONDS / 10 < known.seconds_left(key) < MAX_SECONDS
        await asyncio.sleep(MAX_SECONDS)
        assert known.seconds_left(key) == 0
        known.computed(key, Ledger([Node("n1")]), FEW)
        assert known.seconds_left(key) == 0
        known.computed(key, large, 1)
        known.forget(key)
        assert known.seconds_left(key) == 0

    run_virtual(main())
