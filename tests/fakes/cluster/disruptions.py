"""Disrupts a cluster: nodes, namespaces, the configuration."""

from fakes import manifests
from fakes.cluster.claims import offer_by_claims, report_driver, report_no_driver
from fakes.cluster.cluster import FakeCluster
from kubeshare.api.types.constants import NAMESPACE, NVIDIA_DRA_DRIVER
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPUS
from kubeshare.kube.resources import CONFIG_MAPS, NODES, PODS, RESOURCE_SLICES, Raw

NAMESPACE_SECONDS = 300.0
"""Virtual time that the deletion of a namespace may take."""


async def replace_node(cluster: FakeCluster, name: str, gpus: int) -> None:
    """Replaces a lost machine by another one of the same name."""
    cluster.lose_node(name)
    await cluster.quiet(1.0)
    cluster.add_node(name, gpus, first=8)
    if name in cluster.machines:
        cluster.invariants.violations += cluster.machines[name].violations()
        cluster.add_machine(name)
        cluster.start(f"agent/{name}")


def recreate_node(cluster: FakeCluster, name: str) -> None:
    """Deletes a Node object and creates it again; its machine goes on."""
    node = cluster.server.stored(NODES, name)
    assert node is not None
    cluster.server.remove(NODES, name)
    metadata = {"name": name, "labels": node["metadata"]["labels"]}
    cluster.server.seed(NODES, node | {"metadata": metadata})


def cordon(cluster: FakeCluster, name: str, *, cordoned: bool = True) -> None:
    """Cordons a node, or uncordons it."""
    spec = {"unschedulable": cordoned}
    cluster.server.change(NODES, name, "", lambda obj: obj["spec"].update(spec))
    cluster.actors.reconcile()


def stop_plugin(cluster: FakeCluster, name: str) -> None:
    """Stops the device plugin of a node: its kubelet offers no GPUs any more."""
    cluster.offer(name, 0)


def label_node(cluster: FakeCluster, name: str, **labels: str | None) -> None:
    """Labels a node ``kubeshare.nthu/KEY=VALUE``; None removes the label."""

    def change(node: Raw) -> None:
        known = node["metadata"].setdefault("labels", {})
        for key, value in labels.items():
            known.pop(f"kubeshare.nthu/{key}", None)
            if value is not None:
                known[f"kubeshare.nthu/{key}"] = value

    cluster.server.change(NODES, name, "", change)


def serve_by_claims(cluster: FakeCluster, name: str) -> list[str]:
    """NVIDIA's DRA driver offers the GPUs of a node instead of a plugin; returns their UUIDs."""
    devices = cluster.actors.devices[name]
    cluster.actors.by_claims[name] = len(devices)
    offer_by_claims(cluster.server, name, devices)
    if name not in cluster.machines:
        cluster.server.change(GPUNODES, name, "", report_driver)
    return [device["uuid"] for device in devices]


def stop_dra_driver(cluster: FakeCluster, name: str) -> None:
    """Stops NVIDIA's DRA driver on a node: its ResourceSlice is gone."""
    del cluster.actors.by_claims[name]
    cluster.server.remove(RESOURCE_SLICES, f"{name}-{NVIDIA_DRA_DRIVER}")
    if name not in cluster.machines:
        cluster.server.change(GPUNODES, name, "", report_no_driver)


def fail_gpu(cluster: FakeCluster, node: str, index: int) -> None:
    """Lets one GPU of a node fail, as its agent reports."""
    failed = {"healthy": False, "message": "XID 79"}
    cluster.server.change(
        GPUNODES, node, "", lambda found: found["spec"]["devices"][index].update(failed)
    )


def own(cluster: FakeCluster, *names: str) -> None:
    """Stops the device plugins of nodes, and asks KubeShare to own their GPUs."""
    for name in names:
        stop_plugin(cluster, name)
        label_node(cluster, name, gpus="owned")


async def delete_namespace(cluster: FakeCluster) -> None:
    """Deletes namespace ``default`` with all in it; it can be used again afterwards."""
    cluster.server.terminating.add("default")
    await cluster.quiet(0.1)
    for pod in cluster.server.all(PODS, "default"):
        cluster.actors.delete(pod)
    for sharepod in cluster.server.all(SHAREPODS):
        cluster.delete(sharepod["metadata"]["name"])

    def gone() -> bool:
        return not (cluster.server.all(PODS, "default") or cluster.server.all(SHAREPODS))

    await cluster.until(gone, NAMESPACE_SECONDS)
    cluster.server.terminating.clear()


def write_invalid_configuration(cluster: FakeCluster) -> None:
    """Writes a configuration that cannot be parsed."""
    broken = {"config.yaml": "pool: [reservation"}
    cluster.server.change(CONFIG_MAPS, "kubeshare", NAMESPACE, lambda obj: obj.update(data=broken))


def seed_held(cluster: FakeCluster, uid: str) -> None:
    """Adds a vGPU with a holder for SharePod ``a`` of this uid; its pod was never bound."""
    vgpu = manifests.vgpu("x", "n1", manifests.holder(uid), phase="Creating", pool="onDemand")
    cluster.server.seed(VGPUS, vgpu)


def report_unrecorded(cluster: FakeCluster, *pods: str) -> None:
    """Sets the pods without a holder on the first GPU of n1, as its agent does."""
    named = {"unrecordedPods": list(pods)}
    cluster.server.change(GPUNODES, "n1", "", lambda obj: obj["spec"]["devices"][0].update(named))
