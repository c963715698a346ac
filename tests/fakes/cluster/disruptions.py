"""Disrupts a cluster: nodes, namespaces, the configuration."""

from fakes import manifests
from fakes.cluster.world import World
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.v1 import SHAREPODS, VGPUS
from kubeshare.kube.resources import CONFIG_MAPS, NODES, PODS, Raw

NAMESPACE_SECONDS = 300.0
"""Virtual time that the deletion of a namespace may take."""


async def replace_node(world: World, name: str, gpus: int) -> None:
    """Replaces a lost machine by another one of the same name."""
    world.lose_node(name)
    await world.quiet(1.0)
    world.add_node(name, gpus, first=8)
    if name in world.machines:
        world.invariants.violations += world.machines[name].violations()
        world.add_machine(name)
        world.start(f"agent/{name}")


def recreate_node(world: World, name: str) -> None:
    """Deletes a Node object and creates it again; its machine goes on."""
    node = world.server.stored(NODES, name)
    assert node is not None
    world.server.remove(NODES, name)
    metadata = {"name": name, "labels": node["metadata"]["labels"]}
    world.server.seed(NODES, node | {"metadata": metadata})


def cordon(world: World, name: str, *, cordoned: bool = True) -> None:
    """Cordons a node, or uncordons it."""
    spec = {"unschedulable": cordoned}
    world.server.change(NODES, name, "", lambda obj: obj["spec"].update(spec))
    world.actors.reconcile()


def stop_plugin(world: World, name: str) -> None:
    """Stops the device plugin of a node: its kubelet offers no GPUs any more."""
    world.offer(name, 0)


def label_node(world: World, name: str, **labels: str | None) -> None:
    """Labels a node ``kubeshare.nthu/KEY=VALUE``; None removes the label."""

    def change(node: Raw) -> None:
        known = node["metadata"].setdefault("labels", {})
        for key, value in labels.items():
            known.pop(f"kubeshare.nthu/{key}", None)
            if value is not None:
                known[f"kubeshare.nthu/{key}"] = value

    world.server.change(NODES, name, "", change)


def own(world: World, *names: str) -> None:
    """Stops the device plugins of nodes, and asks KubeShare to own their GPUs."""
    for name in names:
        stop_plugin(world, name)
        label_node(world, name, gpus="owned")


async def delete_namespace(world: World) -> None:
    """Deletes namespace ``default`` with all in it; it can be used again afterwards."""
    world.server.terminating.add("default")
    await world.quiet(0.1)
    for pod in world.server.all(PODS, "default"):
        world.actors.delete(pod)
    for sharepod in world.server.all(SHAREPODS):
        world.delete(sharepod["metadata"]["name"])

    def gone() -> bool:
        return not (world.server.all(PODS, "default") or world.server.all(SHAREPODS))

    await world.until(gone, NAMESPACE_SECONDS)
    world.server.terminating.clear()


def write_invalid_configuration(world: World) -> None:
    """Writes a configuration that cannot be parsed."""
    broken = {"config.yaml": "pool: [reservation"}
    world.server.change(CONFIG_MAPS, "kubeshare", NAMESPACE, lambda obj: obj.update(data=broken))


def seed_held(world: World, uid: str) -> None:
    """Adds a vGPU with a holder for SharePod ``a`` of this uid; its pod was never bound."""
    vgpu = manifests.vgpu("x", "n1", manifests.holder(uid), phase="Creating", pool="onDemand")
    world.server.seed(VGPUS, vgpu)
