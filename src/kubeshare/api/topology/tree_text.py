"""Draws a node's access-cost tree as text."""

from collections.abc import Callable, Iterator

from kubeshare.api.topology.node_topology import NodeTopology
from kubeshare.api.types.v1 import GPUDevice
from kubeshare.core.topology.links import name_of
from kubeshare.core.units import format_memory

Note = Callable[[GPUDevice], str]
"""More words about a GPU."""


def _no_note(_: GPUDevice) -> str:
    return ""


def tree_text(topology: NodeTopology, note: Note = _no_note) -> str:
    """The tree, a line for each group and each GPU, with the note of that GPU at its end."""
    root = topology.root
    if root is None:
        return "\n".join(_gpu_line(gpu, note) for gpu in topology.gpus)
    lines = [name_of(topology.tree.groups[root].level)]
    lines += _below(topology, root, "", note)
    return "\n".join(lines)


def _below(topology: NodeTopology, number: int, indent: str, note: Note) -> Iterator[str]:
    members = topology.members(number)
    for first, child in members:
        is_last = (first, child) == members[-1]
        branch, further = ("└── ", "    ") if is_last else ("├── ", "│   ")
        if child is None:
            yield f"{indent}{branch}{_gpu_line(topology.gpus[first], note)}"
            continue
        yield f"{indent}{branch}{name_of(topology.tree.groups[child].level)}"
        yield from _below(topology, child, indent + further, note)


def _gpu_line(gpu: GPUDevice, note: Note) -> str:
    words = [f"GPU{gpu.index}", gpu.model, format_memory(gpu.memory_bytes), gpu.uuid, note(gpu)]
    if not gpu.healthy:
        words.append(f"unhealthy: {gpu.message}")
    elif gpu.message:
        words.append(f"no new shares: {gpu.message}")
    return "  ".join(word for word in words if word)
