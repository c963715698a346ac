"""Nodes that are taken over under pods of another device plugin."""

from typing import Any

import pytest
from msgspec.structs import replace

from expectations.pods import expect_running
from expectations.vgpus import expect_holders, expect_no_vgpus, expect_owned, expect_phases
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.disruptions import cordon, label_node
from fakes.cluster.gpushare import gated_pod, offer
from fakes.cluster.legacy import ask_for, gpushare_pod, record, serve, stop
from fakes.cluster.state import evicted, gpunode, is_same_pod, owned, the_pod
from kubeshare.api.owned_nodes import static_name
from kubeshare.api.types.reasons import Reason
from kubeshare.device_manager.owned.controller import SETTLED_SECONDS
from kubeshare.device_manager.owned.takeover import Facts, decide, taking_over
from kubeshare.simulator.control_tier.objects import gpu_uuid

LONG = 5 * SETTLED_SECONDS
FIRST, SECOND = (static_name(gpu_uuid("n1", index)) for index in (0, 1))
GPU_MEM = ("aliyun.com/gpu-mem",)


def facts(**more: Any) -> Facts:
    known: dict[str, Any] = {"node": "n1", "requested": True, "cordoned": True}
    return Facts(**(known | more))


@pytest.mark.parametrize("more", [{"parts": GPU_MEM}, {"legacy": ("default/a",)}])
def test_a_cordoned_node_is_taken_over_under_the_pods_of_a_family(more: dict[str, Any]) -> None:
    decided = decide(facts(**more))
    assert (decided.mode, decided.accepts, decided.migrates) == ("owned", False, True)
    assert decided.reason == Reason.MIGRATING
    [words] = [found[0] for found in more.values()]
    assert words in decided.message


@pytest.mark.parametrize(
    "more",
    [
        {"cordoned": False},
        {"offered": 1},
        {"by_claims": 1},
        {"parts": (*GPU_MEM, "nvidia.com/gpu.shared")},
        {"users": ("default/whole",)},
        {"used": ("GPU-1",)},
        {"supported": False},
        {"claimants": ("default/nic",)},
        {"unresolved": ("x",)},
    ],
)
def test_anything_else_on_the_node_prevents_that(more: dict[str, Any]) -> None:
    decided = decide(facts(**({"parts": GPU_MEM, "legacy": ("default/a",)} | more)))
    assert (decided.mode, decided.accepts, decided.migrates) == ("shared", False, False)
    assert decided.reason != Reason.MIGRATING


def test_a_node_that_is_not_cordoned_names_the_commands() -> None:
    message = decide(facts(cordoned=False, legacy=("default/a",))).message
    assert "`kubectl cordon n1`" in message
    assert "`kubeshare migrate --help`" in message
    assert "default/a" in message


@pytest.mark.parametrize("more", [{"cordoned": False}, {"offered": 1}, {"supported": False}])
def test_once_begun_it_goes_on_but_creates_nothing(more: dict[str, Any]) -> None:
    known: dict[str, Any] = {"owned": True, "static": ("v",), "migrating": True, "parts": GPU_MEM}
    decided = decide(facts(**(known | more)))
    assert (decided.mode, decided.accepts, decided.migrates) == ("owned", False, False)
    assert decided.reason == Reason.MIGRATING


def test_while_the_plugin_may_be_restarting_the_reason_stays() -> None:
    begun = facts(owned=True, static=("v",), migrating=True)
    assert decide(begun).accepts
    assert taking_over(begun, 60).reason == Reason.MIGRATING


def test_a_node_that_is_no_longer_asked_for_is_given_back_whatever_its_pods_have() -> None:
    known = facts(requested=False, static=("v",), held=("v",), legacy=("default/a",), parts=GPU_MEM)
    assert decide(known).reason == Reason.RELEASING
    begun = decide(replace(known, migrating=True))
    assert (begun.reason, begun.migrates, begun.mode) == (Reason.MIGRATING, False, "owned")
    assert "no longer asked for" in begun.message
    assert decide(replace(known, migrating=True, static=())).mode == "shared"


