"""Reads and changes stored pods and vGPUs."""

from typing import Any

from kubeshare.simulator.control.storage import wall_clock

Raw = dict[str, Any]

ENDED = ("Succeeded", "Failed")
POD_IP = "10.0.0.7"
STARTED = "2026-01-01T00:00:30Z"


def requested(pod: Raw, resource: str) -> int:
    """The amount of an extended resource that a pod requests."""
    limits = [each.get("resources", {}).get("limits", {}) for each in pod["spec"]["containers"]]
    return sum(int(limit.get(resource, 0)) for limit in limits)


def bound(pod: Raw) -> bool:
    """Whether a pod is bound to a node."""
    return bool(pod["spec"].get("nodeName"))


def being_deleted(pod: Raw) -> bool:
    """Whether a pod's deletion has begun."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def ended(pod: Raw) -> bool:
    """Whether all containers of a pod have ended."""
    return pod["status"]["phase"] in ENDED


def gated(pod: Raw) -> bool:
    """Whether a scheduling gate holds a pod back."""
    return bool(pod["spec"].get("schedulingGates"))


def wanted_nodes(pod: Raw, nodes: list[str]) -> list[str]:
    """Those of the nodes, by name, that the required node affinity of a pod admits."""
    affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in required.get("nodeSelectorTerms", ()):
        for field in term.get("matchFields", ()):
            inside = field["operator"] == "In"
            nodes = [name for name in nodes if (name in field["values"]) is inside]
    return nodes


def set_conditions(pod: Raw, *conditions: Raw) -> None:
    """Sets conditions and keeps those of other types."""
    merged = {each["type"]: each for each in pod["status"].get("conditions", [])}
    merged |= {each["type"]: each for each in conditions}
    pod["status"]["conditions"] = list(merged.values())


def bind(node: str, pod: Raw) -> None:
    """Sets node and condition in one write, as the API server does."""
    pod["spec"]["nodeName"] = node
    set_conditions(pod, {"type": "PodScheduled", "status": "True"})


def set_unschedulable(message: str, pod: Raw) -> None:
    """Sets the condition of a pod that fits no node."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    set_conditions(pod, condition | {"message": message})


def set_running(pod: Raw) -> None:
    """Sets the status of a pod whose containers run."""
    set_conditions(
        pod, {"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}
    )
    running = {"running": {"startedAt": wall_clock()}}
    containers = [{"name": each["name"], "state": running} for each in pod["spec"]["containers"]]
    pod["status"] |= {"phase": "Running", "podIP": POD_IP, "startTime": STARTED}
    pod["status"]["containerStatuses"] = containers


def owners(obj: Raw) -> list[str]:
    """The uids of the owners of an object."""
    return [owner["uid"] for owner in obj["metadata"].get("ownerReferences", ())]


def holders(vgpu: Raw) -> list[Raw]:
    """The holders of a vGPU as stored."""
    found: list[Raw] = vgpu.get("status", {}).get("holders", [])
    return found


def without_holders_of(gone: set[str], vgpu: Raw) -> Raw | None:
    """The status of a vGPU that its node agent writes after pods have stopped.

    Args:
        gone: the uids of the pods.
        vgpu: as stored.

    Returns:
        the fields that change; None if no holder is of these pods.
    """
    kept = [each for each in holders(vgpu) if each["podUid"] not in gone]
    if len(kept) == len(holders(vgpu)):
        return None
    idle = not kept and vgpu["status"].get("phase") == "Active"
    return {"holders": kept} | ({"phase": "Idle"} if idle else {})


def overcommitted(vgpu: Raw, _before: Raw | None = None) -> str | None:
    """Why the rules of the CRD refuse a vGPU; None if they accept it."""
    found = holders(vgpu)
    if sum(each["requestMicros"] for each in found) > 1_000_000:
        return "the holders' requests would be more than one GPU"
    if sum(each["memoryBytes"] for each in found) > vgpu["spec"]["memoryBytes"]:
        return "the holders' memory would be more than the GPU has"
    if found and vgpu.get("status", {}).get("phase") == "Deleting":
        return "a vGPU that is being given back takes no holders"
    return None
