"""Uninstalls KubeShare from a cluster in use; running pods keep their GPUs."""

import pytest

from expectations import (
    expect_decided,
    expect_pending,
    expect_released,
    expect_running,
    expect_vgpus,
)
from fakes.cluster import World, scenario
from kubeshare.api.types.constants import ANNOTATION_GIVEN_BACK, NAMESPACE, PLACEHOLDER_GUARD
from kubeshare.api.types.v1 import SHAREPODS, VGPUS
from kubeshare.install import manifests
from kubeshare.install import uninstall as removal
from kubeshare.kube.client.errors import ApiError
from kubeshare.kube.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    PODS,
    VALIDATING_ADMISSION_POLICIES,
    Raw,
)
from kubeshare.simulator.control import Fault, ObjectPath, run_virtual

PROGRAMS = {"kubeshare-scheduler": "scheduler", "kubeshare-device-manager": "devices"}


def install(world: World) -> list[manifests.Manifest]:
    """Installs the manifests; the programs stop with their workloads."""
    loaded = manifests.load(manifests.Options())
    for manifest in loaded:
        world.server.seed(manifests.resource_of(manifest), manifest)
    world.server.storage.after_change.append(lambda place, new: changed(world, place, new))
    return loaded


def changed(world: World, place: ObjectPath, new: Raw | None) -> None:
    """Does what Kubernetes does after the deletion of an object."""
    if new is not None:
        return
    if place.plural == "deployments":
        world.beside(world.kill(PROGRAMS[place.name]))
    if place == ObjectPath("apps", "daemonsets", NAMESPACE, "kubeshare-node-agent"):
        world.beside(world.kill(*(f"agent/{node}" for node in world.machines)))
    if place.plural == "customresourcedefinitions":
        for resource in (SHAREPODS, VGPUS):
            if place.name.startswith(resource.plural):
                for obj in world.server.all(resource):
                    metadata = obj["metadata"]
                    world.server.remove(resource, metadata["name"], metadata.get("namespace", ""))


async def uninstall(
    world: World,
    loaded: list[manifests.Manifest],
    wait: float = 0,
    said: list[str] | None = None,
) -> list[str]:
    say = (lambda _: None) if said is None else said.append
    async with world.server.client("administrator") as client:
        return await removal.uninstall(client, loaded, wait=wait, deadline=60, say=say)


async def uninstall_at_last(
    world: World, loaded: list[manifests.Manifest], wait: float = 0
) -> list[str]:
    """Repeats an interrupted uninstall."""
    try:
        return await uninstall(world, loaded, wait)
    except ApiError:
        return await uninstall(world, loaded, wait)


def nothing_is_left(world: World) -> bool:
    kinds = world.server.all(CUSTOM_RESOURCE_DEFINITIONS)
    return not (kinds or world.vgpus() or world.placeholders() or world.server.all(DAEMON_SETS))


def guarded(world: World, placeholder: str) -> bool:
    """Whether the policy protects this placeholder."""
    policy = world.server.stored(VALIDATING_ADMISSION_POLICIES, PLACEHOLDER_GUARD)
    pod = world.pod(placeholder, NAMESPACE)
    assert pod is not None
    given_back = pod["metadata"].get("annotations", {}).get(ANNOTATION_GIVEN_BACK)
    return policy is not None and given_back is None


def pods(world: World) -> list[Raw]:
    return world.server.all(PODS, "default")


@scenario(n1=1, agents=True)
async def test_pods_run_on_and_keep_their_gpu_until_they_end(world: World) -> None:
    loaded = install(world)
    world.start()
    await world.run("a")

    assert await uninstall(world, loaded, wait=20) == ["default/a on n1"]
    await world.quiet(300)
    assert world.machines["n1"].containers
    assert world.running("a")
    assert world.shares_gpu("a")
    (placeholder,) = world.placeholders()
    assert not world.server.all(SHAREPODS)
    assert guarded(world, placeholder)

    (pod,) = pods(world)
    world.actors.delete(pod)
    assert await uninstall(world, loaded, wait=60) == []
    assert nothing_is_left(world)


@pytest.mark.slow
@scenario(n1=2, agents=True)
async def test_it_is_taken_off_while_sharepods_come(world: World) -> None:
    loaded = install(world)
    world.start()
    await world.run("a", "0.7")
    world.share("b", "0.7")
    await expect_vgpus(world, 1 + 1)
    world.share("c", "0.3")

    running = await uninstall(world, loaded)

    assert "default/a on n1" in running
    assert world.running("a")
    assert not world.server.all(SHAREPODS)
    for pod in pods(world):
        assert not pod["metadata"]["ownerReferences"]
        world.actors.delete(pod)
    assert await uninstall(world, loaded, wait=60) == []
    assert nothing_is_left(world)


@scenario(n1=1)
async def test_a_cluster_without_kubeshare_stays_as_it_is(world: World) -> None:
    loaded = manifests.load(manifests.Options())
    world.native_pod("native")
    assert await uninstall(world, loaded) == []
    assert world.pod("native")


@pytest.mark.slow
@scenario(n1=1, agents=True)
async def test_what_does_not_go_is_named(world: World) -> None:
    loaded = install(world)
    world.reserve("n1", "kept")
    metadata = {"name": "kubeshare-vgpu-kept", "namespace": NAMESPACE, "finalizers": ["a/b"]}
    pod = {"metadata": metadata, "spec": {"containers": []}, "status": {"phase": "Pending"}}
    world.server.seed(PODS, pod)
    with pytest.raises(removal.RemovalError, match="vGPUs kept"):
        await uninstall(world, loaded)


def cut_off(fault: Fault, write: int) -> bool:
    """Uninstalls with a fault at one write, and again; returns whether there is that write."""

    async def told(world: World) -> None:
        loaded = install(world)
        world.start()
        await world.run("a")
        world.share("b", "0.9")
        await expect_decided(world, "b")
        before = world.server.writes
        world.server.inject_at_write(before + write, fault)
        assert await uninstall_at_last(world, loaded) == ["default/a on n1"]
        assert world.machines["n1"].containers
        await world.quiet(60)
        assert world.running("a")
        assert not world.server.all(SHAREPODS)
        (pod,) = pods(world)
        world.actors.delete(pod)
        assert await uninstall_at_last(world, loaded, wait=60) == []
        assert nothing_is_left(world)
        reached.append(world.server.writes - before >= write)

    reached: list[bool] = []
    world = World(n1=1)
    world.agents = True
    run_virtual(world.play(told))
    return reached[0]


@pytest.mark.slow
def test_it_may_be_cut_off_at_any_write_and_begun_again() -> None:
    """Every second write fails, before it takes effect or before its response."""
    write = 1
    while cut_off(Fault.reset(after=write % 4 == 1), write):
        write += 2
    assert write > len(PROGRAMS)


@pytest.mark.slow
@scenario(n1=1, agents=True)
async def test_a_plain_pod_runs_on_and_one_that_waits_is_named(world: World) -> None:
    loaded, said = install(world), list[str]()
    world.start()
    world.plain("a", "0.7")
    await expect_running(world, "a")
    world.plain("b", "0.7")
    await expect_pending(world, "b")

    assert await uninstall(world, loaded, wait=20, said=said) == ["default/a on n1"]
    assert (
        "1 pods wait behind the gate kubeshare.nthu/gpu, which is not removed any more" in said[1]
    )
    assert said[1].endswith("(default/b)")
    await world.quiet(100)
    assert world.running("a")
    world.end("a")
    await expect_released(world)
    assert await uninstall(world, loaded, wait=20) == []
    assert nothing_is_left(world)
