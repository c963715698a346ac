"""Demands of higher priority are scheduled first."""

from expectations.scheduling import (
    assert_pending,
    assert_scheduled,
    expect_decided,
    expect_scheduled,
)
from fakes.cluster import FakeCluster, scenario
from kubeshare.api.types.v1 import VGPUS


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
