"""Programs keep nothing in memory about deleted objects."""

import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from expectations.pods import expect_running
from expectations.vgpus import expect_holding, expect_no_vgpus, expect_vgpus
from fakes.cluster import FakeCluster, run_scenario
from kubeshare.api.demands import Demands
from kubeshare.kube.controller.events import EventRecorder

NAME = "departed"
"""Part of the name of each object that a test deletes, and of no other."""
BOUNDED = (Demands, EventRecorder)
"""Caches of a fixed size: they drop the oldest entries."""
LONG = 600.0


def remembered() -> list[str]:
    """The attributes of the programs' objects that still contain the name."""
    found = set()
    gc.collect()
    for each in gc.get_objects():
        module = str(type(each).__module__)
        # A ledger is updated when it is read, and keeps a bounded number of names.
        ours = module.startswith("kubeshare.") and not module.startswith(
            ("kubeshare.core.", "kubeshare.simulator.")
        )
        if not ours or isinstance(each, BOUNDED) or not hasattr(each, "__dict__"):
            continue
        for name, value in vars(each).items():
            if isinstance(value, dict | set | list) and NAME in repr(value):
                found.add(f"{type(each).__name__}.{name}")
    return sorted(found)


def gang(cluster: FakeCluster, name: str) -> None:
    labels = {"sharedgpu/group_name": NAME, "sharedgpu/min_available": "2"}
    cluster.plain(f"{NAME}-{name}", "1", labels=labels)


async def while_it_runs(cluster: FakeCluster) -> None:
    await cluster.run(NAME)
    await cluster.quiet(20)


async def while_it_is_made(cluster: FakeCluster) -> None:
    cluster.share(NAME)
    await expect_vgpus(cluster, 1)


async def while_it_waits_for_room(cluster: FakeCluster) -> None:
    cluster.share(NAME, "1", count=3)
    await cluster.quiet(20)


async def while_its_pod_finds_no_room(cluster: FakeCluster) -> None:
    cluster.actors.full.add("n1")
    cluster.share(NAME)
    await cluster.quiet(8)


async def while_a_gpu_with_a_name_has_no_room(cluster: FakeCluster) -> None:
    cluster.share("other", "1", id="mine", spec={"nodeName": "n1"})
    await expect_running(cluster, "other")
    cluster.share(NAME, "1", id="mine", spec={"nodeName": "n1"})
    await cluster.quiet(20)


async def while_its_gpu_is_a_native_pods(cluster: FakeCluster) -> None:
    await cluster.kill("devices")
    cluster.share(NAME)
    cluster.plain(f"{NAME}-plain", "0.9")
    await expect_holding(cluster, NAME, f"{NAME}-plain")
    cluster.native_pod("whole", 2)
    await expect_running(cluster, "whole")
    cluster.start("devices")
    await cluster.quiet(20)


async def while_a_gang_is_held(cluster: FakeCluster) -> None:
    await cluster.kill("devices")
    gang(cluster, "a")
    gang(cluster, "b")
    await expect_vgpus(cluster, 2)
    cluster.native_pod("whole", 2)
    await expect_running(cluster, "whole")
    cluster.start("devices")
    await cluster.quiet(20)


async def while_a_gang_is_let_wait(cluster: FakeCluster) -> None:
    await while_a_gang_is_held(cluster)
    await cluster.quiet(310)


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps",
    [
        while_it_runs,
        while_it_is_made,
        while_it_waits_for_room,
        while_its_pod_finds_no_room,
        while_a_gpu_with_a_name_has_no_room,
        while_its_gpu_is_a_native_pods,
        while_a_gang_is_held,
        while_a_gang_is_let_wait,
    ],
)
def test_nothing_is_remembered_of_what_was_deleted(
    steps: Callable[[FakeCluster], Awaitable[Any]],
) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.start()
        await steps(cluster)
        assert NAME in repr(cluster.server.storage.objects)
        cluster.clear()
        await expect_no_vgpus(cluster, seconds=LONG)
        await cluster.quiet(LONG)
        assert remembered() == []

    run_scenario(scenario, n1=2)
