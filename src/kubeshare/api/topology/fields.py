"""A node's topology as JSON."""

from collections.abc import Mapping
from typing import Any

from kubeshare.api.topology.node_topology import NodeTopology
from kubeshare.api.types.v1 import GPUDevice
from kubeshare.core.topology.links import name_of


def as_fields(topology: NodeTopology) -> dict[str, Any]:
    """A node's topology as the fields of a JSON object."""
    root = topology.root
    return {
        "node": topology.name,
        "gpus": [_gpu_fields(gpu) for gpu in topology.gpus],
        "vanished": [_gpu_fields(gpu) for gpu in topology.vanished],
        "links": topology.levels,
        "tree": None if root is None else _group_fields(topology, root),
    }


def _group_fields(topology: NodeTopology, number: int) -> Mapping[str, Any]:
    group = topology.tree.groups[number]
    return {
        "level": name_of(group.level),
        "groups": [_group_fields(topology, child) for child in group.children],
        "gpus": [topology.gpus[leaf].index for leaf in group.leaves],
    }


def _gpu_fields(gpu: GPUDevice) -> dict[str, Any]:
    return {
        "index": gpu.index,
        "minor": gpu.minor,
        "uuid": gpu.uuid,
        "model": gpu.model,
        "memoryBytes": gpu.memory_bytes,
        "numaNode": gpu.numa_node,
        "cpus": gpu.cpu_list,
        "healthy": gpu.healthy,
        "message": gpu.message,
    }
