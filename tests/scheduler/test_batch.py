"""Several requesters are decided at once as they would be one by one, with fewer writes."""

import random
from typing import Any

import pytest

from expectations.pods import expect_running
from expectations.scheduling import (
    assert_pending,
    expect_all_scheduled,
    expect_decided,
    expect_pending,
)
from fakes.cluster import FakeCluster, run_scenario, scenario
from kubeshare.api.state.namespace_usage import NamespaceUsage, Usage
from kubeshare.api.types.v1 import SHAREPODS, VGPU, VGPUS
from kubeshare.kube.resources import PODS
from kubeshare.scheduler import controller
from kubeshare.simulator.control import Fault
from scheduler.test_quotas import allow

MARKED = {"kubeshare.nthu/preemptible": "true"}


def writes_of_vgpus(cluster: FakeCluster) -> list[str]:
    """The names of the vGPUs to which holders were added, one for each write."""
    return [
        each.path.name
        for each in cluster.server.requests
        if each.resource == "vgpus/status" and each.client.startswith("scheduler")
    ]


@scenario(n1=2)
async def test_the_holders_of_a_vgpu_are_added_in_one_write(cluster: FakeCluster) -> None:
    names = [f"s{number}" for number in range(12)]
    for name in names:
        cluster.share(name, "0.125", memory="2Gi")
    cluster.start("scheduler")
    await expect_all_scheduled(cluster, *names)
    assert sorted(map(len, cluster.vgpus().values())) == [4, 8]
    assert len(writes_of_vgpus(cluster)) == 2


@scenario(n1=1)
async def test_no_more_than_sixteen_are_decided_at_once(cluster: FakeCluster) -> None:
    names = [f"s{number}" for number in range(40)]
    for name in names:
        cluster.share(name, "0.01", memory="100Mi")
    cluster.start("scheduler")
    await expect_all_scheduled(cluster, *names)
    assert len(writes_of_vgpus(cluster)) == 3


@pytest.mark.parametrize(("status", "reason"), [(409, "Conflict"), (422, "Invalid")])
def test_a_refused_write_is_made_again_for_each(status: int, reason: str) -> None:
    async def refused(cluster: FakeCluster) -> None:
        for name in "abc":
            cluster.share(name, "0.3")
        fault = Fault.answer(status, reason)
        cluster.server.inject(fault, verb="patch", resource="vgpus/status")
        cluster.start("scheduler")
        await expect_all_scheduled(cluster, *"abc")
        [holders] = cluster.vgpus().values()
        assert sorted(holders) == ["a", "b", "c"]
        assert len(writes_of_vgpus(cluster)) > 2

    run_scenario(refused, n1=1)


