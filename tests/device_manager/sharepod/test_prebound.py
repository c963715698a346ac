"""A pod is bound while its vGPU is being activated; it never runs without a GPU."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from expectations.pods import (
    expect_condition,
    expect_no_pod,
    expect_pod,
    expect_ready,
    expect_running,
)
from expectations.scheduling import assert_scheduled
from expectations.vgpus import expect_vgpus
from fakes import objects
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.state import the_pod
from kubeshare.api.types.core_v1 import Pod
from kubeshare.api.types.v1 import VGPU, VGPUS
from kubeshare.device_manager.sharepod.prebound import PreboundPods
from kubeshare.simulator.control import FakeApiServer, run_virtual


def uuids(cluster: FakeCluster) -> list[str]:
    return [vgpu["spec"].get("uuid", "") for vgpu in cluster.server.all(VGPUS)]


@scenario(n1=1)
async def test_the_pod_is_made_once_the_placeholder_is_bound_and_named_once_the_gpu_is_known(
    cluster: FakeCluster,
) -> None:
    cluster.actors.node_agents = False
    cluster.start()
    cluster.share("a")
    await expect_pod(cluster, "a")
    await cluster.quiet()
    assert uuids(cluster) == [""]
    pod = the_pod(cluster, "a")
    assert pod["spec"]["nodeName"] == "n1"
    assert cluster.pod_uids() == {"a": ""}, "nothing of it can have run"
    assert not cluster.running("a")
    assert cluster.condition("a", "Allocated")["reason"] == "Creating"
    cluster.actors.node_agents = True
    cluster.actors.reconcile()
    await expect_ready(cluster, "a")
    assert cluster.pod_uids() == {"a": pod["metadata"]["uid"]}


@scenario(n1=1)
async def test_no_pod_is_made_while_kube_scheduler_has_not_bound_the_placeholder(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    cluster.share("a")
    await expect_vgpus(cluster, 1)
    cluster.native_pod("whole")
    await expect_running(cluster, "whole")
    cluster.start("devices")
    await expect_condition(cluster, "a", "Allocated", "GPUNotFree")
    assert cluster.pod("a") is None


@scenario(n1=1, n2=1)
async def test_a_pod_whose_gpu_cannot_be_shared_is_taken_back_and_runs_elsewhere(
    cluster: FakeCluster,
) -> None:
    cluster.actors.sliced.add("n1")
    cluster.start()
    cluster.share("a")
    await expect_ready(cluster, "a", seconds=90)
    assert_scheduled(cluster, "a", node="n2")
    await expect_vgpus(cluster, 1, placeholders=1)


@scenario(n1=1)
async def test_where_there_is_no_other_gpu_it_waits_without_a_pod_and_says_why(
    cluster: FakeCluster,
) -> None:
    cluster.actors.sliced.add("n1")
    cluster.start()
    cluster.share("a")
    await expect_condition(cluster, "a", "Allocated", "NotShareable")
    await expect_no_pod(cluster, "a")
    assert set(cluster.pod_uids().values()) <= {""}


HELD = objects.vgpu("x", holders=(objects.holder("demand"),))
"""A vGPU without a GPU yet."""
FAILED = objects.pod("p", placeholder_of="x", phase="Failed")


def forgotten(pod: Pod, vgpus: list[VGPU], live: VGPU | None, placeholder: Pod) -> list[Pod]:
    """The pods that were to be deleted, and had gone; ``live`` is the API server's vGPU."""
    gone: list[Pod] = []

    async def refresh(_: str) -> VGPU | None:
        return live

    state = SimpleNamespace(pool=SimpleNamespace(refresh=refresh), forget_pod=gone.append)

    async def main() -> None:
        server = FakeApiServer()
        placeholders = SimpleNamespace(of=lambda _: placeholder)
        pods = PreboundPods(server.client(), cast("Any", state), cast("Any", placeholders))
        blocked = await pods.reconcile(pod, "demand", vgpus)
        assert blocked is not None
        asked = [(each.verb, each.path.name) for each in server.requests]
        assert asked == [("delete", each.metadata.name) for each in gone]

    run_virtual(main())
    return gone


@pytest.mark.parametrize(
    ("live", "deleted"),
    [
        (HELD, True),
        (None, False),
        (objects.vgpu("x", uuid="GPU-0", holders=HELD.status.holders), False),
        (objects.vgpu("x", holders=(objects.holder("demand", pod_uid="u"),)), False),
        (objects.vgpu("x", phase="Deleting", holders=HELD.status.holders), False),
        (objects.vgpu("x", holders=()), False),
    ],
    ids=["as it was seen", "gone", "with a GPU", "the pod may run", "given back", "not held"],
)
def test_a_pod_is_deleted_only_if_the_api_server_says_too_that_its_gpu_does_not_come(
    live: VGPU | None, *, deleted: bool
) -> None:
    pod = objects.pod("a")
    assert forgotten(pod, [HELD], live, FAILED) == [pod] * deleted


def test_a_pod_whose_gpu_may_still_come_or_that_is_deleted_already_is_left_alone() -> None:
    waiting = objects.pod("p", placeholder_of="x", phase="Pending")
    assert forgotten(objects.pod("a"), [HELD], HELD, waiting) == []
    deleted = objects.pod("a", deletion_timestamp="2026-01-01T00:00:00Z")
    assert forgotten(deleted, [HELD], HELD, FAILED) == []


def test_a_vgpu_of_a_former_decision_hides_no_other() -> None:
    former = objects.vgpu("y", node_name="n9", holders=HELD.status.holders)
    pod = objects.pod("a")
    assert forgotten(pod, [former, HELD], HELD, FAILED) == [pod]
