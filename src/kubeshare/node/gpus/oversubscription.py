"""Gives out more memory of a node's GPUs than they have.

The administrator sets it by a label of the node, so that pods can choose nodes with or without
it by node affinity.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from kubeshare.api.state.ledger_builder import DELETING
from kubeshare.api.types.constants import LABEL_MEMORY_OVERSUBSCRIPTION, MANAGER_NODE
from kubeshare.api.types.core_v1 import NODES, Node
from kubeshare.api.types.v1 import VGPU, GPUDevice, GPUNodeSpec
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import MICROS, parse_amount
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import Change
from kubeshare.kube.client.client import Client
from kubeshare.kube.controller.events import WARNING, EventRecorder, reference
from kubeshare.node.node_view import NODE_VGPUS

MAX_FACTOR: Final = 4
"""What does not fit the GPU is in the node's own memory, and moves over its bus."""


class MemoryOversubscription:
    """The factor that the label of this node sets.

    Args:
        events: reports a label that is no such factor.
    """

    def __init__(self, events: EventRecorder) -> None:
        self._events = events
        self._text = ""
        self._micros = MICROS

    def micros(self) -> int:
        """The factor in millionths, from 1 to :data:`MAX_FACTOR`."""
        return self._micros

    def follow(self, nodes: Reflector[Node], changed: Callable[[], None]) -> None:
        """Read the label whenever this node changes.

        Args:
            nodes: watches this node's Node.
            changed: called when the factor has changed.
        """

        def read(change: Change[Node]) -> None:
            before = self._micros
            self._read(change.object)
            if self._micros != before:
                changed()

        nodes.subscribe(read)

    def _read(self, node: Node) -> None:
        text = node.metadata.labels.get(LABEL_MEMORY_OVERSUBSCRIPTION, "")
        if text == self._text:
            return
        self._text = text
        try:
            self._micros = parse_factor(text)
        except InvalidValueError as error:
            self._micros = MICROS
            note = f"{error}; no more memory is given out than the GPUs have"
            self._events.emit(reference(NODES, node), "InvalidLabel", "Reading", note, type=WARNING)


def parse_factor(text: str) -> int:
    """Parse the label's value; ``""`` is 1.

    Returns:
        The factor in millionths.

    Raises:
        InvalidValueError: it is no number from 1 to :data:`MAX_FACTOR`.
    """
    factor = parse_amount(text or "1", LABEL_MEMORY_OVERSUBSCRIPTION)
    if not 1 <= factor <= MAX_FACTOR:
        message = f"{text} is not a factor from 1 to {MAX_FACTOR}"
        raise InvalidValueError(LABEL_MEMORY_OVERSUBSCRIPTION, message)
    return int(factor * MICROS)


def oversubscribed(found: GPUNodeSpec, micros: int) -> GPUNodeSpec:
    """The GPUs as they are published: with the memory that may be given out of each."""
    if micros == MICROS:
        return found
    return msgspec.structs.replace(
        found, devices=tuple(_oversubscribed(device, micros) for device in found.devices)
    )


def _oversubscribed(device: GPUDevice, micros: int) -> GPUDevice:
    return msgspec.structs.replace(
        device,
        memory_bytes=device.memory_bytes * micros // MICROS,
        physical_memory_bytes=device.memory_bytes,
    )


async def update_memory(client: Client, vgpu: VGPU, device: GPUDevice | None) -> None:
    """Write the memory of a vGPU without holders, where another factor is in force.

    One with holders keeps its memory, of which they have their shares, until they have left.

    Raises:
        ApiError: the VGPU cannot be written; a conflict means that it has changed.
    """
    if device is None or vgpu.status.holders or vgpu.status.phase == DELETING:
        return
    before = (vgpu.spec.memory_bytes, vgpu.spec.physical_memory_bytes)
    if before == (device.memory_bytes, device.physical_memory_bytes):
        return
    # The kind of an earlier release, to which it was rolled back, has dropped the other field.
    given_out_before = vgpu.spec.memory_bytes > device.memory_bytes
    if not (vgpu.spec.physical_memory_bytes or device.physical_memory_bytes or given_out_before):
        return
    guard = {
        "op": "test",
        "path": "/metadata/resourceVersion",
        "value": vgpu.metadata.resource_version,
    }
    name, fields = vgpu.metadata.name, memory_operations(vgpu, device)
    await client.json_patch(NODE_VGPUS, name, [guard, *fields], field_manager=MANAGER_NODE)


def memory_operations(vgpu: VGPU, device: GPUDevice) -> list[dict[str, Any]]:
    """The JSON patch that writes a GPU's memory into its vGPU."""
    operations: list[dict[str, Any]] = [
        {"op": "add", "path": "/spec/memoryBytes", "value": device.memory_bytes}
    ]
    path, physical = "/spec/physicalMemoryBytes", device.physical_memory_bytes
    if physical:
        operations.append({"op": "add", "path": path, "value": physical})
    elif vgpu.spec.physical_memory_bytes:
        operations.append({"op": "remove", "path": path})
    return operations