async def migrating(cluster: FakeCluster) -> None:
    """A node with Alibaba's plugin, in the state in which pods are recorded."""
    cluster.deadline = LONG
    serve(cluster, "n1", gpu_mem="32", gpu_count="2")
    ask_for(cluster, "n1")
    cluster.start()
    await expect_owned(cluster, "n1", "Migrating")
    await expect_phases(cluster, "Idle", "Idle")


@scenario(n1=2)
async def test_the_node_accepts_pods_when_all_are_recorded_and_the_plugin_is_gone(
    cluster: FakeCluster,
) -> None:
    cluster.configure(gpuFailure="evict")
    a, b = gpushare_pod(cluster, "a", 12, 0), gpushare_pod(cluster, "b", 3, 1)
    await migrating(cluster)
    assert gpunode(cluster, "n1")["status"]["mode"] == "owned"
    gated_pod(cluster, "new", "8")
    for pod, gpu, units in ((a, FIRST, 12), (b, SECOND, 3)):
        await cluster.quiet(SETTLED_SECONDS)
        assert owned(cluster, "n1")["reason"] == "Migrating"
        record(cluster, pod, gpu, memoryBytes=units << 30)
    await cluster.quiet(LONG)
    assert "aliyun.com/gpu-mem" in owned(cluster, "n1")["message"]
    stop(cluster, "n1")
    await expect_owned(cluster, "n1")
    offer(cluster, "n1", 32)
    cordon(cluster, "n1", cordoned=False)
    await expect_running(cluster, "new")
    await expect_holders(cluster, ["a"], ["b", "new"])
    assert evicted(cluster) == []
    assert not any(cluster.vgpu(name)["status"].get("conditions") for name in (FIRST, SECOND))
    for pod in (a, b):
        assert is_same_pod(cluster, pod)


@scenario(n1=2)
async def test_a_pod_that_is_not_recorded_keeps_the_node_closed(cluster: FakeCluster) -> None:
    cluster.invariants.doubles = True  # a has two GPUs
    a = gpushare_pod(cluster, "a", 12, 0)
    gpushare_pod(cluster, "b", 3, 1)
    await migrating(cluster)
    record(cluster, a, FIRST, parts=2)  # of two holders, the second one is missing
    stop(cluster, "n1")
    await cluster.quiet(LONG)
    assert owned(cluster, "n1")["status"] == "False"
    assert "default/a, default/b" in owned(cluster, "n1")["message"]
    record(cluster, a, SECOND, parts=2)
    cluster.end("b")
    await expect_owned(cluster, "n1")


@scenario(n1=1, agents=True)
async def test_a_recorded_pod_keeps_its_share_until_it_ends(cluster: FakeCluster) -> None:
    a = gpushare_pod(cluster, "a", 12, 0)
    cluster.deadline = LONG
    serve(cluster, "n1", gpu_mem="16", gpu_count="1")
    ask_for(cluster, "n1")
    cluster.start()
    await expect_phases(cluster, "Idle")
    record(cluster, a, FIRST, memoryBytes=12 << 30)
    stop(cluster, "n1")
    await expect_owned(cluster, "n1")
    await cluster.quiet(LONG)
    await expect_holders(cluster, ["a"])
    cluster.end("a")
    await expect_holders(cluster, [])


@scenario(n1=1)
async def test_without_the_wish_the_node_is_shared_again_when_nothing_is_recorded(
    cluster: FakeCluster,
) -> None:
    a = gpushare_pod(cluster, "a", 12, 0)
    cluster.deadline = LONG
    serve(cluster, "n1", gpu_mem="16", gpu_count="1")
    ask_for(cluster, "n1")
    cluster.start()
    await expect_phases(cluster, "Idle")
    record(cluster, a, FIRST, memoryBytes=12 << 30)
    label_node(cluster, "n1", gpus=None)
    await cluster.quiet(SETTLED_SECONDS)
    assert "no longer asked for" in owned(cluster, "n1")["message"]
    assert owned(cluster, "n1")["reason"] == "Migrating"
    cluster.actors.delete(the_pod(cluster, "a"))
    await expect_no_vgpus(cluster)
    await expect_owned(cluster, "n1", "NotRequested")
