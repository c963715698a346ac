"""A gang that does not start in time gives all its shares back."""

from expectations.pods import expect_event, expect_no_pod, expect_running
from expectations.scheduling import expect_pending, expect_scheduled
from expectations.vgpus import expect_cleaned_up, expect_no_vgpus
from fakes.cluster import FakeCluster, scenario
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.simulator.control import Fault


def gang(cluster: FakeCluster, *names: str) -> None:
    labels = {"sharedgpu/group_name": "g", "sharedgpu/min_available": str(len(names))}
    for name in names:
        cluster.share(name, "1", labels=labels)


def timeouts(cluster: FakeCluster, name: str) -> list[str]:
    return [event for event in cluster.events(name) if event.startswith("GangTimedOut")]


@scenario(n1=1, n2=1)
async def test_a_gang_of_which_one_cannot_start_gives_everything_back(cluster: FakeCluster) -> None:
    cluster.configure(gangTimeoutSeconds=60)
    cluster.actors.full.add("n2")
    cluster.start()
    gang(cluster, "a", "b")
    await expect_event(cluster, "a", "GangTimedOut", seconds=120)
    words = "1 of the 2 members that gang g needs have started within 60 s: all give back"
    assert words in timeouts(cluster, "a")[0]
    await expect_cleaned_up(cluster)
    assert [cluster.pod(name) for name in "ab"] == [None, None]
    for name in "ab":
        await expect_pending(cluster, name, "of the 2 members", reason="GangNoRoom")
    cluster.actors.full.clear()
    await expect_running(cluster, "a", "b", seconds=900)


@scenario(n1=1, n2=1)
async def test_less_time_counts_for_a_gang_that_is_starting_already(cluster: FakeCluster) -> None:
    cluster.configure(gangTimeoutSeconds=3600)
    cluster.actors.full.add("n2")
    cluster.start()
    gang(cluster, "a", "b")
    await cluster.quiet(120)
    assert not timeouts(cluster, "a")
    cluster.configure(gangTimeoutSeconds=60)
    await expect_event(cluster, "a", "GangTimedOut", seconds=10)


@scenario(n1=2)
async def test_what_is_given_back_is_free_for_others(cluster: FakeCluster) -> None:
    cluster.configure(gangTimeoutSeconds=60)
    cluster.actors.binds = False
    cluster.start()
    gang(cluster, "a", "b")
    await expect_scheduled(cluster, "a")
    cluster.actors.binds = True
    cluster.actors.full.add("n1")
    cluster.native_pod("whole")
    await expect_pending(cluster, "a", seconds=200)
    await expect_running(cluster, "whole", seconds=120)


@scenario(n1=2)
async def test_a_gang_that_has_started_is_left_in_peace_when_it_loses_a_member(
    cluster: FakeCluster,
) -> None:
    cluster.configure(gangTimeoutSeconds=60)
    cluster.start()
    gang(cluster, "a", "b")
    await expect_running(cluster, "a", "b")
    await cluster.quiet(150)
    cluster.delete("b")
    await cluster.kill("devices")
    cluster.start("devices")
    await cluster.quiet(200)
    assert cluster.running("a")
    assert not timeouts(cluster, "a")


@scenario(n1=2)
async def test_what_a_restart_left_of_an_undone_member_is_cleared_away(
    cluster: FakeCluster,
) -> None:
    cluster.configure(gangTimeoutSeconds=60)
    cluster.start()
    gang(cluster, "a", "b")
    await expect_running(cluster, "a", "b")
    await cluster.kill("devices", "scheduler")

    def undecided(sharepod: dict[str, dict[str, object]]) -> None:
        del sharepod["spec"]["nodeName"]
        sharepod["spec"]["gpu"] = {"request": "1", "memory": "1Gi", "attempt": 1}

    for name in "ab":
        cluster.server.change(SHAREPODS, name, "default", undecided)
    cluster.start("devices")
    await expect_no_pod(cluster, "a", "b")
    await expect_no_vgpus(cluster)
    cluster.start("scheduler")
    await expect_running(cluster, "a", "b")


@scenario(n1=1, n2=1)
async def test_a_budget_is_waited_for(cluster: FakeCluster) -> None:
    cluster.configure(gangTimeoutSeconds=60)
    cluster.actors.full.add("n2")
    cluster.start()
    gang(cluster, "a", "b")
    cluster.server.inject(
        Fault.answer(429, "TooManyRequests"), verb="create", resource="pods/eviction", times=3
    )
    await expect_event(cluster, "a", "GangTimedOut", seconds=120)
    await expect_no_pod(cluster, "a", seconds=120)
    asked = [each for each in cluster.server.requests if each.resource == "pods/eviction"]
    assert len(asked) == 4
