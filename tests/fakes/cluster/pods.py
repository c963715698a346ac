"""What can be said of a pod, or of a vGPU, as stored."""

from typing import Any

from kubeshare.simulator.control.storage import wall_clock

Raw = dict[str, Any]

ENDED = ("Succeeded", "Failed")
POD_IP = "10.0.0.7"
STARTED = "2026-01-01T00:00:30Z"


def asks(pod: Raw, resource: str) -> int:
    """How many of an extended resource a pod asks for."""
    limits = [each.get("resources", {}).get("limits", {}) for each in pod["spec"]["containers"]]
    return sum(int(limit.get(resource, 0)) for limit in limits)


def bound(pod: Raw) -> bool:
    return bool(pod["spec"].get("nodeName"))


def being_deleted(pod: Raw) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def ended(pod: Raw) -> bool:
    return pod["status"]["phase"] in ENDED


def gated(pod: Raw) -> bool:
    return bool(pod["spec"].get("schedulingGates"))


def tell(pod: Raw, *conditions: Raw) -> None:
    """Set conditions; those of other types stay."""
    told = {each["type"]: each for each in pod["status"].get("conditions", [])}
    told |= {each["type"]: each for each in conditions}
    pod["status"]["conditions"] = list(told.values())


def run(pod: Raw) -> None:
    """Say in the status that its containers run."""
    tell(pod, {"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"})
    running = {"running": {"startedAt": wall_clock()}}
    containers = [{"name": each["name"], "state": running} for each in pod["spec"]["containers"]]
    pod["status"] |= {"phase": "Running", "podIP": POD_IP, "startTime": STARTED}
    pod["status"]["containerStatuses"] = containers


def holders(vgpu: Raw) -> list[Raw]:
    """The holders of a vGPU as stored."""
    found: list[Raw] = vgpu.get("status", {}).get("holders", [])
    return found
