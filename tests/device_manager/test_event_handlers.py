"""An event enqueues the keys that it concerns, and not many more."""

import pytest

from expectations.pods import expect_pod, expect_ready
from expectations.scheduling import expect_on_node
from expectations.vgpus import expect_released
from fakes.cluster import FakeCluster, scenario
from kubeshare.api.types.core_v1 import Pod, PodStatus
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import SHAREPODS, SharePod
from kubeshare.device_manager.sharepod.allocation import WATCH_LAG_SECONDS
from kubeshare.device_manager.sharepod.event_handlers import pod_differs
from kubeshare.device_manager.sharepod.status import not_allocated
from kubeshare.device_manager.sharepod.status_writer import (
    PASSING_SECONDS,
    PASSING_SECONDS_EACH,
    StatusWriter,
)
from kubeshare.kube.cache.store import MODIFIED, Change
from kubeshare.kube.clock import utc_now
from kubeshare.kube.meta import Condition, ObjectMeta
from kubeshare.simulator.control import FakeApiServer, run_virtual

SHARED = 8
"""SharePods on one GPU."""


@scenario(n1=1)
async def test_what_starts_on_a_gpu_wakes_none_of_those_that_share_it_already(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("first", "0.1")
    await cluster.quiet()
    before = {name: cluster.reconciles(name) for name in cluster.programs}
    names = [f"next-{number}" for number in range(SHARED)]
    for name in names:
        await cluster.run(name, "0.1")
    await expect_ready(cluster, *names)
    await cluster.quiet()
    counts = {name: cluster.reconciles(name) - before[name] for name in cluster.programs}
    assert counts["scheduler"]["scheduler"] <= 2 * SHARED
    # Decided, bound, running: its own status writes do not enqueue it.
    assert counts["devices"]["sharepods"] <= 3 * SHARED
    assert not counts["devices"]["vgpus"]
    assert not counts["devices"]["pods"]
    assert not counts["devices"]["pools"]


@scenario(n1=1)
async def test_those_that_wait_for_a_new_vgpu_are_woken_when_it_is_there(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    names = [f"share-{number}" for number in range(SHARED)]
    for name in names:
        cluster.share(name, "0.1")
    await expect_ready(cluster, *names)
    await cluster.quiet()
    counts = cluster.reconciles("devices")
    # Decided, the GPU is there, bound, running.
    assert counts["sharepods"] <= 5 * SHARED
    assert counts["vgpus"] <= 3 * SHARED
    assert not counts["pods"]


@pytest.mark.parametrize("had_room", [True, False])
def test_where_a_pod_is_meant_to_be_bound_is_news_only_if_there_was_no_room(
    *, had_room: bool
) -> None:
    reported = Condition(type="PodScheduled", status=str(had_room), reason="Unschedulable")
    metadata = ObjectMeta(namespace="default", name="a", uid="1")
    before = Pod(metadata=metadata, status=PodStatus(conditions=(reported,)))
    meant = PodStatus(conditions=(reported,), nominated_node_name="n1")
    assert pod_differs(Change(MODIFIED, Pod(metadata=metadata, status=meant), before)) != had_room


@scenario(n1=1)
async def test_a_watch_that_is_behind_another_costs_no_read(cluster: FakeCluster) -> None:
    cluster.start("devices")
    await cluster.quiet(1)
    spec = {"nodeName": "n1"}
    cluster.share("early", "0.3", id="vgpu-late", attempt=1, spec=spec)
    await cluster.quiet(WATCH_LAG_SECONDS / 2)
    asked = [(each.verb, each.resource) for each in cluster.server.requests]
    assert ("get", "vgpus") not in asked
    # The vGPU is not in the cache: so it is read, and the SharePod rescheduled.
    await expect_on_node(cluster, "early", "")


def test_the_more_are_on_their_way_the_later_that_is_told() -> None:
    on_its_way = not_allocated(Reason.CREATING, "it is being made", passing=True)

    async def main() -> None:
        mirror = StatusWriter(FakeApiServer().client(), utc_now)
        lasts = []
        for number in range(41):
            metadata = ObjectMeta(namespace="default", name=f"share-{number}", uid=str(number))
            reported, again = await mirror.write(SharePod(metadata=metadata), on_its_way, None)
            assert not reported
            assert again is not None
            lasts.append(again.seconds)
        assert lasts[0] == PASSING_SECONDS
        assert lasts[-1] == pytest.approx(PASSING_SECONDS + 40 * PASSING_SECONDS_EACH)

    run_virtual(main())


@scenario(n1=2)
async def test_all_parts_of_a_pod_that_was_never_bound_are_given_back(cluster: FakeCluster) -> None:
    cluster.start()
    cluster.actors.binds = False
    cluster.share("a", "0.6", count=2)
    await expect_pod(cluster, "a")
    await cluster.kill("scheduler")
    cluster.server.remove(SHAREPODS, "a", "default")
    await expect_released(cluster)
