"""The published examples of gpushare, through both doors: by manifests and by the extender."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from expectations.pods import expect_running
from expectations.vgpus import expect_holders
from fakes.cluster import FakeCluster, run_scenario
from fakes.cluster.disruptions import fail_gpu
from fakes.cluster.extender import bind, call, fit, offer, placed, pod, schedule, start, vgpus
from fakes.cluster.state import the_pod
from kubeshare.api.types.v1 import GPUNODES, VGPUS
from kubeshare.core.units import MI, MICROS
from kubeshare.dialects.gpushare import GPU_MEMORY
from kubeshare.kube.resources import NODES, PODS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "examples" / "gpushare"
PAGE = ROOT / "docs" / "gpushare.md"

CARD = 16276
"""MiB of each GPU of the published examples."""
PREFIX = "ALIYUN_COM_GPU_MEM_"

Raw = dict[str, Any]
Place = tuple[str, int] | None
"""Node and index of a GPU; None if the pod waits."""


class Case(NamedTuple):
    """Nodes by the MiB in use on each of their GPUs, pods by the units of their containers."""

    nodes: dict[str, tuple[int, ...]]
    pods: list[tuple[int, ...]]
    places: list[Place]
    unit: str = "MiB"
    failed: tuple[int, ...] = ()
    spread: bool = False


N1, N2, N3 = (CARD, 12207), (12207, 12207), (8138, CARD)
CASES = {
    "N1 has 4069 left in all": Case({"n1": N1}, [(8138,)], [None]),
    "N2 has 4069 left on each GPU": Case({"n1": N2}, [(8138,)], [None]),
    "of N1, N2 and N3, only N3 has 8138 left on one GPU": Case(
        {"n1": N1, "n2": N2, "n3": N3}, [(8138,)], [("n3", 0)]
    ),
    "12207, 8138, 4069 and 16276 left: the fullest that fits": Case(
        {"n1": (4069, 8138, 12207, 0)}, [(8138,)], [("n1", 1)]
    ),
    "fifteen pods of 1024 fit a GPU": Case({"n1": (0,)}, [(1024,)] * 16, [*[("n1", 0)] * 15, None]),
    "1024 GiB fit no GPU": Case({"n1": (0,)}, [(1024,)], [None], unit="GiB"),
    "five halves on two GPUs": Case(
        {"n1": (0, 0)},
        [(8138,)] * 5,
        [("n1", 0), ("n1", 0), ("n1", 1), ("n1", 1), None],
    ),
    "two free halves are no whole GPU": Case({"n1": (8138, 8138)}, [(CARD,)], [None]),
    "a whole GPU leaves nothing": Case({"n1": (0,)}, [(CARD,), (1,)], [("n1", 0), None]),
    "a MiB more than a GPU has": Case({"n1": (0, 0, 0, 0)}, [(CARD + 1,)], [None]),
    "two containers need their sum on one GPU": Case(
        {"n1": N2, "n2": N3, "n3": (4069, CARD)}, [(5000, 5000)], [("n3", 0)]
    ),
    "a failed GPU takes no pod": Case({"n1": (0, 0)}, [(1000,)], [("n1", 1)], failed=(0,)),
    "two failed GPUs take none": Case({"n1": (0, 0)}, [(1000,)], [None], failed=(0, 1)),
    "a node that spreads: the emptiest GPU": Case(
        {"n1": (0, 0, 8138)},
        [(2048,)] * 4,
        [("n1", 0), ("n1", 1), ("n1", 0), ("n1", 1)],
        spread=True,
    ),
    "three pods of 3 GiB share one GPU": Case(
        {"n1": (0,), "n2": (0,)}, [(3,)] * 3, [("n1", 0)] * 3, unit="GiB"
    ),
}


def play(case: Case, door: str) -> list[Raw]:
    """Create the pods of a case one after the other; returns them as they are placed."""
    found: list[Raw] = []

    async def scenario(cluster: FakeCluster) -> None:
        for name in case.nodes:
            cluster.server.change(GPUNODES, name, "", resize_gpus)
        cluster.configure(gpushare={"door": door, "memoryUnit": case.unit})
        cluster.deadline = 600.0
        cluster.start("scheduler")
        await start(cluster)
        for name in case.nodes:
            if case.spread:
                cluster.server.change(NODES, name, "", spread_shares)
            offer(cluster, name, 4 * CARD)
        for index in case.failed:
            fail_gpu(cluster, "n1", index)
        for vgpu in vgpus(cluster):
            use(cluster, vgpu, case.nodes)
        await cluster.quiet(5)
        for number, (units, place) in enumerate(zip(case.pods, case.places, strict=True)):
            name = f"p{number}"
            made = pod(cluster, name, *units, gated=door == "manifests")
            if door == "manifests":
                del made["spec"]["schedulerName"]
                cluster.server.seed(PODS, made)
            else:
                await offer_to_extender(cluster, name, place)
            await cluster.quiet(3)
            assert placed(cluster).get(name) == place, name
            found.append(the_pod(cluster, name))

    gpus = {name: len(used) for name, used in case.nodes.items()}
    run_scenario(scenario, agents=False, **gpus)
    return found


async def offer_to_extender(cluster: FakeCluster, name: str, place: Place) -> None:
    """What kube-scheduler does with a pod that may go to one node, or to none."""
    await cluster.quiet(1)
    nodes = (await fit(cluster, name))["NodeNames"]
    assert nodes[:1] == ([place[0]] if place else [])
    node = place[0] if place else "n1"
    assert (await bind(cluster, name, node))[0] == (200 if place else 500)


def resize_gpus(gpunode: Raw) -> None:
    """Let each GPU have the memory of the published examples."""
    for gpu in gpunode["spec"]["devices"]:
        gpu["memoryBytes"] = CARD * MI


def spread_shares(node: Raw) -> None:
    """Spread the shares over the GPUs of a node."""
    node["metadata"]["labels"]["ack.node.gpu.placement"] = "spread"


def use(cluster: FakeCluster, vgpu: Raw, nodes: dict[str, tuple[int, ...]]) -> None:
    """Let a GPU be in use as the case says, by a pod that is not part of it."""
    node, uuid = vgpu["spec"]["nodeName"], vgpu["spec"]["uuid"]
    index = next(gpu["index"] for gpu in cluster.actors.devices[node] if gpu["uuid"] == uuid)
    used = nodes[node][index]
    if not used:
        return
    container = {"name": "main", "image": "train:1"}
    user = {
        "metadata": {"name": f"in-use-{node}-{index}", "namespace": "default"},
        "spec": {"nodeName": node, "containers": [container]},
        "status": {"phase": "Running"},
    }
    metadata = cluster.server.seed(PODS, user)["metadata"]
    holder = {
        "demand": metadata["uid"],
        "podUid": metadata["uid"],
        "namespace": "default",
        "name": metadata["name"],
        "requestMicros": used * MICROS // CARD,
        "limitMicros": MICROS,
        "memoryBytes": used * MI,
    }
    cluster.server.change(
        VGPUS,
        vgpu["metadata"]["name"],
        "",
        lambda obj: obj["status"].update(phase="Active", holders=[holder]),
    )


@pytest.mark.parametrize("door", ["manifests", "extender"])
@pytest.mark.parametrize("name", CASES)
def test_a_published_example_is_placed_as_published(name: str, door: str) -> None:
    case = CASES[name]
    for made, units, place in zip(play(case, door), case.pods, case.places, strict=True):
        if place is None:
            assert "nodeName" not in made["spec"]
            continue
        annotations = made["metadata"]["annotations"]
        assert annotations[PREFIX + "IDX"] == str(place[1])
        assert annotations[PREFIX + "POD"] == str(sum(units))
        assert annotations[PREFIX + "DEV"] == ("15" if case.unit == "GiB" else str(CARD))


def test_the_page_has_the_examples() -> None:
    for name, case in CASES.items():
        places = [f"{place[0]}, GPU {place[1]}" if place else "waits" for place in case.places]
        different = "; ".join(dict.fromkeys(places))
        asked = " + ".join(map(str, case.pods[0]))
        times = f", {len(case.pods)} pods" if len(set(case.pods)) == 1 < len(case.pods) else ""
        row = f"| {name} | {asked} {case.unit}{times} | {different} |"
        assert row in PAGE.read_text(encoding="utf-8"), row


@pytest.mark.parametrize("door", ["manifests", "extender"])
@pytest.mark.parametrize(
    ("unit", "last"),
    [("GiB", None), ("MiB", ("n1", 1))],
)
def test_the_published_samples(unit: str, last: Place, door: str) -> None:
    """The last asks for the MiB of a whole GPU, which are too many GiB."""
    amounts: list[tuple[int, ...]] = []
    for number in range(1, 5):
        sample = yaml.safe_load((SAMPLES / f"{number}.yaml").read_text(encoding="utf-8"))
        containers = sample["spec"]["template"]["spec"]["containers"]
        [units] = [each["resources"]["limits"][GPU_MEMORY] for each in containers]
        amounts.append((units,))
    assert amounts[:3] == [(2,)] * 3
    first: Place = ("n1", 0)
    play(Case({"n1": (0, 0)}, amounts, [first, first, first, last], unit=unit), door)


def test_pods_of_one_name_that_are_deleted_by_force_leave_nothing() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        await start(cluster)
        for _ in range(20):
            pod(cluster, "a", 5)
            assert await schedule(cluster, "a") == ""
            cluster.server.remove(PODS, "a", "default")
        await expect_holders(cluster, [])
        _, seen = await call(cluster, "inspect/n1", b"")
        assert seen["nodes"][0]["usedGPU"] == 0

    run_scenario(scenario, n1=1)


def test_a_restarted_extender_knows_what_is_in_use() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        await start(cluster)
        for name, units in (("a", 9), ("b", 9), ("c", 4)):
            pod(cluster, name, units)
            assert (await bind(cluster, name))[0] == 200
        await expect_running(cluster, "a", "b", "c")
        before = await call(cluster, "inspect", b"")
        await cluster.kill("extender")
        cluster.start("extender")
        await cluster.quiet(2)
        assert await call(cluster, "inspect", b"") == before
        [node] = before[1]["nodes"]
        assert [each["usedGPU"] for each in node["devs"]] == [13, 9]

    run_scenario(scenario, n1=2)
