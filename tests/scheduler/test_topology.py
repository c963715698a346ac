"""SharePods placed by the links between GPUs that node agents report."""

from expectations.pods import expect_running
from expectations.scheduling import expect_decided, expect_pending
from expectations.vgpus import expect_shared_gpu
from fakes.cluster import FakeCluster, gpu_uuid, scenario

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


@scenario(n1=2)
async def test_what_waits_is_told_of_each_gpu_by_its_id(cluster: FakeCluster) -> None:
    await have_gpus(cluster, "a", "b")
    cluster.share("first", "1", memory="16Gi", count=2)
    await expect_decided(cluster, "first")
    cluster.share("second", "0.5")
    await expect_pending(cluster, "second", "n1/a: ", "n1/b: ")
