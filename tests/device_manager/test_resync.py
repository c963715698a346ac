"""The device manager finds everything that its event handlers miss."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from expectations.pods import expect_running
from expectations.vgpus import expect_no_vgpus, expect_owned
from fakes.cluster import FakeCluster, run_scenario, scenario
from fakes.cluster.disruptions import own
from fakes.cluster.state import is_same_pod
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.controller.controller import Controller
from kubeshare.kube.controller.resync import RESYNC_SECONDS

FILTERING = {"sharepods", "vgpus", "pods", "pools", "owned-nodes", "gpu-selection"}
"""The controllers whose handlers pass over changes."""
ROUNDS = 6 * RESYNC_SECONDS
"""Several steps, one after the other, each in the next round."""


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handlers of these controllers queue nothing."""
    watch_changes = Controller.watch_changes

    def deaf(self: Any, reflector: Reflector[Any], keys: Callable[[Any], Iterable[Any]]) -> None:
        watch_changes(self, reflector, (lambda _: ()) if self.name in FILTERING else keys)

    monkeypatch.setattr(Controller, "watch_changes", deaf)


@pytest.mark.usefixtures("deaf")
def test_a_sharepod_runs_and_goes_though_no_handler_queues_anything() -> None:
    async def main(cluster: FakeCluster) -> None:
        cluster.start()
        cluster.share("a")
        await cluster.quiet(ROUNDS)
        await expect_running(cluster, "a")
        cluster.delete("a")
        await cluster.quiet(ROUNDS)
        await expect_no_vgpus(cluster)

    run_scenario(main, n1=1)


@pytest.mark.usefixtures("deaf")
def test_a_plain_pod_is_deleted_though_no_handler_queues_it() -> None:
    """An unschedulable one: its controller is to create another."""

    async def main(cluster: FakeCluster) -> None:
        cluster.start()
        cluster.actors.full.add("n1")
        pod = cluster.plain("a", owner="r")
        await cluster.quiet(ROUNDS)
        assert not is_same_pod(cluster, pod)

    run_scenario(main, n1=1)


@pytest.mark.usefixtures("deaf")
def test_a_node_is_taken_over_though_no_handler_queues_it() -> None:
    async def main(cluster: FakeCluster) -> None:
        cluster.start()
        await cluster.quiet(1)
        own(cluster, "n1")
        await cluster.quiet(ROUNDS)
        await expect_owned(cluster, "n1")

    run_scenario(main, n1=1)


@scenario(n1=2, n2=2)
async def test_what_needs_nothing_costs_no_request(cluster: FakeCluster) -> None:
    cluster.configure(pool={"policy": "reservation"})
    cluster.start()
    await cluster.run("a")
    await cluster.run("b", "0.9")
    cluster.plain("c")
    await expect_running(cluster, "c")
    await cluster.quiet(60)
    before, rounds = len(cluster.server.requests), cluster.reconciles("devices")
    await cluster.quiet(3 * RESYNC_SECONDS)
    sent = [each for each in cluster.server.requests[before:] if each.client.startswith("devices")]
    # A watch that ends reads the present version first, by a list of one.
    ordinary = {"watch", "list"}
    assert [f"{each.verb} {each.resource}" for each in sent if each.verb not in ordinary] == []
    looked = cluster.reconciles("devices") - rounds
    # Two SharePods, one plain pod, two vGPUs and two nodes, in each of two or three whole rounds.
    assert 4 <= looked["sharepods"] <= 8
    assert 2 <= looked["pods"] <= 4
    assert 4 <= looked["pools"] <= 8
    assert 4 <= looked["vgpus"] <= 8


@scenario(n1=1)
async def test_there_is_a_round_without_objects(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.quiet(2 * RESYNC_SECONDS)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await cluster.run("a")
    assert loop.time() - begun < RESYNC_SECONDS / 10
