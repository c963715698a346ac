"""Says what is missing until an installed object is in use."""

from collections.abc import Mapping
from typing import Any, Final

WORKLOADS: Final = frozenset({"Deployment", "DaemonSet"})
"""The kinds of KubeShare's programs."""


def established(crd: Mapping[str, Any]) -> str:
    """What is still missing; empty when the API server serves the kind."""
    conditions = crd.get("status", {}).get("conditions", [])
    if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
        return ""
    return "the API server does not serve it yet"


def rolled_out(workload: Mapping[str, Any]) -> str:
    """What is still missing; empty when all replicas of this generation are ready."""
    status = workload.get("status", {})
    if status.get("observedGeneration", 0) < workload["metadata"]["generation"]:
        return "its controller has not seen it yet"
    if workload["kind"] == "DaemonSet":
        wanted = status.get("desiredNumberScheduled", 0)
        updated, ready = status.get("updatedNumberScheduled", 0), status.get("numberReady", 0)
    else:
        wanted = workload["spec"].get("replicas", 1)
        updated, ready = status.get("updatedReplicas", 0), status.get("readyReplicas", 0)
    if updated < wanted or ready < wanted:
        return f"{updated} of {wanted} pods are new, {ready} ready"
    return ""
