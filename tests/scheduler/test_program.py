"""The scheduler as a whole: its Lease, its metrics, its events, and what it retries on."""

from collections.abc import Callable
from functools import partial

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from expectations.scheduling import expect_pending, expect_scheduled
from fakes.cluster import FakeCluster, run_scenario, scenario
from fakes.cluster.cluster import BORN
from kubeshare.api.state.unschedulable import UnschedulableQueue
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import EVENTS, LEASES, NODES, Raw
from kubeshare.scheduler.metrics import Metrics
from kubeshare.scheduler.requesters.base import RequesterKey


@scenario(n1=1)
async def test_its_lease_names_the_replica(cluster: FakeCluster) -> None:
    cluster.elect = True
    cluster.start("scheduler")
    await cluster.until(lambda: cluster.server.all(LEASES))
    [lease] = cluster.server.all(LEASES)
    metadata = lease["metadata"]
    assert (metadata["namespace"], metadata["name"]) == (NAMESPACE, "kubeshare-scheduler")
    assert metadata["annotations"]["kubeshare.nthu/leader"] == "scheduler"
    assert lease["spec"]["holderIdentity"] == "scheduler"
    assert lease["spec"]["acquireTime"].startswith(BORN.date().isoformat())


@scenario(n1=1)
async def test_its_events_name_the_controller_and_the_replica(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    cluster.share("a")
    await cluster.until(lambda: cluster.server.all(EVENTS))
    [event] = cluster.server.all(EVENTS)
    assert event["reportingController"] == "kubeshare.nthu/scheduler"
    assert event["reportingInstance"] == "scheduler"
    assert event["eventTime"].startswith(BORN.date().isoformat())


@scenario(n1=1)
async def test_its_controller_is_named_in_its_metrics(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    cluster.share("a")
    await expect_scheduled(cluster, "a")
    assert set(cluster.reconciles("scheduler")) == {"scheduler"}


def test_its_metrics_have_names_helps_and_what_waits_now() -> None:
    registry = CollectorRegistry()
    waiting: UnschedulableQueue[RequesterKey] = UnschedulableQueue()
    metrics = Metrics(registry, waiting)
    metrics.decisions.labels("bound").inc(2)
    for name in "abc":
        waiting.add(RequesterKey("SharePod", Key("default", name)), "")
    lines = generate_latest(registry).decode().splitlines()
    for line in (
        "# HELP kubeshare_scheduler_decisions_total Decisions about SharePods",
        'kubeshare_scheduler_decisions_total{outcome="bound"} 2.0',
        "# HELP kubeshare_scheduler_waiting Those that wait for room",
        "kubeshare_scheduler_waiting 3.0",
    ):
        assert line in lines


def closed(cluster: FakeCluster, *, to_pods: bool) -> None:
    cluster.server.change(NODES, "n1", "", lambda node: node["spec"].update(unschedulable=to_pods))


def relabel(cluster: FakeCluster) -> None:
    cluster.server.change(
        NODES, "n1", "", lambda node: node["metadata"]["labels"].update(zone="here")
    )


@pytest.mark.parametrize(
    ("spec", "then"),
    [
        ({}, lambda cluster: closed(cluster, to_pods=False)),
        ({"nodeSelector": {"zone": "here"}}, relabel),
    ],
)
def test_what_waits_is_tried_again_when_a_node_changes(
    spec: dict[str, object], then: Callable[[FakeCluster], None]
) -> None:
    async def play(cluster: FakeCluster) -> None:
        if not spec:
            closed(cluster, to_pods=True)
        cluster.start("scheduler")
        cluster.share("a", spec=spec)
        await expect_pending(cluster, "a")
        then(cluster)
        await expect_scheduled(cluster, "a", seconds=5)

    run_scenario(play, n1=1)


@scenario(n1=1)
async def test_a_heartbeat_of_a_node_makes_nobody_be_tried_again(cluster: FakeCluster) -> None:
    closed(cluster, to_pods=True)
    cluster.start("scheduler")
    cluster.share("a")
    await expect_pending(cluster, "a")
    await cluster.quiet(5)
    before = cluster.reconciles("scheduler")
    for number in range(3):
        metadata = {"annotations": {"heartbeat": str(number)}}
        change = partial(_update_metadata, metadata=metadata)
        cluster.server.change(NODES, "n1", "", change)
        await cluster.quiet(5)
    assert cluster.reconciles("scheduler") == before


def _update_metadata(obj: Raw, metadata: Raw) -> None:
    obj["metadata"].update(metadata)


@scenario(n1=1)
async def test_of_pods_it_keeps_only_those_whole_that_it_may_have_to_place(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    cluster.share("a")
    await expect_scheduled(cluster, "a")
    selectors = {"labelSelector": "kubeshare.nthu/role=pod", "fieldSelector": "spec.nodeName="}
    for verb in ("list", "watch"):
        asked = [
            each.query
            for each in cluster.server.requests
            if (each.verb, each.resource) == (verb, "pods")
        ]
        assert len(asked) == 2
        assert any(query.items() >= selectors.items() for query in asked)
