"""The ledger: nodes, GPUs and holders, never over-committed.

It is the only mutable object of the core. Each operation first checks and then writes, so it
happens completely or raises and changes nothing. A ledger can be rebuilt from the cluster's
objects in any order, and two ledgers built from the same objects are equal.

:meth:`Ledger.what_if` tries changes on the ledger itself and undoes them at the end;
:meth:`Ledger.snapshot` keeps the present state. Both cost as much as the changes, not as much as
the cluster.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from operator import attrgetter
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec

from kubeshare.core.demand import Demand, LabelScope, Share, groups_of
from kubeshare.core.errors import LedgerError
from kubeshare.core.ledger.device import Device, FreeGpu, Node, SelectableGpu
from kubeshare.core.ledger.history import Snapshot
from kubeshare.core.ledger.holder import HOLDER_KEY, MAX_HOLDERS, Holder
from kubeshare.core.ledger.tables import Index, Tables
from kubeshare.core.reasons import two_sizes
from kubeshare.core.units import MICROS, format_memory, format_share

AnIndex = TypeVar("AnIndex", bound=Index)

_ORDER: Final = attrgetter("order")


class Ledger:
    """Nodes, devices and holders.

    A device may be added before its node, or outlive it, since events of a cluster arrive in any
    order. A policy places nothing on a device whose node is unknown.

    Args:
        nodes: the initial nodes.
        devices: the initial devices, with their holders.
        label_scope: whether labels of different namespaces can be equal.

    Attributes:
        label_scope: as given.

    Raises:
        LedgerError: a device is over-committed, or a name occurs twice.
    """

    def __init__(
        self,
        nodes: Iterable[Node] = (),
        devices: Iterable[Device] = (),
        *,
        label_scope: LabelScope = "cluster",
    ) -> None:
        self.label_scope = label_scope
        self._tables = Tables()
        self._write = self._tables.write
        self._nodes = self._tables.nodes
        self._devices = self._tables.devices
        self._held = self._tables.held
        for node in nodes:
            self.add_node(node)
        for device in devices:
            self.add_device(device)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ledger):
            return NotImplemented
        return (
            self._nodes == other._nodes
            and self._devices == other._devices
            and self.label_scope == other.label_scope
        )

    __hash__ = None  # type: ignore[assignment]  # it changes

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Name → node."""
        return MappingProxyType(self._nodes)

    @property
    def devices(self) -> Mapping[str, Device]:
        """Id → device."""
        return MappingProxyType(self._devices)

    def held_by(self, demand_uid: str) -> frozenset[str]:
        """The ids of the devices that a demand holds."""
        return frozenset(self._held.get(demand_uid, ()))

    def holding(self, demand_uids: AbstractSet[str]) -> AbstractSet[str]:
        """Those of some demands that hold devices."""
        return demand_uids & self._held.keys()

    def parts(self) -> list[object]:
        """Nodes, devices, and the indexes of them: what takes long to free.

        Whoever keeps this list can drop the ledger in a moment, and then the parts in steps, the
        last ones first, since indexes refer to all others. Who reads the ledger still finds it
        whole.
        """
        return [*self._nodes.values(), *self._devices.values(), *self._tables.indexes.values()]

    def comparable(self, demand: Demand) -> Demand:
        """The demand with its labels as this ledger has them; policies start with this."""
        return demand if self.label_scope == "cluster" else demand.qualified()

    def index(self, kind: type[AnIndex]) -> AnIndex:
        """The ledger's index of this type, built at the first call and kept up to date."""
        found = self._tables.indexes.get(kind)
        if found is None:
            found = self._tables.indexes[kind] = kind(self)
        assert isinstance(found, kind)
        return found

    def add_node(self, node: Node) -> None:
        """Add a node.

        Raises:
            LedgerError: the node exists.
        """
        if node.name in self._nodes:
            raise LedgerError(f"node {node.name} is in the ledger already")
        self._write(self._nodes, node.name, _sorted_node(node))

    def set_node(self, node: Node) -> None:
        """Add or replace a node."""
        self._write(self._nodes, node.name, _sorted_node(node))

    def set_free(self, name: str, free: tuple[FreeGpu, ...]) -> None:
        """Set which kinds of a node's physical GPUs are free.

        A selectable GPU stays while the free GPUs of its kind suffice for it.

        Raises:
            LedgerError: there is no such node.
        """
        node = self._node(name)
        selectable = _within(node.selectable, free)
        self.set_node(msgspec.structs.replace(node, free=free, selectable=selectable))

    def remove_node(self, name: str) -> None:
        """Remove a node; its devices stay until they are removed too.

        Raises:
            LedgerError: there is no such node.
        """
        self._node(name)
        self._write(self._nodes, name, None)

    def add_device(self, device: Device) -> None:
        """Add a device with its holders.

        Raises:
            LedgerError: the device exists, or its holders exceed it.
        """
        if device.id in self._devices:
            raise LedgerError(f"vGPU {device.id} is in the ledger already")
        self.set_device(device)

    def set_device(self, device: Device) -> None:
        """Add or replace a device with its holders.

        Raises:
            LedgerError: its holders exceed it; the ledger is unchanged.
        """
        holders = device.holders
        if self.label_scope == "namespace":
            holders = tuple([holder.qualified() for holder in holders])
        if len(holders) > 1:
            holders = tuple(sorted(holders, key=HOLDER_KEY))
        if holders != device.holders:
            device = msgspec.structs.replace(device, holders=holders)
        _check(device)
        before = self._devices.get(device.id)
        was = {holder.demand for holder in before.holders} if before else set()
        now = {holder.demand for holder in holders}
        self._write(self._devices, device.id, device)
        for uid in was - now:
            rest = tuple(held for held in self._held[uid] if held != device.id)
            self._write(self._held, uid, rest or None)
        for uid in now - was:
            self._write(self._held, uid, tuple(sorted((*self._held.get(uid, ()), device.id))))

    def remove_device(self, device_id: str) -> None:
        """Remove an idle device.

        Raises:
            LedgerError: there is no such device, or it has holders.
        """
        device = self._device(device_id)
        if not device.idle:
            names = ", ".join(holder.name for holder in device.holders)
            raise LedgerError(f"vGPU {device_id} is held by {names}")
        self._write(self._devices, device_id, None)

    def mark(
        self, device_id: str, *, healthy: bool | None = None, fenced: bool | None = None
    ) -> None:
        """Set whether a device is healthy, and whether it is fenced against new holders.

        Raises:
            LedgerError: there is no such device.
        """
        device = self._device(device_id)
        marked = msgspec.structs.replace(
            device,
            healthy=device.healthy if healthy is None else healthy,
            fenced=device.fenced if fenced is None else fenced,
        )
        self._write(self._devices, device_id, marked)

    def place(self, demand: Demand, *device_ids: str, new: Collection[Device] = ()) -> None:
        """Make a demand a holder of devices: one for each share, in the order of ``per_gpu``.

        In the short form these are `count` different devices.

        Args:
            demand: the holder.
            device_ids: what it holds.
            new: those of them that are opened for it, without holders. Each uses a free physical
                GPU of its node: the one of its UUID, if it has one. One of unknown model uses a
                GPU with as much memory.

        Raises:
            LedgerError: a device does not exist, is unhealthy, fenced or too full, there are
                too few or too many, two shares that have to be apart are on one, or the demand
                is placed already; or the node of a new one is unknown or has no such free GPU,
                its id is taken, or it is not among them or has holders.
        """
        if demand.uid in self._held:
            raise LedgerError(f"{demand.name} holds {', '.join(sorted(self._held[demand.uid]))}")
        known = self._known(device_ids, new)
        if demand.shares:
            placed = self._with_shares(demand, device_ids, known)
        elif len(set(device_ids)) != len(device_ids) or len(device_ids) != demand.count:
            raise LedgerError(f"{demand.name} asks for {demand.count} different vGPUs")
        else:
            placed = [self._joined(_device(known, each), demand) for each in device_ids]
        nodes: dict[str, Node] = {}
        for device in new:
            name = device.node
            nodes[name] = _without_gpu(nodes.get(name) or self._node(name), device)
        for device in placed:
            self._write(self._devices, device.id, device)
        for node in nodes.values():
            self.set_node(node)
        self._write(self._held, demand.uid, tuple(sorted({device.id for device in placed})))

    def release(self, demand_uid: str) -> frozenset[str]:
        """Remove all holders of a demand.

        Returns:
            the ids of the devices that it held; they stay in the ledger.

        Raises:
            LedgerError: it holds nothing.
        """
        held = self._held.get(demand_uid)
        if not held:
            raise LedgerError(f"demand {demand_uid} holds nothing")
        for device_id in held:
            rest = self._devices[device_id].without_demand(demand_uid)
            self._write(self._devices, device_id, rest)
        self._write(self._held, demand_uid, None)
        return frozenset(held)

    def release_all(self, demand_uids: Iterable[str]) -> None:
        """Remove all holders of those of some demands that hold something.

        Each device is written once, so for many demands it takes less time than one by one.
        """
        rest: dict[str, Device] = {}
        held = {uid: self._held[uid] for uid in demand_uids if uid in self._held}
        for uid, device_ids in held.items():
            for device_id in device_ids:
                device = rest.get(device_id) or self._devices[device_id]
                rest[device_id] = device.without_demand(uid)
        for device_id, device in rest.items():
            self._write(self._devices, device_id, device)
        for uid in held:
            self._write(self._held, uid, None)

    def transaction(self) -> AbstractContextManager[None]:
        """Keep all changes made inside, or none if an exception is raised."""
        return self._tables.transaction()

    def what_if(self) -> AbstractContextManager[None]:
        """Undo all changes made inside."""
        return self._tables.what_if()

    def snapshot(self) -> Snapshot:
        """The present state, to be read now or later; taking it copies nothing."""
        return self._tables.history.snapshot()

    def _known(self, device_ids: Sequence[str], new: Iterable[Device]) -> dict[str, Device]:
        """Those of these devices that there are, and the new ones."""
        known = {each: self._devices[each] for each in device_ids if each in self._devices}
        for device in new:
            if device.id in self._devices or device.id in known:
                raise LedgerError(f"vGPU {device.id} is in the ledger already")
            if device.id not in device_ids or not device.idle:
                raise LedgerError(f"vGPU {device.id} would be opened for others")
            known[device.id] = device
        return known

    def _with_shares(
        self, demand: Demand, device_ids: Sequence[str], known: Mapping[str, Device]
    ) -> list[Device]:
        """The devices with the different shares of a demand as their holders."""
        shares = demand.per_gpu()
        if len(device_ids) != len(shares):
            raise LedgerError(f"{demand.name} asks for {len(shares)} shares of vGPUs")
        group = groups_of(demand.shares)
        on: dict[str, list[Share]] = defaultdict(list)
        joined: dict[str, Device] = {}
        for share, device_id in zip(shares, device_ids, strict=True):
            for other in on[device_id]:
                if group[share.name] == group[other.name]:
                    names = f"shares {other.name} and {share.name}"
                    raise LedgerError(f"{demand.name}: {names} cannot be on one vGPU, {device_id}")
            on[device_id].append(share)
            device = joined.get(device_id) or _device(known, device_id)
            joined[device_id] = self._joined(device, demand, share)
        return list(joined.values())

    def _joined(self, device: Device, demand: Demand, share: Share | None = None) -> Device:
        """A device with one more holder: a demand in the short form, or one of its shares."""
        if not device.healthy or device.fenced:
            raise LedgerError(f"vGPU {device.id} takes no holder: it is unhealthy or fenced")
        total, demand = device.memory_bytes, self.comparable(demand)
        holder = Holder.of_share(demand, share, total) if share else Holder.of(demand, total)
        if holder.memory_bytes < 0:
            raise LedgerError(f"{demand.name} asks for less than nothing")
        joined = device.with_holder(holder)
        _check_room(joined)
        return joined

    def _node(self, name: str) -> Node:
        try:
            return self._nodes[name]
        except KeyError:
            raise LedgerError(f"no node {name} in the ledger") from None

    def _device(self, device_id: str) -> Device:
        return _device(self._devices, device_id)


