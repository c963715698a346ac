"""The published cases of gpushare after a pod is placed, and of pods that ask for no memory.

Each through both doors: by manifests and by the extender.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from expectations.pods import expect_event, expect_running
from expectations.vgpus import expect_holding
from fakes import manifests
from fakes.cluster import FakeCluster, run_scenario
from fakes.cluster.actors import BY_EXTENDER
from fakes.cluster.disruptions import cordon, fail_gpu
from fakes.cluster.doors import DOORS
from fakes.cluster.extender import bind, call, fit, offer, placed
from fakes.cluster.gpushare import published
from fakes.cluster.gpushare_doors import begin, create, place, retry
from fakes.cluster.state import the_pod
from kubeshare.api.types.v1 import GPUNODES
from kubeshare.cli.inspect.objects import read
from kubeshare.cli.inspect.tables import summary
from kubeshare.core.units import GI
from kubeshare.kube.resources import NODES, PODS, Raw
from kubeshare.simulator.control_tier.stored import bound, set_running

pytestmark = pytest.mark.slow

SCHEDULER = Path(__file__).parents[2] / "examples" / "gpushare" / "kube-scheduler.yaml"
GPU_COUNT = "aliyun.com/gpu-count"
PREFIX = "ALIYUN_COM_GPU_MEM_"

both_doors = pytest.mark.parametrize("door", DOORS)


async def inspected(cluster: FakeCluster) -> str:
    """What ``kubectl inspect gpushare`` prints."""
    async with cluster.server.client() as client:
        return summary(await read(client))


async def used(cluster: FakeCluster, node: str) -> list[int]:
    """The units in use of each GPU of a node, as the extender sees it."""
    _, answer = await call(cluster, f"inspect/{node}", b"")
    return [gpu["usedGPU"] for gpu in answer["nodes"][0]["devs"]]


def granted(cluster: FakeCluster, node: str) -> tuple[Raw, list[str]]:
    """The only grant of a node for one GPU, and the variables that its claims set."""
    paths = cluster.machines[node].paths
    [grant] = (paths.run_folder / "grants").glob("*.json")
    specs = [json.loads(each.read_text()) for each in paths.dynamic_cdi_folder.glob("*.json")]
    devices = [device for spec in specs for device in spec["devices"]]
    variables = [each for device in devices for each in device["containerEdits"].get("env", ())]
    [gpu] = json.loads(grant.read_text())["gpus"]
    return gpu, variables


@both_doors
def test_23_memory_is_free_when_the_containers_are_gone_not_when_the_deletion_begins(
    door: str,
) -> None:
    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, door)
        cluster.machines["n1"].stopping = 30.0
        await place(cluster, door, "first", 16)
        cluster.actors.delete(the_pod(cluster, "first"))
        await create(cluster, door, "next", 1)
        await cluster.quiet(20)
        assert not bound(the_pod(cluster, "next"))
        assert placed(cluster) == {"first": ("n1", 0)}
        assert await used(cluster, "n1") == [16]
        await cluster.until(lambda: "first" not in placed(cluster), seconds=20)
        await retry(cluster, door, "next")
        await expect_running(cluster, "next")
        await expect_holding(cluster, "next")

    run_scenario(play, agents=True, n1=1)


@both_doors
@pytest.mark.parametrize(("label", "lifted"), [("true", True), ("false", False), (None, False)])
def test_29_a_label_of_the_node_lifts_the_memory_limit(
    door: str, label: str | None, *, lifted: bool
) -> None:
    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, door)
        labels = {"cgpu.disable.isolation": label} if label else {}
        cluster.server.change(
            NODES, "n1", "", lambda node: node["metadata"]["labels"].update(labels)
        )
        await cluster.quiet(1)
        await place(cluster, door, "a", 3)
        grant, variables = granted(cluster, "n1")
        assert ("CGPU_DISABLE=true" in variables) is lifted
        assert {f"{PREFIX}IDX=0", f"{PREFIX}POD=3", f"{PREFIX}CONTAINER=3"} <= set(variables)
        assert grant["memoryBytes"] == 3 * GI
        assert grant.get("memoryLimitBytes") == (16 * GI if lifted else None)

    run_scenario(play, agents=True, n1=1)


@both_doors
def test_30_pods_keep_their_memory_while_the_kubelet_has_forgotten_the_plugin(door: str) -> None:
    """``tests/node/device_plugin`` has the registration and the count of GPUs."""

    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, door, units=16)
        await place(cluster, door, "a", 3)
        before = published(cluster, "a")
        offer(cluster, "n1", 0)
        await cluster.quiet(60)
        assert (placed(cluster), published(cluster, "a")) == ({"a": ("n1", 0)}, before)
        assert await used(cluster, "n1") == [3]
        offer(cluster, "n1", 16)
        await cluster.quiet(1)
        await place(cluster, door, "b", 13)
        assert placed(cluster) == {"a": ("n1", 0), "b": ("n1", 0)}

    run_scenario(play, n1=1)


INSPECTED = """\
NAME  IPADDRESS  GPU0(Allocated/Total)  GPU Memory(GiB)
n1    10.0.0.1   6/15                   6/15
n2    10.0.0.2   3/15                   3/15
------------------------------------------
Allocated/Total GPU Memory In Cluster:
9/30 (30%)"""


@both_doors
def test_31_inspect_prints_the_published_table(door: str) -> None:
    async def play(cluster: FakeCluster) -> None:
        for number, name in enumerate(("n1", "n2"), start=1):
            cluster.server.change(GPUNODES, name, "", lambda found: resize(found, 15))
            report(cluster, name, f"10.0.0.{number}")
        await begin(cluster, door, units=15)
        for name in "ab":
            await place(cluster, door, name, 3)
        cordon(cluster, "n1")
        await place(cluster, door, "c", 3)
        cordon(cluster, "n1", cordoned=False)
        assert await inspected(cluster) == INSPECTED
        assert [await used(cluster, name) for name in ("n1", "n2")] == [[6], [3]]

    run_scenario(play, n1=1, n2=1)


def resize(gpunode: Raw, units: int) -> None:
    """Let each GPU of a node have so many GiB."""
    for gpu in gpunode["spec"]["devices"]:
        gpu["memoryBytes"] = units * GI


def report(cluster: FakeCluster, node: str, address: str) -> None:
    """What a kubelet reports of a node with one GPU."""
    reported = {"addresses": [{"type": "InternalIP", "address": address}]}

    def change(found: Raw) -> None:
        found["status"] |= reported
        found["status"]["allocatable"][GPU_COUNT] = "1"

    cluster.server.change(NODES, node, "", change)


@both_doors
def test_32_a_running_pod_without_annotations_is_pending_for_inspect_and_uses_no_gpu(
    door: str,
) -> None:
    async def play(cluster: FakeCluster) -> None:
        report(cluster, "n1", "10.0.0.1")
        await begin(cluster, door, units=16)
        made = plain(cluster, "before", {"aliyun.com/gpu-mem": "3"}, nodeName="n1")
        await cluster.quiet(5)
        assert await inspected(cluster) == (
            "NAME  IPADDRESS  GPU0(Allocated/Total)  PENDING(Allocated)  GPU Memory(GiB)\n"
            "n1    10.0.0.1   0/16                   3                   3/16\n"
            "--------------------------------------------\n"
            "Allocated/Total GPU Memory In Cluster:\n"
            "3/16 (18%)"
        )
        assert await used(cluster, "n1") == [0]
        assert the_pod(cluster, "before") == made
        await place(cluster, door, "next", 13)
        assert await used(cluster, "n1") == [13]

    run_scenario(play, n1=1)


def plain(cluster: FakeCluster, name: str, limits: dict[str, str], **spec: Any) -> Raw:
    """A pod that no admission policy has changed; it runs if it has a node."""
    made = manifests.pod(name, limits, metadata={"namespace": "default"}, **spec)
    made |= {"status": {"phase": "Pending"}}
    if "nodeName" in spec:
        set_running(made)
    return cluster.server.seed(PODS, made)


@both_doors
@pytest.mark.parametrize(
    ("limits", "told"),
    [
        pytest.param({"cpu": "1"}, "", id="33: no resource of gpushare"),
        pytest.param({GPU_COUNT: "2"}, "NoGPU", id="34: a number of GPUs alone"),
    ],
)
def test_a_pod_that_asks_for_no_memory_is_left_alone(
    door: str, limits: dict[str, str], told: str
) -> None:
    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, door)
        waiting = plain(cluster, "a", limits, schedulerName=BY_EXTENDER)
        await cluster.quiet(30)
        assert the_pod(cluster, "a") == waiting
        bind_by_hand = {"nodeName": "n1"}
        cluster.server.change(PODS, "a", "default", lambda pod: pod["spec"].update(bind_by_hand))
        await expect_running(cluster, "a")
        assert "annotations" not in the_pod(cluster, "a")["metadata"]
        await expect_holding(cluster)
        assert not list(cluster.machines["n1"].paths.dynamic_cdi_folder.glob("*.json"))
        if told:
            await expect_event(cluster, "a", told)
        else:
            assert cluster.events("a") == []

    run_scenario(play, agents=True, n1=1)


def test_kube_scheduler_calls_the_extender_for_the_memory_only() -> None:
    """33 and 34: a kube-scheduler that called it all the same would do no harm."""
    [configured] = yaml.safe_load(SCHEDULER.read_text())["extenders"]
    assert [each["name"] for each in configured["managedResources"]] == ["aliyun.com/gpu-mem"]

    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, "extender")
        for name, limits in (("a", {"cpu": "1"}), ("b", {GPU_COUNT: "2"})):
            plain(cluster, name, limits, schedulerName=BY_EXTENDER)
            assert (await fit(cluster, name))["NodeNames"] == ["n1"]
            await cluster.quiet(1)
            assert (await bind(cluster, name))[0] == 500
            assert not bound(the_pod(cluster, name))
        await expect_holding(cluster)

    run_scenario(play, n1=1)


@both_doors
def test_35_a_gpu_with_an_error_takes_no_pod_and_keeps_what_it_has(door: str) -> None:
    """``tests/node/gpus/test_nvml_answers.py`` has which XIDs are errors of a GPU."""

    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, door)
        for name, units in (("a", 12), ("b", 8)):
            await place(cluster, door, name, units)
        fail_gpu(cluster, "n1", 1)
        await cluster.quiet(1)
        for name, units, runs in (("c", 5, False), ("d", 4, True)):
            await create(cluster, door, name, units)
            await cluster.quiet(5)
            assert cluster.running(name) is runs
        assert placed(cluster) == {"a": ("n1", 0), "b": ("n1", 1), "d": ("n1", 0)}
        assert await used(cluster, "n1") == [16, 8]

    run_scenario(play, n1=2)
