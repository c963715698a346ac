"""Bad input through both doors: it is refused by name, waits with a reason, or changes nothing."""

from typing import Any

import pytest

from expectations.pods import expect_condition
from expectations.vgpus import expect_holding
from fakes.cluster import FakeCluster, run_scenario, scenario
from fakes.cluster.disruptions import label_node
from fakes.cluster.doors import DOORS
from fakes.cluster.extender import bind, call, fit, placed, pod, start
from fakes.cluster.gpushare import gated_pod
from fakes.cluster.gpushare_doors import begin, create, place
from fakes.cluster.state import gates, the_pod
from kubeshare.api.types.constants import CONDITION_POD_SCHEDULED
from kubeshare.kube.resources import PODS
from kubeshare.simulator.control_tier.stored import bound

PREFIX = "ALIYUN_COM_GPU_MEM_"
MEMORY = "aliyun.com/gpu-mem"

both_doors = pytest.mark.parametrize("door", DOORS)


@both_doors
@pytest.mark.parametrize(
    ("units", "words"),
    [
        ("0", f"{MEMORY}: asks for no GPU memory"),
        ("-1", f"{MEMORY} of container main: -1 is negative"),
        ("1.5", f"{MEMORY} of container main: 1.5 is not a whole number"),
        ("500m", f"{MEMORY} of container main: 500m is not a whole number"),
        ("4GB", f'{MEMORY} of container main: "4GB" is not a number'),
        ("many", f'{MEMORY} of container main: "many" is not a number'),
        ("8E", f"{MEMORY}: 8000000000000000000 is past the largest size, 2^63 - 1 bytes"),
    ],
)
def test_an_amount_that_is_no_number_of_units_is_refused(door: str, units: str, words: str) -> None:
    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, door)
        gated_pod(cluster, "main", units)
        await expect_invalid(cluster, "main", words)

    run_scenario(play, n1=1)


async def expect_invalid(cluster: FakeCluster, name: str, words: str) -> None:
    """A pod stays behind its gate, with the reason, and the extender does not bind it."""
    await expect_condition(cluster, name, CONDITION_POD_SCHEDULED, "Invalid")
    assert words in cluster.pod_condition(name)["message"]
    await cluster.quiet(5)
    assert gates(cluster, name)
    assert words in (await fit(cluster, name))["Error"]
    assert (await bind(cluster, name))[0] == 500
    assert not bound(the_pod(cluster, name))
    await expect_holding(cluster)


@both_doors
@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"labels": {"aliyun.com/gpu-count": "2"}}, "3 units of aliyun.com/gpu-mem"),
        ({"labels": {"aliyun.com/gpu-count": "0"}}, "0 is not a number of GPUs"),
        ({"labels": {"aliyun.com/gpu-count": "all"}}, '"all" is not a number'),
        ({"annotations": {"kubeshare.nthu/limit": ".5"}}, "needs kubeshare.nthu/request beside it"),
        ({"annotations": {"kubeshare.nthu/request": "2"}}, "kubeshare.nthu/request: 2 is more"),
        ({"annotations": {"kubeshare.nthu/memory": "1Gi"}}, "kubeshare.nthu/memory"),
        ({"annotations": {"kubeshare.nthu/count": "2"}}, "kubeshare.nthu/count"),
        ({"annotations": {"kubeshare.nthu/id": "x"}}, "kubeshare.nthu/id"),
        ({"annotations": {"kubeshare/GPUID": "x"}}, "kubeshare/GPUID"),
        ({"labels": {"sharedgpu/gpu_limit": "1"}}, "sharedgpu/gpu_limit"),
    ],
)
def test_what_contradicts_the_memory_is_refused(
    door: str, metadata: dict[str, Any], words: str
) -> None:
    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, door)
        gated_pod(cluster, "main", "3", **metadata)
        await expect_invalid(cluster, "main", words)

    run_scenario(play, n1=2)