def _device(known: Mapping[str, Device], device_id: str) -> Device:
    try:
        return known[device_id]
    except KeyError:
        raise LedgerError(f"no vGPU {device_id} in the ledger") from None


def _without_gpu(node: Node, device: Device) -> Node:
    """The node without the free physical GPU that a new device uses.

    Raises:
        LedgerError: it has no such free GPU.
    """
    free = list(node.free)
    selectable = tuple([gpu for gpu in node.selectable if gpu.uuid != device.uuid])
    if device.uuid and len(selectable) == len(node.selectable):
        raise LedgerError(f"GPU {device.uuid} of node {device.node} is not free")
    kind = FreeGpu(device.model, device.memory_bytes)
    if not device.model and kind not in free:
        kind = next((gpu for gpu in free if gpu.memory_bytes == kind.memory_bytes), kind)
    try:
        free.remove(kind)
    except ValueError:
        raise LedgerError(
            f"node {device.node} has no free GPU of model {device.model!r} "
            f"with {format_memory(device.memory_bytes)}"
        ) from None
    return msgspec.structs.replace(node, free=tuple(free), selectable=_within(selectable, free))


def _sorted_node(node: Node) -> Node:
    selectable = tuple(sorted(node.selectable, key=_ORDER)) if node.selectable else ()
    return msgspec.structs.replace(node, free=tuple(sorted(node.free)), selectable=selectable)


