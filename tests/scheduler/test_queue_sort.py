"""Demands of higher priority are scheduled first."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from expectations.scheduling import (
    assert_pending,
    assert_scheduled,
    expect_decided,
    expect_scheduled,
)
from fakes.cluster import FakeCluster, scenario
from kubeshare.api.types.v1 import VGPUS
from kubeshare.dialects.priority_and_gang import GROUP_NAME
from kubeshare.kube.cache.store import ADDED, DELETED, MODIFIED, Change
from kubeshare.kube.resources import Raw
from kubeshare.scheduler.queue_sort import GangMembers, affects_gang
from kubeshare.simulator.control import run_virtual


def priority(value: int) -> dict[str, str]:
    return {"sharedgpu/priority": str(value)}


def scheduled(cluster: FakeCluster, name: str) -> bool:
    return bool(cluster.condition(name, "Scheduled").get("status") == "True")


@scenario(n1=1)
async def test_of_those_that_are_there_the_highest_priority_is_first(cluster: FakeCluster) -> None:
    for name, value in (("low", -1), ("mid", 0), ("high", 100)):
        cluster.share(name, "0.6", labels=priority(value))
    cluster.start("scheduler")
    await expect_decided(cluster, "low", "mid")
    assert_scheduled(cluster, "high")
    assert_pending(cluster, "mid")
    assert_pending(cluster, "low")


@scenario(n1=1)
async def test_of_those_that_wait_the_highest_priority_gets_what_is_freed(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    cluster.share("a", "0.7")
    await expect_scheduled(cluster, "a")
    for name, value in (("old", 0), ("low", -1), ("high", 1)):
        cluster.share(name, "0.6", labels=priority(value))
        await expect_decided(cluster, name)
    gpuid = assert_scheduled(cluster, "a").gpuid
    for name in ("high", "old", "low"):
        cluster.server.change(VGPUS, gpuid, "", lambda vgpu: vgpu["status"].update(holders=[]))
        await expect_scheduled(cluster, name)
        assert cluster.vgpus() == {gpuid: [name]}


@scenario(n1=1)
async def test_who_does_not_fit_does_not_keep_others_out(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    cluster.share("a", "0.7")
    await expect_scheduled(cluster, "a")
    cluster.share("large", "0.6", labels=priority(100))
    cluster.share("small", "0.3", labels=priority(-1))
    await expect_scheduled(cluster, "small")
    assert_pending(cluster, "large")


def test_an_error_with_one_member_of_a_gang_keeps_no_other_from_the_queue() -> None:
    queued: list[str] = []
    errors: list[object] = []

    def add(key: str) -> None:
        if key == "g-1":
            raise RuntimeError(key)
        queued.append(key)

    def in_gang(_: str, name: str) -> list[SimpleNamespace]:
        if name == "broken":
            raise RuntimeError(name)
        return [SimpleNamespace(key=f"{name}-{number}") for number in range(3)]

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        controller: Any = SimpleNamespace(running=True, queue=SimpleNamespace(add=add))
        kinds: Any = {"Pod": SimpleNamespace(in_gang=in_gang)}
        members = GangMembers(controller, kinds)
        for gang in ("g", "broken", "h"):
            members.of({"metadata": {"namespace": "n", "labels": {GROUP_NAME: gang}}})
        await asyncio.sleep(1)
        assert sorted(queued) == ["g-0", "g-2", "h-0", "h-1", "h-2"]
        assert len(errors) == 2
        members.of({"metadata": {"namespace": "n", "labels": {GROUP_NAME: "h"}}})
        await asyncio.sleep(1)
        assert queued[-3:] == ["h-0", "h-1", "h-2"]

    run_virtual(main())


def member(**metadata: object) -> Raw:
    return {"metadata": {"name": "a", "namespace": "n", "generation": 1, **metadata}}


@pytest.mark.parametrize(
    ("change", "affects"),
    [
        (Change(ADDED, member()), True),
        (Change(ADDED, member(), initial=True), False),
        (Change(DELETED, member(), member()), True),
        (Change(MODIFIED, member(labels={"app": "a"}), member()), True),
        (Change(MODIFIED, member(generation=2), member()), True),
        (Change(MODIFIED, member(deletionTimestamp="2026-01-01T00:00:00Z"), member()), True),
        (Change(MODIFIED, member(annotations={"note": "mine"}), member()), False),
    ],
)
def test_what_may_let_other_members_of_a_gang_in(change: Change[Raw], *, affects: bool) -> None:
    assert affects_gang(change) == affects
