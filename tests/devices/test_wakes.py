"""Who is woken by what: all who would do something, and not many more."""

from cluster_fake import World, story

SHARED = 8
"""SharePods on one GPU."""


@story(n1=1)
async def test_what_starts_on_a_gpu_wakes_none_of_those_that_share_it_already(
    world: World,
) -> None:
    world.start()
    await world.run("first", "0.1")
    await world.quiet()
    before = {name: world.looks(name) for name in world.programs}
    names = [f"next-{number}" for number in range(SHARED)]
    for name in names:
        await world.run(name, "0.1")
    await world.until(lambda: all(map(world.ready, names)))
    await world.quiet()
    looks = {name: world.looks(name) - before[name] for name in world.programs}
    assert looks["scheduler"]["scheduler"] <= 2 * SHARED
    # Decided, bound, running; and the SharePod before it is decided about.
    assert looks["devices"]["sharepods"] <= 4 * SHARED
    # Each new part is looked at: whoever takes it may be gone by then.
    assert looks["devices"]["vgpus"] <= SHARED
    assert not looks["devices"]["pods"]
    assert not looks["devices"]["pools"]


@story(n1=1)
async def test_those_that_wait_for_a_new_vgpu_are_woken_when_it_is_there(world: World) -> None:
    world.start()
    names = [f"share-{number}" for number in range(SHARED)]
    for name in names:
        world.share(name, "0.1")
    await world.until(lambda: all(map(world.ready, names)))
    await world.quiet()
    looks = world.looks("devices")
    # Before it is decided, decided, the GPU is there, bound, running.
    assert looks["sharepods"] <= 6 * SHARED
    assert looks["vgpus"] <= 3 * SHARED
    assert not looks["pods"]
