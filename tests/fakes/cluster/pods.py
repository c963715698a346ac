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
    return bool(pod["spec"].get("nodeName"))


def being_deleted(pod: Raw) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def ended(pod: Raw) -> bool:
    return pod["status"]["phase"] in ENDED


def gated(pod: Raw) -> bool:
    return bool(pod["spec"].get("schedulingGates"))


def set_conditions(pod: Raw, *conditions: Raw) -> None:
    """Sets conditions and keeps those of other types."""
    merged = {each["type"]: each for each in pod["status"].get("conditions", [])}
    merged |= {each["type"]: each for each in conditions}
    pod["status"]["conditions"] = list(merged.values())


def set_running(pod: Raw) -> None:
    """Sets the status of a pod whose containers run."""
    set_conditions(
        pod, {"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}
    )
    running = {"running": {"startedAt": wall_clock()}}
    containers = [{"name": each["name"], "state": running} for each in pod["spec"]["containers"]]
    pod["status"] |= {"phase": "Running", "podIP": POD_IP, "startTime": STARTED}
    pod["status"]["containerStatuses"] = containers


def holders(vgpu: Raw) -> list[Raw]:
    """The holders of a vGPU as stored."""
    found: list[Raw] = vgpu.get("status", {}).get("holders", [])
    return found
