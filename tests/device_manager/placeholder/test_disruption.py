"""A placeholder must not be evicted while pods share its GPU."""

from expectations import expect_activated, expect_phases, expect_placeholders, expect_running
from fakes import manifests
from fakes.cluster import World, scenario
from kubeshare.api.types.constants import ANNOTATION_SAFE_TO_EVICT, LABEL_IN_USE, NAMESPACE
from kubeshare.api.types.v1 import VGPUS
from kubeshare.device_manager.placeholder.disruption import IDLE_SECONDS
from kubeshare.kube.resources import PODS, Raw
from kubeshare.simulator.control import Fault, ObjectPath


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
async def test_one_that_is_being_deleted_is_left_as_it_is(world: World) -> None:
    world.configure(pool={"policy": "reservation", "warm": 1})
    world.start("devices")
    await expect_activated(world)
    await expect_phases(world, "Idle")
    world.actors.removes = False
    terminating = {"deletionTimestamp": "2026-01-01T00:01:00Z"}
    name = placeholder(world)["metadata"]["name"]
    world.server.change(PODS, name, NAMESPACE, lambda pod: pod["metadata"].update(terminating))
    [gpuid] = world.vgpus()
    made = world.share("a", id=gpuid, attempt=1, spec={"nodeName": "n1"})
    holder = manifests.holder(made["metadata"]["uid"], "a")
    world.server.change(VGPUS, gpuid, "", lambda vgpu: vgpu["status"].update(holders=[holder]))
    await world.quiet(1)
    assert world.vgpus() == {gpuid: ["a"]}
    assert "deletionTimestamp" in placeholder(world)["metadata"]
    assert says(world) == ("false", "true")
    assert changes(world) == 0


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


@scenario(n1=1)
async def test_a_label_is_never_written_to_a_later_placeholder_of_the_same_name(
    world: World,
) -> None:
    world.configure(pool={"policy": "reservation", "warm": 1})
    world.start()
    [name] = await expect_placeholders(world, 1)
    await expect_phases(world, "Idle")
    later: list[str] = []
    labels: list[str] = []

    def replace() -> None:
        pod = world.server.stored(PODS, name, NAMESPACE)
        assert pod is not None
        world.server.remove(PODS, name, NAMESPACE)
        for field in ("uid", "resourceVersion"):
            del pod["metadata"][field]
        made = world.server.seed(PODS, pod | {"status": {"phase": "Failed"}})
        later.append(made["metadata"]["uid"])

    def note(place: ObjectPath, new: Raw | None) -> None:
        if new is not None and place.name == name and new["metadata"]["uid"] in later:
            labels.append(new["metadata"]["labels"][LABEL_IN_USE])

    world.server.inject(Fault.preceded_by(replace), verb="patch", resource="pods", name=name)
    world.server.storage.after_change.append(note)
    world.share("a")
    await world.until(lambda: later)
    await world.quiet(5)
    assert "true" not in labels
