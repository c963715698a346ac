"""Bounds how many members of a gang fit on some GPUs.

An upper bound by arithmetic alone: it sees compute, memory, models and the number of holders, not
labels, and takes every member for as small as the smallest. So a place of which it says too few
has room for too few, whatever the policy; for members that ask for the same, without labels, it is
the number that fit.
"""

from collections.abc import Collection, Iterable, Sequence

from kubeshare.core.constraints.checks import takes_holders
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, FreeGpu
from kubeshare.core.ledger.holder import MAX_HOLDERS
from kubeshare.core.ledger.index.node_devices import NodeDevices
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.units import MICROS


class Room:
    """The bounds for the members of one gang.

    Args:
        ledger: the cluster.
        members: at least one of each kind.
    """

    def __init__(self, ledger: Ledger, members: Sequence[Demand]) -> None:
        self._ledger = ledger
        self._devices = ledger.index(NodeDevices)
        self._shares = [share for demand in members for share in demand.reduced()]
        self._models = {demand.model for demand in members}
        self._holders = min((len(demand.per_gpu()) for demand in members), default=1)
        self._least: dict[int, tuple[int, int]] = {}  # memory of a GPU -> compute and memory

    def on_node(self, name: str) -> int:
        """How many members fit on a node at most."""
        node = self._ledger.nodes.get(name)
        if node is None:
            return 0
        return self.on_gpus(self._devices.on(name), node.free)

    def on_gpus(self, devices: Iterable[Device], free: Iterable[FreeGpu] = ()) -> int:
        """How many members fit on these devices and free GPUs at most."""
        return self.members_of(self.holders_on(devices, free))

    def members_of(self, holders: int) -> int:
        """How many members so many holders are at most."""
        return holders // self._holders

    def holders_on(self, devices: Iterable[Device], free: Iterable[FreeGpu] = ()) -> int:
        """How many more holders these devices and free GPUs take at most."""
        holders = sum([self._holders_on_new(kind) for kind in free])
        total = compute = memory = -1
        for device in devices:
            totals = device.totals
            if device.memory_bytes != total:
                total = device.memory_bytes
                compute, memory = self._needs(total)
            compute_left = MICROS - totals.request_micros
            memory_left = total - totals.memory_bytes
            # The room alone rules out most devices.
            if compute_left < compute or memory_left < memory:
                continue
            if not takes_holders(device) or not self._suits(device.model):
                continue
            most = MAX_HOLDERS - len(device.holders)
            most = min(most, compute_left // compute) if compute else most
            holders += min(most, memory_left // memory) if memory else most
        return holders

    def holders_on_nodes(self, names: Iterable[str]) -> int:
        """How many more holders all GPUs of some nodes of the ledger take at most."""
        on, nodes = self._devices.on, self._ledger.nodes
        return sum([self.holders_on(on(name), nodes[name].free) for name in names])

    def _holders_on_new(self, kind: FreeGpu) -> int:
        if not self._suits(kind.model):
            return 0
        compute, memory = self._needs(kind.memory_bytes)
        most = min(MAX_HOLDERS, MICROS // compute) if compute else MAX_HOLDERS
        return min(most, kind.memory_bytes // memory) if memory else most

    def _suits(self, model: str) -> bool:
        return "" in self._models or model in self._models

    def _needs(self, total: int) -> tuple[int, int]:
        """The least compute and memory that a share takes of a GPU of `total` bytes."""
        known = self._least.get(total)
        if known is None:
            compute = min([share.compute_on(total) for share in self._shares], default=0)
            memory = min([share.memory.on(total) for share in self._shares], default=0)
            known = self._least[total] = compute, memory
        return known


def allowed_nodes(ledger: Ledger, members: Collection[Demand]) -> set[str]:
    """The nodes that some member may use."""
    if any(demand.nodes is None for demand in members):
        return set(ledger.nodes)
    return {name for demand in members for name in demand.nodes or () if name in ledger.nodes}


def may_have_room(ledger: Ledger, members: Sequence[Demand], needed: int) -> bool:
    """Whether so many members may fit, by arithmetic alone."""
    room = Room(ledger, members)
    return room.members_of(room.holders_on_nodes(allowed_nodes(ledger, members))) >= needed


def necessary(
    ledger: Ledger, members: Sequence[Demand], needed: int, leavers: Collection[str]
) -> set[str]:
    """Holders of which each has to leave, whoever of the others does, for enough members to fit.

    There may be more of them: arithmetic alone decides.

    Args:
        ledger: unchanged afterwards.
        members: those that are not placed.
        needed: how many of them have to fit.
        leavers: the uids of the holders, which hold something.
    """
    held = {uid: [ledger.devices[each] for each in ledger.held_by(uid)] for uid in leavers}
    names, room = allowed_nodes(ledger, members), Room(ledger, members)
    with ledger.what_if():
        ledger.release_all(held)
        most = room.holders_on_nodes(names)

        def lost(before: Device, uid: str) -> int:
            """How many holders fewer a device takes if one holder stays."""
            if before.node not in names:
                return 0
            stays = gone = ledger.devices[before.id]
            for holder in before.holders:
                stays = stays.with_holder(holder) if holder.demand == uid else stays
            return room.holders_on([gone]) - room.holders_on([stays])

        return {
            uid
            for uid, devices in held.items()
            if room.members_of(most - sum([lost(each, uid) for each in devices])) < needed
        }
