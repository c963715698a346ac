"""The objects of a simulated cluster: nodes, and jobs as SharePods."""

from typing import Any, Final
from uuid import NAMESPACE_OID, uuid5

from kubeshare.api.types.constants import WHOLE_GPU_RESOURCE
from kubeshare.api.types.v1 import GPUNODES
from kubeshare.core.demand import Demand
from kubeshare.core.gang import Gang
from kubeshare.core.units import Memory, format_share
from kubeshare.dialects.priority_and_gang import (
    GANG_NEAR,
    GROUP_HEADCOUNT,
    GROUP_NAME,
    MIN_AVAILABLE,
    PRIORITY,
)
from kubeshare.kube.resources import NODES
from kubeshare.simulator.cluster import SimulatedNode
from kubeshare.simulator.control import FakeApiServer
from kubeshare.simulator.control.storage import wall_clock
from kubeshare.simulator.control_tier.stored import Raw
from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.jobs import NO_HOST_REQUEST, Job

NAMESPACE_OF_JOBS: Final = "default"
"""That of jobs which name none."""


def gpu_uuid(node: str, index: int) -> str:
    """The UUID of a GPU of a node."""
    return f"GPU-{uuid5(NAMESPACE_OID, f'{node}/{index}')}"


def seed_node(server: FakeApiServer, node: SimulatedNode) -> None:
    """Create a node, and its GPUs as its agent reports them."""
    devices = [
        {
            "uuid": gpu_uuid(node.name, index),
            "index": index,
            "minor": index,
            "model": node.kind.model,
            "memoryBytes": node.kind.memory_bytes,
        }
        for index in range(node.gpus)
    ]
    ready = [{"type": "Ready", "status": "True"}]
    status = {"allocatable": {WHOLE_GPU_RESOURCE: str(node.gpus)}, "conditions": ready}
    metadata = {"name": node.name, "labels": {"kubernetes.io/hostname": node.name}}
    made = server.seed(NODES, {"metadata": metadata, "spec": {}, "status": status})
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": made["metadata"]["uid"]}
    spec = {"devices": devices, "supportsOwned": True, "supportsShares": True}
    server.seed(
        GPUNODES, {"metadata": {"name": node.name, "ownerReferences": [owner]}, "spec": spec}
    )


def sharepod_of(job: Job, number: int) -> Raw:
    """The SharePod of a job.

    Args:
        job: the job; its uid is the SharePod's.
        number: how many came before it; jobs of one second are placed in the order of names.

    Raises:
        SimulationError: the job asks for something that only the core tier simulates.
    """
    demand = job.demand
    if demand is None or job.host != NO_HOST_REQUEST:
        raise SimulationError(
            f"job {job.name} asks for CPU, memory or a place on a node without a GPU, which "
            "--tier control does not simulate: use --tier core"
        )
    if job.service_s:
        raise SimulationError(
            f"job {job.name} serves requests, which --tier control does not simulate: "
            "use --tier core"
        )
    if job.preemptible:
        raise SimulationError(
            f"job {job.name} is preemptible, which --tier control does not simulate: "
            "use --tier core"
        )
    gpu = _gpu(demand)
    labels = {PRIORITY: str(job.priority)} if job.priority else {}
    metadata: Raw = {
        "name": f"job-{number:07}",
        "namespace": demand.namespace or NAMESPACE_OF_JOBS,
        "uid": job.uid,
        "creationTimestamp": wall_clock(),
        "labels": labels | (_gang_labels(job.gang) if job.gang else {}),
    }
    if job.gang is not None and job.gang.near:
        metadata["annotations"] = {GANG_NEAR: job.gang.near}
    container = {"name": "main", "image": "job"}
    return {"metadata": metadata, "spec": {"gpu": gpu, "containers": [container]}}


def _gpu(demand: Demand) -> Raw:
    given: dict[str, Any] = {
        "request": format_share(demand.request_micros),
        "limit": format_share(demand.limit_micros),
        "memory": _memory(demand.memory),
        "affinity": demand.affinity,
        "antiAffinity": demand.anti_affinity,
        "exclusion": demand.exclusion,
        "model": demand.model,
    }
    if demand.count > 1:
        given["count"] = demand.count
    return {name: value for name, value in given.items() if value != ""}


def _memory(memory: Memory) -> str:
    return str(memory.bytes) if memory.bytes else format_share(memory.micros)


def _gang_labels(gang: Gang) -> dict[str, str]:
    labels = {GROUP_NAME: gang.name, MIN_AVAILABLE: str(gang.min_available)}
    return labels | ({GROUP_HEADCOUNT: str(gang.headcount)} if gang.headcount else {})
