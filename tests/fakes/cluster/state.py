"""Reads the current state of a fake cluster, and describes it for failures."""

from typing import Any

from fakes.cluster.cluster import FakeCluster
from kubeshare.api.types.constants import CONDITION_POD_SCHEDULED
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPUS
from kubeshare.kube.resources import PODS
from kubeshare.simulator.control_tier.stored import being_deleted, holders

Raw = dict[str, Any]


def is_scheduled(cluster: FakeCluster, name: str) -> bool:
    """Whether the scheduler's last decision has a place for it."""
    return bool(verdict(cluster, name).get("status") == "True")


def the_pod(cluster: FakeCluster, name: str) -> Raw:
    """A pod in namespace default.

    Raises:
        AssertionError: there is none.
    """
    pod = cluster.pod(name)
    assert pod is not None, f"there is no pod {name}\n{describe(cluster, name)}"
    return pod


def is_same_pod(cluster: FakeCluster, pod: Raw) -> bool:
    """Whether a pod is still there, by its uid."""
    found = cluster.pod(pod["metadata"]["name"])
    return found is not None and found["metadata"]["uid"] == pod["metadata"]["uid"]


def plain_pods(cluster: FakeCluster) -> list[str]:
    """The names of the plain pods."""
    return [pod["metadata"]["name"] for pod in cluster.plain_pods()]


def running_plain_pods(cluster: FakeCluster) -> list[str]:
    """The plain pods that run and are not being deleted."""
    return [
        pod["metadata"]["name"]
        for pod in cluster.plain_pods()
        if pod["status"]["phase"] == "Running" and not being_deleted(pod)
    ]


def mode(cluster: FakeCluster, node: str) -> str:
    """The mode of a node's GPUs: shared or owned."""
    return str(gpunode(cluster, node).get("status", {}).get("mode", "shared"))


def gates(cluster: FakeCluster, name: str) -> list[str]:
    """The scheduling gates of a pod."""
    return [gate["name"] for gate in the_pod(cluster, name)["spec"].get("schedulingGates", [])]


def held(cluster: FakeCluster) -> list[list[str]]:
    """The holders of each vGPU, sorted by their names."""
    return sorted(cluster.vgpus().values())


def holding(cluster: FakeCluster) -> list[str]:
    """All holders of all vGPUs, sorted."""
    return sorted(name for names in cluster.vgpus().values() for name in names)


def held_gpus(cluster: FakeCluster) -> dict[str, str]:
    """The name of each holder -> the UUID of its GPU."""
    return {
        each["name"]: vgpu["spec"].get("uuid", "")
        for vgpu in cluster.server.all(VGPUS)
        for each in holders(vgpu)
    }


def vgpu_phases(cluster: FakeCluster) -> list[str]:
    """The phase of each vGPU, sorted."""
    return sorted(vgpu.get("status", {}).get("phase", "") for vgpu in cluster.server.all(VGPUS))


def gpunode(cluster: FakeCluster, node: str) -> Raw:
    """The GPUNode of a node."""
    found = cluster.server.stored(GPUNODES, node)
    assert found is not None, f"there is no GPUNode {node}"
    return found


def owned(cluster: FakeCluster, node: str) -> Raw:
    """The condition Owned of a node; empty while it has none."""
    conditions = gpunode(cluster, node).get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "Owned"), {})


def degraded(cluster: FakeCluster) -> Raw:
    """The condition Degraded of the only vGPU; empty while it has none."""
    [vgpu] = cluster.server.all(VGPUS)
    conditions = vgpu["status"].get("conditions", [])
    return next((each for each in conditions if each["type"] == "Degraded"), {})


def evicted(cluster: FakeCluster) -> list[str]:
    """The pods that the eviction API was asked to evict, in order; not dry runs."""
    return [
        each.path.name
        for each in cluster.server.requests
        if each.resource == "pods/eviction" and not each.body["deleteOptions"].get("dryRun")
    ]


def describe(cluster: FakeCluster, *names: str) -> str:
    """The objects of these names with conditions and events, and all vGPUs; for failures."""
    lines: list[str] = []
    for name in names:
        for kind in (SHAREPODS, PODS):
            found = cluster.server.stored(kind, name, "default")
            lines += [f"{kind.kind} {name}: {_state(found)}"] if found else []
        lines += [f"  event: {event}" for event in cluster.events(name)[-8:]]
    for vgpu in cluster.server.all(VGPUS):
        names_of_holders = [each["name"] for each in holders(vgpu)]
        uuid = vgpu["spec"].get("uuid", "no GPU")
        name = vgpu["metadata"]["name"]
        lines.append(f"VGPU {name} ({uuid}): {_state(vgpu)}; holders {names_of_holders}")
    lines.append(f"placeholders: {cluster.placeholders()}")
    return "\n".join(lines)


def _state(obj: Raw) -> str:
    status = obj.get("status", {})
    conditions = [
        " ".join(each.get(key, "") for key in ("type", "status", "reason", "message")).strip()
        for each in status.get("conditions", [])
    ]
    node = obj["spec"].get("nodeName", "no node")
    deleted = ", being deleted" if being_deleted(obj) else ""
    return "; ".join([f"{status.get('phase', 'no phase')}, {node}{deleted}", *conditions])


def is_sharepod(cluster: FakeCluster, name: str) -> bool:
    """Whether there is a SharePod of this name."""
    return cluster.server.stored(SHAREPODS, name, "default") is not None


def condition_of(cluster: FakeCluster, name: str, kind: str) -> Raw:
    """A condition of a SharePod, or ``CONDITION_POD_SCHEDULED`` of a plain pod, or ``{}``."""
    if kind == CONDITION_POD_SCHEDULED:
        return cluster.pod_condition(name)
    return cluster.condition(name, kind)


def verdict(cluster: FakeCluster, name: str) -> Raw:
    """The scheduler's condition of a SharePod or plain pod; empty before its first decision."""
    if is_sharepod(cluster, name):
        return cluster.condition(name, "Scheduled")
    return cluster.pod_condition(name)