@scenario(n1=2)
async def test_a_holder_that_comes_between_two_writes_is_seen_by_the_second(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    for name in ("first", "second"):
        cluster.share(name, "0.3", antiAffinity="apart")
    await expect_running(cluster, "first", "second")
    await cluster.kill("scheduler", "devices")
    here, there = cluster.vgpus()
    for name in "abcd":
        cluster.share(name, "0.2", id=here if name in "ab" else there)

    def reserve_alone(vgpu: dict[str, Any]) -> None:
        vgpu["status"]["holders"][0]["exclusion"] = "mine"

    def change_the_other() -> None:
        written = cluster.server.requests[-1].path.name
        [other] = [
            each["metadata"]["name"]
            for each in cluster.server.all(VGPUS)
            if each["metadata"]["name"] != written
        ]
        cluster.server.change(VGPUS, other, "", reserve_alone)

    fault = Fault("slow", seconds=0.5, action=change_the_other)
    cluster.server.inject(fault, verb="patch", resource="vgpus/status")
    cluster.start("scheduler")
    for name in "abcd":
        await expect_decided(cluster, name)
    scheduled = [name for name in "abcd" if cluster.sharepod(name)["spec"].get("nodeName")]
    assert len(scheduled) == 2
    assert len(writes_of_vgpus(cluster)) == 2 + 1


@scenario(n1=1)
async def test_one_that_does_not_fit_lets_those_after_it_in(cluster: FakeCluster) -> None:
    cluster.share("a", "0.5")
    cluster.share("b", "0.3")
    cluster.share("large", "0.7")
    cluster.share("small", "0.2")
    cluster.start("scheduler")
    await expect_decided(cluster, "large")
    await expect_all_scheduled(cluster, "a", "b", "small")
    assert_pending(cluster, "large", "compute 0.2 left")


@scenario(n1=1)
async def test_room_that_one_of_them_preempts_is_not_given_to_those_after_it(
    cluster: FakeCluster,
) -> None:
    cluster.configure(preemption=True)
    cluster.start("devices")
    cluster.start("scheduler")
    cluster.share("low", "0.6", annotations=MARKED)
    await expect_running(cluster, "low")
    await cluster.kill("scheduler")
    labels = {"sharedgpu/priority": "50"}
    cluster.share("a", "0.1", labels=labels)
    cluster.share("b", "0.1", labels=labels)
    cluster.share("preempts", "0.8", labels=labels)
    cluster.share("later", "0.2")
    cluster.start("scheduler")
    await expect_running(cluster, "a", "b", "preempts")
    assert_pending(cluster, "later")


@scenario(n1=1)
async def test_one_that_is_gone_before_it_is_bound_holds_nothing_in_the_end(
    cluster: FakeCluster,
) -> None:
    def remove() -> None:
        cluster.server.remove(SHAREPODS, "b", "default")

    for name in "abc":
        cluster.share(name, "0.3")
    cluster.server.inject(Fault.preceded_by(remove), verb="patch", resource="vgpus/status")
    cluster.start()
    await expect_running(cluster, "a", "c")
    await cluster.until(lambda: sorted(*cluster.vgpus().values()) == ["a", "c"], 300)


@pytest.mark.parametrize("seed", range(4))
def test_decisions_are_those_made_one_by_one(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def placed(most: int) -> dict[str, Any]:
        chance, found = random.Random(seed), dict[str, Any]()

        async def story(cluster: FakeCluster) -> None:
            names = [f"s{number}" for number in range(20)]
            for name in names:
                more: dict[str, Any] = {}
                if chance.random() < 0.4:
                    label = chance.choice(["affinity", "antiAffinity", "exclusion"])
                    more[label] = chance.choice(["red", "blue"])
                if chance.random() < 0.2:
                    more["count"] = 2
                cluster.share(name, str(chance.choice([0.2, 0.3, 0.5, 0.9])), **more)
            cluster.start("scheduler")
            for name in names:
                await expect_decided(cluster, name)
            await cluster.quiet(5)
            found.update({name: sorted(held) for name, held in cluster.vgpus().items()})

        monkeypatch.setattr(controller, "MAX_BATCH", most)
        run_scenario(story, n1=3, n2=2)
        return found

    assert placed(16) == placed(1)


@scenario(n1=2)
async def test_the_rest_of_a_batch_gives_way_to_a_higher_priority(cluster: FakeCluster) -> None:
    for name in "abcd":
        cluster.share(name, "0.5")

    def ask() -> None:
        cluster.share("urgent", "0.6", labels={"sharedgpu/priority": "50"})

    fault = Fault("slow", seconds=0.5, action=ask)
    cluster.server.inject(fault, verb="patch", resource="vgpus/status")
    cluster.start("scheduler")
    await expect_all_scheduled(cluster, "a", "b", "urgent")
    for name in "cd":
        await expect_decided(cluster, name)
        assert_pending(cluster, name, "compute 0.4 left")


def test_the_use_of_a_namespace_is_looked_at_once_for_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[str] = []
    after = NamespaceUsage.after

    async def counted(self: NamespaceUsage, written: VGPU, namespace: str) -> Usage:
        looks.append(namespace)
        return await after(self, written, namespace)

    monkeypatch.setattr(NamespaceUsage, "after", counted)

    async def play(cluster: FakeCluster) -> None:
        allow(cluster, **{"requests.kubeshare.nthu/gpu": "1"})
        names = [f"s{number}" for number in range(8)]
        for name in names:
            cluster.share(name, "0.1", memory="128Mi")
        cluster.start("scheduler")
        await expect_all_scheduled(cluster, *names)

    run_scenario(play, n1=1)
    assert looks == ["default"]


@scenario(n1=1)
async def test_a_pod_that_is_not_ready_any_more_gives_its_share_back(cluster: FakeCluster) -> None:
    gate = {"name": "example.com/other"}

    def close() -> None:
        cluster.server.change(
            PODS, "b", "default", lambda pod: pod["spec"]["schedulingGates"].append(gate)
        )

    for name in "abc":
        cluster.plain(name, "0.3")
    cluster.server.inject(Fault.preceded_by(close), verb="patch", resource="vgpus/status")
    cluster.start()
    await expect_running(cluster, "a", "c")
    await expect_pending(cluster, "b", reason="Postponed")
    await cluster.until(lambda: sorted(*cluster.vgpus().values()) == ["a", "c"])
    cluster.server.change(
        PODS, "b", "default", lambda pod: pod["spec"]["schedulingGates"].remove(gate)
    )
    await expect_running(cluster, "b")
