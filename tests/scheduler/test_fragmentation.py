"""The gauges of fragmentation."""

import asyncio

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from expectations.scheduling import expect_pending, expect_scheduled
from fakes.cluster import FakeCluster, scenario
from kubeshare.core.demand import Demand
from kubeshare.core.fragmentation.recent import MAX_KINDS, RecentDemands
from kubeshare.core.ledger.device import FreeGpu, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.scheduler import metrics


def gauges(cluster: FakeCluster) -> dict[str, float]:
    """What is left of the GPUs, and what of that is a fragment."""
    found = text_string_to_metric_families(cluster.scraped("scheduler").decode())
    values = {sample.name: sample.value for family in found for sample in family.samples}
    return {
        name: round(values[f"kubeshare_scheduler_{name}_gpus"], 6)
        for name in ("unreserved", "fragmented")
    }


@scenario(n1=2, n2=1)
async def test_what_recent_demands_cannot_use_is_a_fragment(cluster: FakeCluster) -> None:
    cluster.start("scheduler", "devices")
    await asyncio.sleep(metrics.PERIOD_SECONDS + 1)
    assert gauges(cluster) == {"unreserved": 3, "fragmented": 0}
    cluster.share("a", "0.6")
    await expect_scheduled(cluster, "a")
    await asyncio.sleep(metrics.PERIOD_SECONDS)
    assert gauges(cluster) == {"unreserved": 2.4, "fragmented": 0.4}
    # A second kind that fits everywhere halves it. Who waits counts once.
    cluster.share("b", "0.4")
    await expect_scheduled(cluster, "b")
    cluster.share("c", "0.6", model="unknown")
    cluster.share("d", "0.6", model="unknown")
    await expect_pending(cluster, "d")
    await asyncio.sleep(metrics.PERIOD_SECONDS)
    assert gauges(cluster) == {"unreserved": 2, "fragmented": 1}


@scenario(n1=1, n2=1, n3=1)
async def test_it_is_measured_again_after_a_restart(cluster: FakeCluster) -> None:
    cluster.start("scheduler", "devices")
    for name in "abc":
        cluster.share(name, "0.7")
        await expect_scheduled(cluster, name)
    await cluster.kill("scheduler")
    cluster.start("scheduler")
    await asyncio.sleep(metrics.PERIOD_SECONDS + 1)
    assert gauges(cluster) == {"unreserved": 0.9, "fragmented": 0.9}


def measured(ledger: Ledger, recent: RecentDemands) -> int:
    """How often other tasks ran during one measurement."""
    others = 0

    async def play() -> None:
        async def count() -> None:
            nonlocal others
            while True:
                others += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        await metrics.FragmentationMeter(CollectorRegistry(), lambda: ledger, recent).measure()
        counting.cancel()

    asyncio.run(play())
    return others


def test_other_tasks_run_meanwhile() -> None:
    recent = RecentDemands()
    for uid in range(MAX_KINDS):
        recent.add(Demand(uid=str(uid), name="a", request_micros=uid))
    ledger = Ledger(
        Node(f"n{node}", free=tuple(FreeGpu("", node * 8 + gpu + 1) for gpu in range(8)))
        for node in range(100)
    )
    work = 100 * 8 * MAX_KINDS
    assert measured(ledger, recent) >= work // (metrics.WORK_AT_ONCE + 8 * MAX_KINDS + 20)
    # Nodes that are alike are no work but to be seen.
    alike = Ledger(Node(f"n{node}", free=(FreeGpu("", 1),) * 8) for node in range(100))
    assert measured(alike, recent) < 2
