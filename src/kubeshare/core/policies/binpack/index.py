"""The index of the binpack policy: the fullest devices first."""

from collections.abc import Mapping
from functools import partial

from kubeshare.core.constraints.checks import Group
from kubeshare.core.ledger.device import Device, FreeGpu
from kubeshare.core.ledger.index.device_tree import Entry
from kubeshare.core.ledger.index.free_gpu_nodes import ByName, by_name
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural, natural_name
from kubeshare.core.policies.one_by_one.index import OneByOneIndex


class BinpackIndex(OneByOneIndex[ByName]):
    """Least memory left first, then by node and number; of free GPUs the smallest first."""

    def __init__(self, ledger: Ledger) -> None:
        self._orders: dict[str, str] = {}  # id -> its sort key
        super().__init__(ledger, by_name, partial(_entry, self._orders), _least)

    def _free_order(self, position: ByName, kind: FreeGpu) -> tuple[int, ByName, str]:
        return kind.memory_bytes, position, kind.model

    def _register(self, device: Device) -> None:
        super()._register(device)
        self._orders[device.id] = order(device)

    def _unregister(self, device: Device) -> None:
        super()._unregister(device)
        del self._orders[device.id]


def _entry(orders: Mapping[str, str], _: Group, device: Device) -> Entry:
    return device.memory_left, orders[device.id], device.compute_left, device


def _least(_: Group, compute: int, memory: int) -> tuple[int, int]:
    return memory, compute


def order(device: Device) -> str:
    """The sort key by node, then by the GPU's number or id; no two devices have the same."""
    name = device.name if device.number is None else str(device.number)
    # The separator sorts before anything that may follow in a longer name of a node.
    return f"{natural_name(device.node)}\0\0{natural(name)}\0\0{device.id}"
