"""SharePods placed by the links between GPUs that node agents report."""

from expectations import expect_decided, expect_pending, expect_running, expect_shared_gpu
from fakes.cluster import World, gpu_uuid, scenario

PAIRED = {"gpu_0_2": "NV2", "gpu_1_3": "NV2", "gpu_0_1": "PHB", "gpu_2_3": "PHB"}


async def have_gpus(world: World, *gpuids: str) -> dict[str, str]:
    """Reserves all GPUs of a node as idle vGPUs; returns UUID -> GPUID."""
    world.policy = "topology"
    world.link("n1", **PAIRED)
    world.reserve("n1", *gpuids)
    world.start()
    await world.until(
        lambda: all(world.vgpu(gpuid)["status"].get("phase") == "Idle" for gpuid in gpuids)
    )
    return {world.vgpu(gpuid)["spec"]["uuid"]: gpuid for gpuid in gpuids}


@scenario(n1=4)
async def test_a_demand_for_two_whole_gpus_gets_a_pair_that_is_joined_by_nvlink(
    world: World,
) -> None:
    gpuid = await have_gpus(world, "a", "b", "c", "d")
    world.share("first", "1", memory="16Gi", count=2)
    await expect_decided(world, "first")
    pairs = [sorted(gpuid[gpu_uuid("n1", number)] for number in pair) for pair in ((0, 2), (1, 3))]
    chosen = world.sharepod("first")["spec"]["gpu"]["ids"]
    assert chosen in pairs
    world.share("second", "1", memory="16Gi", count=2)
    await expect_decided(world, "second")
    pairs.remove(chosen)
    assert world.sharepod("second")["spec"]["gpu"]["ids"] == pairs[0]
    await expect_running(world, "first", "second")


@scenario(n1=4)
async def test_a_fraction_goes_to_a_gpu_that_is_in_use_and_a_pair_is_kept_whole(
    world: World,
) -> None:
    gpuid = await have_gpus(world, "a", "b", "c", "d")
    world.share("first", "0.5")
    await expect_decided(world, "first")
    world.share("second", "0.3")
    await expect_shared_gpu(world, "first", "second")
    used = world.sharepod("first")["spec"]["gpu"]["id"]
    world.share("third", "1", memory="16Gi", count=2)
    await expect_decided(world, "third")
    pair = sorted(
        gpuid[gpu_uuid("n1", number)]
        for number in ((0, 2), (1, 3))[used in (gpuid[gpu_uuid("n1", 0)], gpuid[gpu_uuid("n1", 2)])]
    )
    assert world.sharepod("third")["spec"]["gpu"]["ids"] == pair


@scenario(n1=2)
async def test_what_waits_is_told_of_each_gpu_by_its_id(world: World) -> None:
    await have_gpus(world, "a", "b")
    world.share("first", "1", memory="16Gi", count=2)
    await expect_decided(world, "first")
    world.share("second", "0.5")
    await expect_pending(world, "second", "n1/a: ", "n1/b: ")