@both_doors
def test_containers_that_ask_for_two_families_are_refused(door: str) -> None:
    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, door)
        gated_pod(cluster, "main", "3")
        other = {"name": "other", "resources": {"limits": {"tencent.com/vcuda-core": "10"}}}
        cluster.server.change(
            PODS, "main", "default", lambda found: found["spec"]["containers"].append(other)
        )
        await expect_invalid(cluster, "main", "a pod asks for one of them")

    run_scenario(play, n1=1)


@both_doors
def test_more_than_any_gpu_has_waits_with_the_memory_of_each_gpu(door: str) -> None:
    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, door)
        await create(cluster, door, "a", 17)
        await cluster.quiet(5)
        assert not bound(the_pod(cluster, "a"))
        if door == "manifests":
            condition = cluster.pod_condition("a")
            assert condition["reason"] == "NeverFits"
            assert "16Gi" in condition["message"]
        else:
            failed = (await fit(cluster, "a"))["FailedNodes"]
            assert failed == {"n1": "Insufficient GPU Memory in one device"}

    run_scenario(play, n1=2)


FORGED = {
    "of this release": {f"{PREFIX}IDX": "1", f"{PREFIX}POD": "1", f"{PREFIX}ASSIGNED": "true"},
    "of the design document": {"ALIYUN_GPU_ID": "1"},
    "of a later release": {"scheduler.framework.gpushare.allocation": '{"0": {"1": 1}}'},
    "of no form": {f"{PREFIX}IDX": "-7", f"{PREFIX}DEV": "many", f"{PREFIX}ASSUME_TIME": "{}"},
}


@both_doors
@pytest.mark.parametrize("annotations", FORGED.values(), ids=FORGED)
def test_annotations_that_a_user_writes_choose_and_hold_nothing(
    door: str, annotations: dict[str, str]
) -> None:
    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, door)
        await place(cluster, door, "first", 2)
        await place(cluster, door, "forged", 3, annotations=annotations)
        assert placed(cluster) == {"first": ("n1", 0), "forged": ("n1", 0)}
        written = the_pod(cluster, "forged")["metadata"]["annotations"]
        assert (written[f"{PREFIX}IDX"], written[f"{PREFIX}POD"]) == ("0", "3")
        await place(cluster, door, "rest", 11)
        await place(cluster, door, "other", 16)
        assert placed(cluster)["other"] == ("n1", 1)

    run_scenario(play, n1=2)


@both_doors
def test_a_node_that_is_not_gpushares_takes_no_pod(door: str) -> None:
    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, door)
        label_node(cluster, "n1", family=None)
        await cluster.quiet(1)
        await create(cluster, door, "a", 1)
        await cluster.quiet(5)
        assert not bound(the_pod(cluster, "a"))
        if door == "manifests":
            assert "n1: not dedicated to gpushare pods" in cluster.pod_condition("a")["message"]

    run_scenario(play, n1=1)


@pytest.mark.parametrize("verb", ["prioritize", "preempt"])
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "EOF"),
        (b'{"Pod"', "unexpected EOF"),
        (b"[]", "Expected `object"),
        (b'{"Pod": {"metadata": {"name": 1}}}', "name"),
    ],
)
def test_what_cannot_be_ranked_is_a_bad_request(verb: str, body: bytes, words: str) -> None:
    @scenario(n1=1)
    async def run(cluster: FakeCluster) -> None:
        await start(cluster)
        status, text = await call(cluster, verb, body)
        assert status == 400
        assert words in text

    run()


@scenario(n1=1, n2=1)
async def test_a_bind_does_not_unbind_a_pod_that_another_scheduler_has_bound(
    cluster: FakeCluster,
) -> None:
    """It has no share, and its node is another one: it stays as it is."""
    await start(cluster)
    pod(cluster, "a", 3)
    cluster.server.change(PODS, "a", "default", lambda found: found["spec"].update(nodeName="n2"))
    await cluster.quiet(1)
    status, _ = await bind(cluster, "a")
    assert status == 500
    assert the_pod(cluster, "a")["spec"]["nodeName"] == "n2"
    await expect_holding(cluster)
