"""Reads the current state of a fake cluster, and describes it for failures."""

from typing import Any

from fakes.cluster.pods import being_deleted, holders
from fakes.cluster.world import World
from kubeshare.api.types.constants import CONDITION_POD_SCHEDULED
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPUS
from kubeshare.kube.resources import PODS

Raw = dict[str, Any]


def is_scheduled(world: World, name: str) -> bool:
    """Whether the scheduler's last decision has a place for it."""
    return bool(verdict(world, name).get("status") == "True")


def the_pod(world: World, name: str) -> Raw:
    """A pod in namespace default.

    Raises:
        AssertionError: there is none.
    """
    pod = world.pod(name)
    assert pod is not None, f"there is no pod {name}\n{describe(world, name)}"
    return pod


def is_same_pod(world: World, pod: Raw) -> bool:
    """Whether a pod is still there, by its uid."""
    found = world.pod(pod["metadata"]["name"])
    return found is not None and found["metadata"]["uid"] == pod["metadata"]["uid"]


def plain_pods(world: World) -> list[str]:
    """The names of the plain pods."""
    return [pod["metadata"]["name"] for pod in world.plain_pods()]


def running_plain_pods(world: World) -> list[str]:
    """The plain pods that run and are not being deleted."""
    return [
        pod["metadata"]["name"]
        for pod in world.plain_pods()
        if pod["status"]["phase"] == "Running" and not being_deleted(pod)
    ]


def gates(world: World, name: str) -> list[str]:
    """The scheduling gates of a pod."""
    return [gate["name"] for gate in the_pod(world, name)["spec"].get("schedulingGates", [])]


def held(world: World) -> list[list[str]]:
    """The holders of each vGPU, sorted by their names."""
    return sorted(world.vgpus().values())


def holding(world: World) -> list[str]:
    """All holders of all vGPUs, sorted."""
    return sorted(name for names in world.vgpus().values() for name in names)


def vgpu_phases(world: World) -> list[str]:
    """The phase of each vGPU, sorted."""
    return sorted(vgpu.get("status", {}).get("phase", "") for vgpu in world.server.all(VGPUS))


def gpunode(world: World, node: str) -> Raw:
    """The GPUNode of a node."""
    found = world.server.stored(GPUNODES, node)
    assert found is not None, f"there is no GPUNode {node}"
    return found


def owned(world: World, node: str) -> Raw:
    """The condition Owned of a node; empty while it has none."""
    conditions = gpunode(world, node).get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "Owned"), {})


def degraded(world: World) -> Raw:
    """The condition Degraded of the only vGPU; empty while it has none."""
    [vgpu] = world.server.all(VGPUS)
    conditions = vgpu["status"].get("conditions", [])
    return next((each for each in conditions if each["type"] == "Degraded"), {})


def evicted(world: World) -> list[str]:
    """The pods that the eviction API was asked to evict, in order; not dry runs."""
    return [
        each.path.name
        for each in world.server.requests
        if each.resource == "pods/eviction" and not each.body["deleteOptions"].get("dryRun")
    ]


def describe(world: World, *names: str) -> str:
    """The objects of these names with conditions and events, and all vGPUs; for failures."""
    lines: list[str] = []
    for name in names:
        for kind in (SHAREPODS, PODS):
            found = world.server.stored(kind, name, "default")
            lines += [f"{kind.kind} {name}: {_state(found)}"] if found else []
        lines += [f"  event: {event}" for event in world.events(name)[-8:]]
    for vgpu in world.server.all(VGPUS):
        names_of_holders = [each["name"] for each in holders(vgpu)]
        uuid = vgpu["spec"].get("uuid", "no GPU")
        name = vgpu["metadata"]["name"]
        lines.append(f"VGPU {name} ({uuid}): {_state(vgpu)}; holders {names_of_holders}")
    lines.append(f"placeholders: {world.placeholders()}")
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


def is_sharepod(world: World, name: str) -> bool:
    """Whether there is a SharePod of this name."""
    return world.server.stored(SHAREPODS, name, "default") is not None


def condition_of(world: World, name: str, kind: str) -> Raw:
    """A condition of a SharePod, or ``CONDITION_POD_SCHEDULED`` of a plain pod, or ``{}``."""
    if kind == CONDITION_POD_SCHEDULED:
        return world.pod_condition(name)
    return world.condition(name, kind)


def verdict(world: World, name: str) -> Raw:
    """The scheduler's condition of a SharePod or plain pod; empty before its first decision."""
    if is_sharepod(world, name):
        return world.condition(name, "Scheduled")
    return world.pod_condition(name)
