"""The scheduler as a whole: its Lease, its metrics, its events, and what it retries on."""

from collections.abc import Callable
from functools import partial

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from expectations.pods import expect_event
from expectations.scheduling import expect_pending, expect_scheduled
from fakes import manifests
from fakes.cluster import FakeCluster, run_scenario, scenario
from fakes.cluster.cluster import BORN
from fakes.cluster.quotas import limit
from kubeshare.api.state.unschedulable import UnschedulableQueue
from kubeshare.api.types.constants import DEVICE_MANAGER, NAMESPACE
from kubeshare.api.types.gpu_quota import GPUQUOTAS
from kubeshare.api.types.v1 import GPUNODES, VGPUS
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import EVENTS, LEASES, NODES, PODS, RESOURCE_QUOTAS, Raw
from kubeshare.scheduler.metrics import Metrics
from kubeshare.scheduler.requesters.base import RequesterKey
from kubeshare.simulator.control import Fault
from scheduler.test_quotas import allow


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
    cluster.share("a", "0.7")
    cluster.share("b", "0.7")
    await expect_event(cluster, "b", "NoRoom")
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


def scraped(registry: CollectorRegistry) -> list[str]:
    return generate_latest(registry).decode().splitlines()


def test_its_metrics_have_names_helps_and_what_waits_now() -> None:
    registry = CollectorRegistry()
    waiting: UnschedulableQueue[RequesterKey] = UnschedulableQueue()
    metrics = Metrics(registry, waiting, lambda: BORN)
    metrics.decisions.labels("bound").inc(2)
    assert "kubeshare_scheduler_oldest_waiting_seconds 0.0" in scraped(registry)
    for name, hour in zip("abc", (21, 20, 22), strict=True):
        created = f"2025-12-31T{hour}:00:00Z"
        waiting.add(RequesterKey("SharePod", Key("default", name)), created)
    lines = scraped(registry)
    for line in (
        "# HELP kubeshare_scheduler_decisions_total Decisions about SharePods and pods",
        'kubeshare_scheduler_decisions_total{outcome="bound"} 2.0',
        'kubeshare_scheduler_decisions_total{outcome="pending"} 0.0',
        (
            "# HELP kubeshare_scheduler_waiting "
            "SharePods and pods that wait for room, or for their vGPUs"
        ),
        "kubeshare_scheduler_waiting 3.0",
        "kubeshare_scheduler_oldest_waiting_seconds 14400.0",
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
async def test_what_lets_nobody_in_makes_nobody_be_tried_again(cluster: FakeCluster) -> None:
    closed(cluster, to_pods=True)
    lease = {"name": DEVICE_MANAGER, "namespace": NAMESPACE}
    cluster.server.seed(LEASES, {"metadata": lease, "spec": {"holderIdentity": "one"}})
    allow(cluster)
    limit(cluster, {"model": "V100", "gpus": 4})
    cluster.native_pod("native")
    cluster.start("scheduler")
    cluster.share("a", "0.2")
    await expect_pending(cluster, "a")
    await cluster.quiet(5)
    before = cluster.reconciles("scheduler")
    # A heartbeat, a renewal, and what controllers say of what is used.
    for resource, name, namespace in (
        (NODES, "n1", ""),
        (GPUNODES, "n1", ""),
        (LEASES, DEVICE_MANAGER, NAMESPACE),
        (RESOURCE_QUOTAS, "gpus", "default"),
        (GPUQUOTAS, "gpus", "default"),
        (PODS, "native", "default"),
    ):
        metadata = {"annotations": {} if resource is LEASES else {"heartbeat": "1"}}
        change = partial(_update, part="metadata", values=metadata)
        cluster.server.change(resource, name, namespace, change)
        await cluster.quiet(1)
        assert cluster.reconciles("scheduler") == before, resource.plural
    renewed = {"renewTime": "2026-01-01T00:00:10.000000Z"}
    for values, tries in ((renewed, 0), ({"holderIdentity": "two"}, 1)):
        change = partial(_update, part="spec", values=values)
        cluster.server.change(LEASES, DEVICE_MANAGER, NAMESPACE, change)
        await cluster.quiet(1)
        assert cluster.reconciles("scheduler").total() == before.total() + tries


def _update(obj: Raw, part: str, values: Raw) -> None:
    obj[part].update(values)


@scenario(n1=1)
async def test_its_decisions_are_counted_by_outcome(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    cluster.share("a", "0.6", memory="1Gi")
    gpuid = (await expect_scheduled(cluster, "a")).gpuid
    assert cluster.decisions() == {"bound": 1}
    cluster.share("large", "0.6", memory="1Gi")
    await expect_pending(cluster, "large")
    cluster.share("many", "0.6", count=9)
    await expect_pending(cluster, "many")
    cluster.share("wrong", "7")
    await expect_pending(cluster, "wrong")
    assert cluster.decisions().keys() == {"bound", "pending", "rejected", "invalid"}

    def take() -> None:
        other = manifests.holder("other", "other", requestMicros=350_000)
        change = partial(_hold, more=other)
        cluster.server.change(VGPUS, gpuid, "", change)

    cluster.server.inject(Fault.preceded_by(take), verb="patch", resource="vgpus/status")
    cluster.share("b", "0.1", memory="1Gi")
    await expect_pending(cluster, "b")
    assert cluster.decisions()["stale"] == 1


@scenario(n1=1)
async def test_the_condition_that_it_writes_is_no_reason_to_decide_again(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    cluster.share("a", "0.6", memory="1Gi")
    await expect_scheduled(cluster, "a")
    cluster.share("waits", "0.6", memory="1Gi")
    await expect_pending(cluster, "waits")
    await cluster.quiet(5)
    before = cluster.decisions()["pending"]
    cluster.share("late", "0.6", memory="1Gi")
    await expect_pending(cluster, "late")
    await cluster.quiet(5)
    assert cluster.decisions()["pending"] == before + 1


def _hold(vgpu: Raw, more: Raw) -> None:
    vgpu["status"]["holders"].append(more)


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
