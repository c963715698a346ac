"""A placeholder says whether it may be evicted: not while somebody shares its GPU."""

from expectations import expect_placeholders, expect_running
from fakes.cluster import World, scenario
from kubeshare.api.types.constants import ANNOTATION_SAFE_TO_EVICT, LABEL_IN_USE, NAMESPACE
from kubeshare.device_manager.placeholder.disruption import IDLE_SECONDS
from kubeshare.kube.resources import PODS, Raw


def placeholder(world: World) -> Raw:
    (found,) = world.server.all(PODS, NAMESPACE)
    return found


def says(world: World) -> tuple[str, str]:
    metadata = placeholder(world)["metadata"]
    return metadata["labels"][LABEL_IN_USE], metadata["annotations"][ANNOTATION_SAFE_TO_EVICT]


def changes(world: World) -> int:
    return sum(each.verb == "patch" and each.resource == "pods" for each in world.server.requests)


@scenario(n1=1)
async def test_one_made_on_demand_is_guarded_from_the_beginning_without_a_request(
    world: World,
) -> None:
    world.start()
    await world.run("a")
    assert says(world) == ("true", "false")
    world.share("b", "0.1")
    await expect_running(world, "b")
    assert changes(world) == 0


@scenario(n1=1)
async def test_a_warm_one_may_be_evicted_until_somebody_shares_it(world: World) -> None:
    world.configure(pool={"policy": "reservation", "warm": 1})
    world.start()
    await expect_placeholders(world, 1)
    assert says(world) == ("false", "true")
    await world.run("a")
    await world.until(lambda: says(world) == ("true", "false"))
    world.delete("a")
    await world.quiet(IDLE_SECONDS / 2)
    assert says(world) == ("true", "false")
    await world.until(lambda: says(world) == ("false", "true"))
    assert changes(world) == 2


@scenario(n1=1)
async def test_one_of_an_earlier_version_is_guarded_too(world: World) -> None:
    world.start()
    await world.run("a")
    await world.kill()

    def forget(pod: Raw) -> None:
        pod["metadata"].pop("annotations")
        del pod["metadata"]["labels"][LABEL_IN_USE]

    world.server.change(PODS, world.placeholders()[0], NAMESPACE, forget)
    world.start()
    await world.until(lambda: LABEL_IN_USE in placeholder(world)["metadata"]["labels"])
    assert says(world) == ("true", "false")