def _within(
    selectable: tuple[SelectableGpu, ...], free: Iterable[FreeGpu]
) -> tuple[SelectableGpu, ...]:
    """The first of these GPUs, as many of each kind as are free."""
    if not selectable:
        return ()
    left = Counter(free)
    kept = []
    for gpu in selectable:
        if left[gpu.kind] > 0:
            left[gpu.kind] -= 1
            kept.append(gpu)
    return tuple(kept)


def _check(device: Device) -> None:
    """Check the invariants: no share twice, no negative amount, sums within the GPU."""
    holders = device.holders
    if len(holders) > 1 and len(set(map(HOLDER_KEY, holders))) != len(holders):
        raise LedgerError(f"vGPU {device.id} has a demand twice among its holders")
    for holder in holders:
        if holder.request_micros < 0 or holder.memory_bytes < 0:
            raise LedgerError(f"vGPU {device.id} has a holder of less than nothing")
    _check_room(device)


def _check_room(device: Device) -> None:
    """Check that sums are within the GPU, and the list of holders within its bound."""
    count = len(device.holders)
    if count > MAX_HOLDERS:
        raise LedgerError(f"vGPU {device.id} has {count} holders, more than {MAX_HOLDERS}")
    if device.compute_left < 0:
        reserved = format_share(MICROS - device.compute_left)
        raise LedgerError(f"vGPU {device.id} over-committed: compute {reserved} of 1")
    if device.memory_left < 0:
        total, reserved = two_sizes(device.memory_bytes, device.memory_bytes - device.memory_left)
        raise LedgerError(f"vGPU {device.id} over-committed: memory {reserved} of {total}")
