"""Describes the use of GPU memory, as gpushare's extender does."""

from collections.abc import Iterable

import msgspec

from kubeshare.api.configuration import DynamicConfiguration
from kubeshare.api.state.vgpu_store import VGPUStore
from kubeshare.api.types.v1 import GPUDevice
from kubeshare.extender.nodes import FamilyNodes


class _Pod(msgspec.Struct, rename={"used": "usedGPU"}):
    """A pod and the units of memory that it holds."""

    name: str
    namespace: str
    used: int


class _Device(msgspec.Struct, rename={"total": "totalGPU", "used": "usedGPU"}):
    """A GPU; amounts are units of memory."""

    id: int
    total: int
    used: int
    pods: list[_Pod]


class _Node(msgspec.Struct, rename={"total": "totalGPU", "used": "usedGPU"}):
    """A node; amounts are units of memory."""

    name: str
    total: int
    used: int
    devs: list[_Device]


class _Result(msgspec.Struct, omit_defaults=True):
    """The answer to ``inspect``."""

    nodes: list[_Node]
    error: str = ""


class Inspection:
    """Describes nodes of gpushare.

    Args:
        pool: the vGPUs.
        nodes: which nodes share GPUs by gpushare.
        configuration: the unit of memory.
    """

    def __init__(
        self, pool: VGPUStore, nodes: FamilyNodes, configuration: DynamicConfiguration
    ) -> None:
        self._pool = pool
        self._nodes = nodes
        self._configuration = configuration

    def all(self) -> bytes:
        """The JSON of all nodes of gpushare, sorted by name."""
        return _encode(map(self._node, self._nodes))

    def of(self, name: str) -> bytes | None:
        """The JSON of one node, which has no GPUs if it is not of gpushare; None if unknown."""
        return _encode([self._node(name)]) if self._nodes.exists(name) else None

    @staticmethod
    def unknown(name: str) -> bytes:
        """The JSON for a node that does not exist."""
        return msgspec.json.encode(_Result([], f'node "{name}" not found'))

    def _node(self, name: str) -> _Node:
        found = self._nodes.gpus(name) if name in self._nodes else None
        devices = [self._device(each) for each in found.spec.devices] if found else []
        used = sum(device.used for device in devices)
        return _Node(name, sum(device.total for device in devices), used, devices)

    def _device(self, gpu: GPUDevice) -> _Device:
        unit = self._configuration.now().gpushare.unit_bytes
        vgpus = self._pool.with_uuid(gpu.uuid)
        holders = [holder for vgpu in vgpus for holder in vgpu.status.holders]
        pods = [
            _Pod(holder.name, holder.namespace, holder.memory_bytes // unit) for holder in holders
        ]
        used = sum(holder.memory_bytes for holder in holders) // unit
        return _Device(gpu.index, gpu.memory_bytes // unit, used, pods)


def _encode(nodes: Iterable[_Node]) -> bytes:
    return msgspec.json.encode(_Result(list(nodes)))
