"""Describes the use of GPUs by Gaia's pods.

Pure. The fields are those of gpu-manager's display API. A pod is listed while it has a grant.
``gpu`` of a device is a percentage of the time of that GPU, ``gpu`` of a specification a fraction
of a GPU; memory is in MiB.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from kubeshare.api.types.v1 import GPUDevice
from kubeshare.core.units import MI, parse_count
from kubeshare.dialects.vcuda import BLOCK, CORE, CORES, MEMORY
from kubeshare.node.escapes.detection import Sample
from kubeshare.node.node_view import SUBMITTER, NodeContainerSpec, NodePod

CLUSTER: Final = "clusterName"
"""The annotation of a pod that names its cluster, for people."""
NAME_LENGTH: Final = 253
"""Characters that are shown of what an author wrote for people."""

Entry: TypeAlias = Mapping[str, Any]
"""What the token daemon says of a grant on one GPU, see ``kubeshare.tokens.snapshot``."""


def usage(
    pods: Iterable[NodePod],
    sample: Sample,
    entries: Iterable[Entry],
    gpus: Mapping[str, GPUDevice],
    addresses: Mapping[str, str],
) -> dict[str, Any]:
    """Describe the use.

    Args:
        pods: of the node.
        sample: the processes on its GPUs, and its grants.
        entries: of the token daemon.
        gpus: by UUID.
        addresses: UUID → PCI address.
    """
    grants: dict[str, set[str]] = defaultdict(set)
    for grant in sample.grants:
        if grant.pod is not None:
            grants[grant.pod.uid].add(grant.claim)
    by_grant: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_grant[entry["claim"]].append(entry)
    pids = _pids(sample)
    found = {}
    for pod in pods:
        uid = pod.metadata.uid
        asking = [each for each in pod.spec.containers if _amount(each, CORE)]
        if not asking or uid not in grants:
            continue
        stat = {}
        for container in asking:
            used = [
                _device(entry, gpus, addresses, pids.get((uid, container.name, entry["gpu"]), []))
                for claim in sorted(grants[uid])
                for entry in by_grant[claim]
                if entry["shareName"] in ("", container.name)
            ]
            if used:
                stat[container.name] = {"dev": sorted(used, key=_number)}
        found[uid] = {
            "stat": stat,
            "project": pod.metadata.namespace,
            # Its author's texts, on a page that anybody may read.
            "user": _submitter(pod)[:NAME_LENGTH],
            "cluster": pod.metadata.annotations.get(CLUSTER, "")[:NAME_LENGTH],
            "spec": {container.name: _spec(container) for container in pod.spec.containers},
        }
    return {"usage": found}


def _submitter(pod: NodePod) -> str:
    """Who submitted a pod, as its first container says; ``""`` if it does not."""
    named = pod.spec.containers[0].env if pod.spec.containers else ()
    return next((each.value for each in named if each.name == SUBMITTER), "")


def _pids(sample: Sample) -> dict[tuple[str, str, str], list[int]]:
    """The processes of each pod's uid, container and GPU."""
    found: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for use in sample.uses:
        for container in use.cgroup.containers:
            if container in sample.containers:
                found[(*sample.containers[container], use.uuid)].append(use.pid)
    return found


def _device(
    entry: Entry, gpus: Mapping[str, GPUDevice], addresses: Mapping[str, str], pids: list[int]
) -> dict[str, Any]:
    gpu = gpus.get(entry["gpu"])
    return {
        "id": addresses.get(entry["gpu"], ""),
        "card_idx": str(gpu.index) if gpu else "",
        "gpu": round(100 * entry["share"], 1),
        "mem": entry["memoryUsedBytes"] // MI,
        "pids": sorted(pids),
        "device_mem": entry["memoryTotalBytes"] // MI,
    }


def _number(device: Mapping[str, Any]) -> tuple[int, str]:
    return len(device["card_idx"]), device["card_idx"]


def _spec(container: NodeContainerSpec) -> dict[str, float]:
    memory = _amount(container, MEMORY) * BLOCK // MI
    return {"gpu": _amount(container, CORE) / CORES, "mem": memory}


def _amount(container: NodeContainerSpec, resource: str) -> int:
    """What a container asks for; 0 for nothing."""
    return parse_count(container.resources.limits.get(resource, 0), resource)
