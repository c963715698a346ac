"""The life of SharePods and vGPUs: both programs, with all that they work with."""

from cluster_fake import World, expect_scheduled, in_world


def test_three_sharepods_share_one_gpu_and_it_is_given_back_after_the_last() -> None:
    async def story(world: World) -> None:
        world.start()
        for name, request in (("a", "0.3"), ("b", "0.4"), ("c", "0.3")):
            world.share(name, request)
        await world.until(lambda: world.running("a", "b", "c"))
        assert world.shares_gpu("a", "b", "c")
        world.native_pod("whole")
        for name in ("a", "b"):
            world.delete(name)
        await world.until(lambda: world.shares_gpu("c"))
        assert not world.running("whole")
        world.delete("c")
        await world.until(lambda: world.running("whole"))
        assert not world.vgpus()
        assert not world.placeholders()

    in_world(story, n1=1)


def test_the_status_tells_phase_gpu_and_node() -> None:
    async def story(world: World) -> None:
        world.start()
        world.share("a")
        await world.until(lambda: world.condition("a", "Ready").get("status") == "True")
        status = world.sharepod("a")["status"]
        placed = expect_scheduled(world, "a")
        assert status["phase"] == "Running"
        assert status["nodeName"] == "n1"
        assert status["gpus"] == [{"id": placed.gpuid, "uuid": "GPU-n1-0"}]
        assert world.condition("a", "Allocated")["status"] == "True"

    in_world(story, n1=1)


def test_a_sharepod_on_a_warm_vgpu_costs_six_writes_and_no_read() -> None:
    async def story(world: World) -> None:
        world.start()
        world.share("first")
        await world.until(lambda: world.condition("first", "Ready").get("status") == "True")
        await world.quiet()
        before = len(world.server.requests)
        world.share("second")
        await world.until(lambda: world.condition("second", "Ready").get("status") == "True")
        await world.quiet()
        asked = [each for each in world.server.requests[before:] if each.resource != "events"]
        assert [f"{each.verb} {each.resource}" for each in asked if each.verb != "watch"] == [
            "patch vgpus/status",
            "patch sharepods",
            "patch sharepods/status",
            "create pods",
            "patch vgpus/status",
            "patch sharepods/status",
        ]

    in_world(story, n1=1)
