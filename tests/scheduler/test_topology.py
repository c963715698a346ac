"""SharePods placed by the links between GPUs that node agents report."""

import itertools

import pytest

from expectations.pods import expect_running
from expectations.scheduling import expect_decided, expect_pending
from expectations.vgpus import expect_owned, expect_released, expect_shared_gpu
from fakes.cluster import FakeCluster, gpu_uuid, scenario
from fakes.cluster.disruptions import fail_gpu, own
from kubeshare.api.types.v1 import VGPUS
from kubeshare.core.topology import read_notation
from kubeshare.core.topology.links import name_of
from kubeshare.device_manager.owned.controller import SETTLED_SECONDS

PAIRED = {"gpu_0_2": "NV2", "gpu_1_3": "NV2", "gpu_0_1": "PHB", "gpu_2_3": "PHB"}


async def have_gpus(cluster: FakeCluster, *gpuids: str) -> dict[str, str]:
    """Reserves all GPUs of a node as idle vGPUs; returns UUID -> GPUID."""
    cluster.policy = "topology"
    cluster.link("n1", **PAIRED)
    cluster.reserve("n1", *gpuids)
    cluster.start()
    await cluster.until(
        lambda: all(cluster.vgpu(gpuid)["status"].get("phase") == "Idle" for gpuid in gpuids)
    )
    return {cluster.vgpu(gpuid)["spec"]["uuid"]: gpuid for gpuid in gpuids}


@scenario(n1=4)
async def test_a_demand_for_two_whole_gpus_gets_a_pair_that_is_joined_by_nvlink(
    cluster: FakeCluster,
) -> None:
    gpuid = await have_gpus(cluster, "a", "b", "c", "d")
    cluster.share("first", "1", memory="16Gi", count=2)
    await expect_decided(cluster, "first")
    pairs = [sorted(gpuid[gpu_uuid("n1", number)] for number in pair) for pair in ((0, 2), (1, 3))]
    chosen = cluster.sharepod("first")["spec"]["gpu"]["ids"]
    assert chosen in pairs
    cluster.share("second", "1", memory="16Gi", count=2)
    await expect_decided(cluster, "second")
    pairs.remove(chosen)
    assert cluster.sharepod("second")["spec"]["gpu"]["ids"] == pairs[0]
    await expect_running(cluster, "first", "second")


@scenario(n1=4)
async def test_a_fraction_goes_to_a_gpu_that_is_in_use_and_a_pair_is_kept_whole(
    cluster: FakeCluster,
) -> None:
    gpuid = await have_gpus(cluster, "a", "b", "c", "d")
    cluster.share("first", "0.5")
    await expect_decided(cluster, "first")
    cluster.share("second", "0.3")
    await expect_shared_gpu(cluster, "first", "second")
    used = cluster.sharepod("first")["spec"]["gpu"]["id"]
    cluster.share("third", "1", memory="16Gi", count=2)
    await expect_decided(cluster, "third")
    pair = sorted(
        gpuid[gpu_uuid("n1", number)]
        for number in ((0, 2), (1, 3))[used in (gpuid[gpu_uuid("n1", 0)], gpuid[gpu_uuid("n1", 2)])]
    )
    assert cluster.sharepod("third")["spec"]["gpu"]["ids"] == pair


@pytest.mark.parametrize("asks", ["SharePod", "pod"])
def test_two_and_a_half_gpus_are_a_pair_and_a_half_near_it(asks: str) -> None:
    """GPU 5 is shared and has room for the half, but is at the other socket."""

    @scenario(n1=8)
    async def run(cluster: FakeCluster) -> None:
        cluster.policy = "topology"
        cluster.deadline = 5 * SETTLED_SECONDS
        links = read_notation("SYS(PHB(PIX(0,1),PIX(2,3)),PHB(PIX(4,5),PIX(6,7)))", "the tree")
        pairs = itertools.combinations(range(8), 2)
        cluster.link("n1", **{f"gpu_{a}_{b}": name_of(links[a][b]) for a, b in pairs})
        cluster.start()
        own(cluster, "n1")
        await expect_owned(cluster, "n1")
        for number, request in ((0, "1"), (5, "0.4")):
            [gpuid] = [gpuid for gpuid, index in indices(cluster).items() if index == number]
            await cluster.run(f"other-{number}", request, id=gpuid, spec={"nodeName": "n1"})
        if asks == "pod":
            cluster.plain("a", "2.5", annotations={"kubeshare.nthu/memory": ""})
        else:
            cluster.share("a", gpu={"request": "2.5"})
        await expect_running(cluster, "a")
        held = sorted(
            (holder["share"], indices(cluster)[vgpu["metadata"]["name"]])
            for vgpu in cluster.server.all(VGPUS)
            for holder in vgpu["status"].get("holders", ())
            if holder["name"] == "a"
        )
        assert held == [("rest", 1), ("whole", 2), ("whole", 3)]

    run()


@scenario(n1=4)
async def test_links_that_change_count_from_the_next_decision_on(cluster: FakeCluster) -> None:
    """A bridge was plugged elsewhere; a GPU that is lost meanwhile is in no pair."""
    gpuid = await have_gpus(cluster, "a", "b", "c", "d")
    numbers = {gpuid[gpu_uuid("n1", number)]: number for number in range(4)}

    async def place(name: str) -> list[int]:
        cluster.share(name, "1", memory="16Gi", count=2)
        await expect_decided(cluster, name)
        found = sorted(numbers[each] for each in cluster.sharepod(name)["spec"]["gpu"]["ids"])
        cluster.delete(name)
        await expect_released(cluster, name)
        return found

    assert await place("before") == [0, 2]
    cluster.link("n1", gpu_0_3="NV2", gpu_1_2="NV2", gpu_0_2="PHB", gpu_1_3="PHB")
    await cluster.quiet(1)
    assert await place("changed") == [0, 3]
    fail_gpu(cluster, "n1", 3)
    await cluster.quiet(1)
    assert await place("lost") == [1, 2]


def indices(cluster: FakeCluster) -> dict[str, int]:
    """GPUID of each vGPU of node n1 → the index of its GPU."""
    known = {gpu["uuid"]: gpu["index"] for gpu in cluster.actors.devices["n1"]}
    return {
        vgpu["metadata"]["name"]: known[vgpu["spec"]["uuid"]] for vgpu in cluster.server.all(VGPUS)
    }


@scenario(n1=2)
async def test_what_waits_is_told_of_each_gpu_by_its_id(cluster: FakeCluster) -> None:
    await have_gpus(cluster, "a", "b")
    cluster.share("first", "1", memory="16Gi", count=2)
    await expect_decided(cluster, "first")
    cluster.share("second", "0.5")
    await expect_pending(cluster, "second", "n1/a: ", "n1/b: ")
