"""The device manager finds everything that its event handlers miss."""

import asyncio

import pytest

from expectations.pods import expect_event, expect_running
from expectations.vgpus import expect_no_vgpus, expect_owned
from fakes.cluster import FakeCluster, run_scenario, scenario
from fakes.cluster.disruptions import own
from fakes.cluster.quotas import expect_gaia_limits, expect_used, limit, write_gaia_quotas
from fakes.cluster.state import is_same_pod
from fakes.deafness import deafen
from kubeshare.kube.controller.resync import RESYNC_SECONDS

pytestmark = pytest.mark.slow

DEAF = {
    "sharepods",
    "vgpus",
    "pods",
    "pools",
    "owned-nodes",
    "gpu-selection",
    "gangs",
    "gpuquotas",
    "gaia-quotas",
}
"""The controllers whose handlers queue nothing here."""
GANG = {"sharedgpu/group_name": "g", "sharedgpu/min_available": "1"}
ROUNDS = 6 * RESYNC_SECONDS
"""Several steps, one after the other, each in the next round."""


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    deafen(monkeypatch, DEAF)


@pytest.mark.usefixtures("deaf")
def test_a_sharepod_runs_and_goes_though_no_handler_queues_anything() -> None:
    async def main(cluster: FakeCluster) -> None:
        cluster.start()
        cluster.share("a")
        await expect_running(cluster, "a", seconds=ROUNDS)
        cluster.delete("a")
        await expect_no_vgpus(cluster, seconds=ROUNDS)

    run_scenario(main, n1=1)


@pytest.mark.usefixtures("deaf")
def test_a_plain_pod_is_deleted_though_no_handler_queues_it() -> None:
    """An unschedulable one: its controller is to create another."""

    async def main(cluster: FakeCluster) -> None:
        cluster.start()
        cluster.actors.full.add("n1")
        pod = cluster.plain("a", owner="r")
        await cluster.until(lambda: not is_same_pod(cluster, pod), seconds=ROUNDS)

    run_scenario(main, n1=1)


@pytest.mark.usefixtures("deaf")
def test_a_node_is_taken_over_though_no_handler_queues_it() -> None:
    async def main(cluster: FakeCluster) -> None:
        cluster.start()
        await cluster.quiet(1)
        own(cluster, "n1")
        await expect_owned(cluster, "n1", seconds=ROUNDS)

    run_scenario(main, n1=1)


@pytest.mark.usefixtures("deaf")
def test_a_gang_gives_its_gpus_back_though_no_handler_queues_it() -> None:
    async def main(cluster: FakeCluster) -> None:
        cluster.configure(gangTimeoutSeconds=60)
        cluster.actors.full.add("n2")
        cluster.start()
        for name in "ab":
            labels = {"sharedgpu/group_name": "g", "sharedgpu/min_available": "2"}
            cluster.share(name, "1", labels=labels)
        await expect_event(cluster, "a", "GangTimedOut", seconds=ROUNDS)

    run_scenario(main, n1=1, n2=1)


@pytest.mark.usefixtures("deaf")
def test_quotas_are_kept_though_no_handler_queues_them() -> None:
    async def main(cluster: FakeCluster) -> None:
        cluster.start()
        await cluster.quiet(1)
        limit(cluster, {"gpus": 2})
        write_gaia_quotas(cluster, default={"quota": {"V100": 1}})
        await expect_used(cluster, ("GPUs 0", "GPUs 2"), seconds=ROUNDS)
        await expect_gaia_limits(cluster, seconds=ROUNDS)

    run_scenario(main, n1=1)


@scenario(n1=2, n2=2)
async def test_what_needs_nothing_costs_no_request(cluster: FakeCluster) -> None:
    cluster.configure(pool={"policy": "reservation"})
    limit(cluster, {"gpus": 3})
    write_gaia_quotas(cluster, other={"quota": {"V100": 1}})
    cluster.start()
    await cluster.run("a")
    await cluster.run("b", "0.9", labels=GANG)
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
    # One gang, two quotas and one ConfigMap.
    assert 2 <= looked["gangs"] <= 4
    assert 4 <= looked["gpuquotas"] <= 8
    assert 2 <= looked["gaia-quotas"] <= 4


@scenario(n1=1)
async def test_there_is_a_round_without_objects(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.quiet(2 * RESYNC_SECONDS)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await cluster.run("a")
    assert loop.time() - begun < RESYNC_SECONDS / 10
