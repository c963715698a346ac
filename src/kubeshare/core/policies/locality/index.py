"""The locality policy's index: devices by compute and memory left.

Best fit finds the first device of an ascending tree; the trees of groups with an affinity label
are inverted, since Algorithm 1 uses worst fit there.
"""

from typing import Final

from kubeshare.core.constraints.checks import Group
from kubeshare.core.ledger.device import Device, FreeGpu
from kubeshare.core.ledger.index.device_tree import Entry
from kubeshare.core.ledger.index.free_gpu_nodes import ByCount, by_count
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.one_by_one.index import OneByOneIndex
from kubeshare.core.units import MICROS

_BITS: Final = 64
_MOST: Final = (1 << _BITS) - 1


class LocalityIndex(OneByOneIndex[ByCount]):
    """Least left first, in groups with an affinity label most left first; then by id.

    Free GPUs are on the node with the fewest of them first, then by name, then the smallest.
    """

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger, by_count, _entry, _least)

    def _free_order(self, position: ByCount, kind: FreeGpu) -> tuple[ByCount, int, str]:
        return position, kind.memory_bytes, kind.model


def _entry(group: Group, device: Device) -> Entry:
    totals = device.totals
    left = device.memory_bytes - totals.memory_bytes
    if group[0] == "":
        number = (MICROS - totals.request_micros) << _BITS | left
    else:
        number = totals.request_micros << _BITS | (_MOST - left)
    return number, device.order, left, device


def _least(group: Group, compute: int, memory: int) -> tuple[int, int]:
    return compute << _BITS | memory if group[0] == "" else 0, memory
