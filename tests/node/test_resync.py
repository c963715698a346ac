"""The node agent finds everything that its event handlers miss."""

import pytest

from expectations.pods import expect_running
from expectations.vgpus import expect_no_vgpus
from fakes.cluster import FakeCluster, run_scenario, scenario
from fakes.deafness import deafen
from kubeshare.kube.controller.resync import RESYNC_SECONDS
from kubeshare.kube.resources import PODS

pytestmark = pytest.mark.slow

DEAF = {"node-vgpus", "node-grants", "cpu-binding"}
"""The controllers whose handlers queue nothing here."""
ROUNDS = 6 * RESYNC_SECONDS
"""Several steps, one after the other, each in the next round."""


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    deafen(monkeypatch, DEAF)


@pytest.mark.usefixtures("deaf")
def test_a_pod_runs_and_its_grant_goes_though_no_handler_queues_anything() -> None:
    """The kubelet has lost its records, so it never unprepares the pod."""

    async def main(cluster: FakeCluster) -> None:
        cluster.start()
        cluster.share("a")
        await expect_running(cluster, "a", seconds=ROUNDS)
        cluster.delete("a")
        cluster.server.remove(PODS, "a", "default")
        cluster.machines["n1"].forget()
        await expect_no_vgpus(cluster, seconds=ROUNDS)
        assert not cluster.machines["n1"].left()

    run_scenario(main, n1=1, agents=True)


@scenario(n1=2, agents=True)
async def test_what_needs_nothing_costs_no_request(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    await cluster.run("b", "0.9")
    await cluster.quiet(60)
    before, rounds = len(cluster.server.requests), cluster.reconciles("agent/n1")
    await cluster.quiet(3 * RESYNC_SECONDS)
    sent = [each for each in cluster.server.requests[before:] if each.client.startswith("agent")]
    # Watches that end, and what the shares have used.
    others = {each.resource for each in sent if each.verb not in {"watch", "list"}}
    assert others <= {"shareusages"}
    looked = cluster.reconciles("agent/n1") - rounds
    # Two grants and two vGPUs, in each of two or three whole rounds.
    assert 4 <= looked["node-grants"] <= 8
    assert 4 <= looked["node-vgpus"] <= 8
