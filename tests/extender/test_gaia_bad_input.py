"""Bad input of Gaia's pods through both doors: refused, pending with a reason, or ignored."""

from typing import Any

import pytest

from expectations.pods import expect_running
from expectations.vgpus import expect_holding
from fakes.cluster import FakeCluster, run_scenario
from fakes.cluster.disruptions import label_node
from fakes.cluster.doors import DOORS, begin, create, expect_refused, place
from fakes.cluster.predicates import bind, fit, placed
from fakes.cluster.state import the_pod
from fakes.cluster.vcuda import published
from kubeshare.dialects.vcuda import CORE, CORE_LIMIT, LIMIT_ALONE, MEMORY
from kubeshare.dialects.write_back import VCUDA_INDEX as INDEX
from kubeshare.kube.resources import NODES, PODS

pytestmark = pytest.mark.slow

both_doors = pytest.mark.parametrize("door", DOORS)


@both_doors
@pytest.mark.parametrize(
    ("asked", "annotations", "words"),
    [
        ("150/4", {}, f"{CORE}]: 150 is more than one GPU and not a multiple of 100"),
        ("50/0", {}, f"{MEMORY}]: a share of a GPU needs some of its memory"),
        ("0/4", {}, f"{CORE}]: asks for no share of a GPU"),
        ("-1/4", {}, f"{CORE}]: -1 is negative"),
        (f"50/{2**60}", {}, f"{MEMORY}]: {2**60} blocks are past 2^63 - 1 bytes"),
        ("1700", {}, "17 shares are more than 16"),
        ("50/4", {CORE_LIMIT: "40"}, f"{CORE_LIMIT}]: 40 is less than the cores of container c0"),
        ("50/4", {CORE_LIMIT: "101"}, f"{CORE_LIMIT}]: 101 is not a number of cores"),
        ("50/4", {CORE_LIMIT: "half"}, f'{CORE_LIMIT}]: "half" is not a number'),
        ("50/4", {LIMIT_ALONE: "0.3"}, f"{LIMIT_ALONE}]: is less than the 50 cores"),
        ("50/4", {LIMIT_ALONE: "yes"}, f'{LIMIT_ALONE}: "yes" is not a number'),
        ("50/4", {"kubeshare.nthu/request": ".5"}, "kubeshare.nthu/request"),
        ("50/4", {"kubeshare/gpu_request": ".5"}, "kubeshare/gpu_request"),
    ],
)
def test_what_nobody_can_have_is_refused_by_its_name(
    door: str, asked: str, annotations: dict[str, str], words: str
) -> None:
    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, door)
        create(cluster, door, "a", asked, **annotations)
        await expect_refused(cluster, door, "a", words=words, reason="Invalid")
        await expect_holding(cluster)

    run_scenario(play, n1=2)


@both_doors
def test_containers_that_ask_for_two_families_are_refused(door: str) -> None:
    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, door)
        create(cluster, door, "a", "50/4")
        other = {"name": "other", "resources": {"limits": {"aliyun.com/gpu-mem": "2"}}}
        cluster.server.change(
            PODS, "a", "default", lambda found: found["spec"]["containers"].append(other)
        )
        await cluster.quiet(1)
        await expect_refused(cluster, door, "a", words="a pod asks for one of them")

    run_scenario(play, n1=1)


@both_doors
def test_more_blocks_than_any_gpu_has_never_fit(door: str) -> None:
    """The node has as many blocks in all, and gpu-admission goes by their average."""

    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, door)
        create(cluster, door, "a", "50/65")
        await expect_refused(cluster, door, "a", words="16Gi", reason="NeverFits")

    run_scenario(play, n1=2)


FORGED = {
    "another GPU of the node": {INDEX + "0": "1", "tencent.com/gpu-assigned": "true"},
    "another node": {"tencent.com/predicate-node": "n2", INDEX + "0": "0"},
    "more than there is": {INDEX + "0": "0,1,2,3,4,5,6,7", INDEX + "1": "0"},
    "the first in the queue": {"tencent.com/predicate-time": "1"},
    "of no form": {INDEX + "0": "-1", INDEX + "x": "{}", "tencent.com/predicate-time": "never"},
}


@both_doors
@pytest.mark.parametrize("annotations", FORGED.values(), ids=FORGED)
def test_predicate_annotations_that_a_user_writes_choose_and_hold_nothing(
    door: str, annotations: dict[str, str]
) -> None:
    async def play(cluster: FakeCluster) -> None:
        for node in ("n1", "n2"):
            cluster.link(node, gpu_0_1="PIX")
        await begin(cluster, door)
        await place(cluster, door, "first", "50")
        await place(cluster, door, "forged", "30", **annotations)
        assert placed(cluster) == {"first": [("n1", 0)], "forged": [("n1", 0)]}
        await cluster.until(
            lambda: published(cluster, "forged").get("tencent.com/gpu-assigned") == "true"
        )
        written = published(cluster, "forged")
        assert int(written.pop("tencent.com/predicate-time")) > 1
        assert written == {
            INDEX + "0": "0",
            "tencent.com/predicate-node": "n1",
            "tencent.com/gpu-assigned": "true",
        }
        for name in ("whole", "other"):
            await place(cluster, door, name, "100")
        assert sorted(placed(cluster)[name][0] for name in ("whole", "other")) == [
            ("n1", 1),
            ("n2", 0),
        ]

    run_scenario(play, n1=2, n2=2)


@both_doors
def test_no_dedicated_node_is_a_reason(door: str) -> None:
    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, door)
        label_node(cluster, "n1", family=None)
        await cluster.quiet(1)
        create(cluster, door, "a", "50")
        words = {"manifests": "n1: not dedicated to vcuda pods", "extender": "no GPU device"}
        await expect_refused(cluster, door, "a", words=words[door])

    run_scenario(play, n1=1)


def test_a_node_whose_kubelet_offers_nothing_yet_is_a_reason() -> None:
    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, "manifests")
        gone: dict[str, Any] = {CORE: "0", MEMORY: "0"}
        cluster.server.change(
            NODES, "n1", "", lambda node: node["status"]["allocatable"].update(gone)
        )
        create(cluster, "manifests", "a", "50")
        await expect_refused(cluster, "manifests", "a", words=f"n1: {CORE} 0 left, 50 asked")

    run_scenario(play, n1=1)


def test_another_node_than_the_one_that_fits_says_why_it_does_not() -> None:
    async def play(cluster: FakeCluster) -> None:
        await begin(cluster, "extender")
        create(cluster, "extender", "a", "50")
        result = await fit(cluster, "a")
        [node] = result["NodeNames"]
        [(other, words)] = result["FailedNodes"].items()
        uid = the_pod(cluster, "a")["metadata"]["uid"]
        assert (node, other) == ("n1", "n2")
        assert words == f"pod {uid} has already been matched to another node"
        bind(cluster, "a", node)
        await expect_running(cluster, "a")

    run_scenario(play, n1=1, n2=1)
