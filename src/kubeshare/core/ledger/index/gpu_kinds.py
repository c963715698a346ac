"""The kinds of all GPUs of a cluster, in use or not."""

from collections import Counter
from typing import Final

from kubeshare.core.demand import Memory
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.ledger import Ledger

_MAX_CACHED: Final = 64


class GpuKinds:
    """An index of a ledger.

    Attributes:
        kinds: every kind of GPU in the cluster → how many devices and nodes have it.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._nodes = ledger.nodes
        self._devices = ledger.devices
        self.kinds: Counter[FreeGpu] = Counter(map(_kind, ledger.devices.values()))
        for node in ledger.nodes.values():
            self.kinds.update(_kinds(node))
        self._most: dict[tuple[str, Memory], int] = {}

    def most_on_a_node(self, model: str, memory: Memory) -> int:
        """The most GPUs of one model and sufficient size on one node, in use or not.

        It goes through all GPUs once; then the answer is kept until a GPU comes or goes.

        Args:
            model: the required model, "" for any.
            memory: what each GPU must have.
        """
        most = self._most.get((model, memory))
        if most is None:
            if len(self._most) >= _MAX_CACHED:
                self._most.clear()
            most = self._most[model, memory] = self._count(model, memory)
        return most

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """Count a GPU that was added, removed, moved or exchanged."""
        if before is not None and after is not None and before.is_same_gpu(after):
            return
        self._most.clear()
        if before is not None:
            self._decrement(_kind(before))
        if after is not None:
            self.kinds[_kind(after)] += 1

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """Count the GPUs of a node."""
        self._most.clear()
        old, new = _kinds(before), _kinds(after)
        for kind in old - new:
            self._decrement(kind)
        self.kinds.update(new - old)

    def _count(self, model: str, memory: Memory) -> int:
        found: Counter[tuple[str, str]] = Counter()
        known: Counter[str] = Counter()
        suitable = {
            kind
            for kind in self.kinds
            if model in ("", kind.model) and memory.on(kind.memory_bytes) <= kind.memory_bytes
        }
        sizes = {(kind.model, kind.memory_bytes) for kind in suitable}  # a faster key
        for device in self._devices.values():
            known[device.node] += 1
            if (device.model, device.memory_bytes) in sizes:
                found[device.node, device.model] += 1
        for node in self._nodes.values():
            known[node.name] += len(node.free)
            for gpu in suitable.intersection(node.free):
                found[node.name, gpu.model] += node.free.count(gpu)
            # The remaining GPUs are in use elsewhere, and may be of any kind of the node.
            rest = max(0, node.total - known[node.name])
            for its_model in {kind.model for kind in suitable.intersection(node.kinds)}:
                found[node.name, its_model] = max(1, found[node.name, its_model] + rest)
        return max(found.values(), default=0)

    def _decrement(self, kind: FreeGpu) -> None:
        self.kinds[kind] -= 1
        if not self.kinds[kind]:
            del self.kinds[kind]


def _kind(device: Device) -> FreeGpu:
    return FreeGpu(device.model, device.memory_bytes)


def _kinds(node: Node | None) -> frozenset[FreeGpu]:
    """The known kinds of a node's GPUs, in use or not."""
    return node.kinds.union(node.free) if node else frozenset()
