"""A replica that waits for the Lease queues nothing, whatever happens meanwhile."""

from collections import Counter

import pytest

from expectations.pods import expect_running
from fakes.cluster import FakeCluster, run_scenario
from fakes.cluster.disruptions import own
from fakes.cluster.quotas import limit, write_gaia_quotas

SECOND = ("scheduler/second", "devices/second")


@pytest.mark.parametrize("agents", [False, True])
def test_a_replica_that_waits_queues_nothing_while_another_one_works(*, agents: bool) -> None:
    queued: dict[str, Counter[str]] = {}

    async def life(cluster: FakeCluster) -> None:
        cluster.elect = True
        cluster.start()
        await cluster.run("first")
        cluster.start(*SECOND)
        await cluster.quiet(30)
        own(cluster, "n2")
        limit(cluster, {"gpus": 8})
        write_gaia_quotas(cluster, default={"quota": {"V100": 8}})
        gang = {"sharedgpu/group_name": "gang", "sharedgpu/min_available": "2"}
        for name in ("one", "two"):
            cluster.share(name, "0.4", labels=gang)
        cluster.share("waits", "0.9", id="nowhere")
        cluster.plain("plain")
        for name in ("one", "two", "plain"):
            await expect_running(cluster, name)
        for interval in (1, 2):
            cluster.configure(autoscaler={"placeholders": interval}, maxPriority={"default": 50})
            await cluster.quiet(5)
        cluster.delete("waits")
        cluster.delete("first")
        cluster.lose_node("n3")
        await cluster.quiet(700)
        queued.update({name: cluster.queued(name) for name in cluster.programs})

    run_scenario(life, agents=agents, n1=2, n2=1, n3=1)

    assert all(queued[name.partition("/")[0]] for name in SECOND)
    assert not [queued[name] for name in SECOND if queued[name]]
