"""What the locality policy knows of a ledger: groups of devices, each sorted to fit.

Most of what Algorithm 1 asks of a device is asked of all alike, so devices that
give the same answers stand together: those of one model and size, with one
exclusion label, with or without an affinity label. Of a group only those without
the demand's anti-affinity label and with enough room left fit, and the tree of the
group finds the best of them. A device stands in one group, and if it has affinity
labels in one more for each of them.

Devices that take nobody (failed, fenced, on an unknown node, with as many holders
as may be, or with holders whose exclusions differ) stand in no group.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterator
from typing import Final, TypeAlias, TypeGuard, TypeVar

from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.holder import MAX_HOLDERS
from kubeshare.core.ledger.index.device_tree import DeviceTree, Entry
from kubeshare.core.ledger.index.free_gpu_nodes import FreeGpuNodes, sort_key
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.ledger.totals import NO_LABELS
from kubeshare.core.units import MICROS

Group: TypeAlias = tuple[str | None, str | None, bool]
"""An affinity label, "" for none or None for any; the exclusion; whether any has anti-affinity."""

Kind: TypeAlias = tuple[str, int]
"""The model and the bytes of a GPU; a plain tuple is found faster than a FreeGpu."""

IDLE: Final[Group] = ("", None, False)

Key = TypeVar("Key")

_FEW_NODES: Final = 8
_BITS: Final = 64
_MOST: Final = (1 << _BITS) - 1


class LocalityIndex:
    """Follows a ledger.

    Attributes:
        kinds: every kind of GPU in the cluster → by how many devices and nodes it is known.
        carriers: affinity label → on how many devices it is, whatever their state.
        homes: where a new vGPU can be opened.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._nodes = ledger.nodes
        self._devices = ledger.devices
        self.kinds: Counter[FreeGpu] = Counter()
        self.carriers: Counter[str] = Counter()
        self.homes = FreeGpuNodes(ledger.nodes.values())
        self._on_node: dict[str, set[str]] = defaultdict(set)
        self._trees: dict[Kind, dict[Group, DeviceTree]] = defaultdict(dict)
        entries: dict[Kind, dict[Group, list[Entry]]] = defaultdict(lambda: defaultdict(list))
        for node in ledger.nodes.values():
            self.kinds.update(_kinds(node))
        for device in ledger.devices.values():
            self._register(device)
            self.carriers.update(device.affinities)
            if device.node in self._nodes:
                of_kind = entries[device.model, device.memory_bytes]
                for group in groups(device):
                    entry = (_number(group, device), device.order, device.memory_left, device)
                    of_kind[group].append(entry)
        for kind, of_kind in entries.items():
            for group, members in of_kind.items():
                self._trees[kind][group] = DeviceTree(members)

    def best_fit(self, demand: Demand, *among: Group) -> Device | None:
        """Of the devices that fit the one with the least compute, then memory left, then by id."""
        return self._closest(demand, among, worst=False)

    def worst_fit(self, demand: Demand, *among: Group) -> Device | None:
        """Of the devices that fit the one with the most compute, then memory left, then by id."""
        return self._closest(demand, among, worst=True)

    def home(self, demand: Demand) -> str | None:
        """The node with the fewest free GPUs that has one that will do, then by name."""
        kinds = [kind for kind in self.kinds if _would_do(kind, demand)]
        places: list[tuple[int, str, str] | None]
        if _few(demand.nodes):
            known = (self._nodes[name] for name in self._nodes.keys() & demand.nodes)
            places = [sort_key(node) for node in known if not set(node.free).isdisjoint(kinds)]
        else:
            places = [self.homes.first(kind, demand.nodes) for kind in kinds]
        best = min(filter(None, places), default=None)
        return best[2] if best else None

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """A device came, changed or went."""
        if before is not None and after is not None and _is_same_gpu(before, after):
            if before.totals.affinities != after.totals.affinities:
                self._carry(before, after)
            if before.node in self._nodes:
                trees = self._trees[before.model, before.memory_bytes]
                _remove(trees, before)
                _add(trees, after)
            return
        self._carry(before, after)
        if before is not None:
            if before.node in self._nodes:
                _remove(self._trees[before.model, before.memory_bytes], before)
            self._unregister(before)
        if after is not None:
            self._register(after)
            if after.node in self._nodes:
                _add(self._trees[after.model, after.memory_bytes], after)

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """A node came, changed or went."""
        self.homes.changed(before, after)
        was, now = _kinds(before), _kinds(after)
        for kind in was - now:
            _less(self.kinds, kind)
        self.kinds.update(now - was)
        known = after or before
        if known and (before is None or after is None):
            for device_id in self._on_node.get(known.name, ()):
                device = self._devices[device_id]
                trees = self._trees[device.model, device.memory_bytes]
                if after:
                    _add(trees, device)
                else:
                    _remove(trees, device)

    def _closest(self, demand: Demand, among: tuple[Group, ...], *, worst: bool) -> Device | None:
        best: Device | None = None
        least: tuple[int, str] | None = None
        if _few(demand.nodes):
            fitting = self._on_few(demand, demand.nodes, among)
        else:
            fitting = self._in_trees(demand, among, worst=worst)
        for group, device in fitting:
            position = _number(group, device), device.order
            if least is None or position < least:
                best, least = device, position
        return best

    def _in_trees(
        self, demand: Demand, among: tuple[Group, ...], *, worst: bool
    ) -> Iterator[tuple[Group, Device]]:
        """The best of each group and kind of GPU."""
        for (model, total), trees in self._trees.items():
            if demand.model in ("", model):
                for group in among:
                    if group in trees:
                        found = _first(trees[group], group, demand, total, worst=worst)
                        if found is not None:
                            yield group, found

    def _on_few(
        self, demand: Demand, nodes: frozenset[str], among: tuple[Group, ...]
    ) -> Iterator[tuple[Group, Device]]:
        """All that fit on the few nodes that may be used."""
        for node in self._nodes.keys() & nodes:
            for device_id in self._on_node.get(node, ()):
                device = self._devices[device_id]
                group = next((group for group in groups(device) if group in among), None)
                if group is not None and _fits(device, demand):
                    yield group, device

    def _carry(self, before: Device | None, after: Device | None) -> None:
        was = before.affinities if before else NO_LABELS
        now = after.affinities if after else NO_LABELS
        for label in was - now:
            _less(self.carriers, label)
        self.carriers.update(now - was)

    def _register(self, device: Device) -> None:
        self.kinds[_kind(device)] += 1
        self._on_node[device.node].add(device.id)

    def _unregister(self, device: Device) -> None:
        kind = _kind(device)
        _less(self.kinds, kind)
        if kind not in self.kinds:
            self._trees.pop((kind.model, kind.memory_bytes), None)
        on_node = self._on_node[device.node]
        on_node.discard(device.id)
        if not on_node:
            del self._on_node[device.node]


def groups(device: Device) -> tuple[Group, ...]:
    """The groups in which a device of a known node stands."""
    if not device.healthy or device.fenced:
        return ()
    if not device.holders:
        return (IDLE,)
    totals = device.totals
    if len(totals.exclusions) != 1 or len(device.holders) >= MAX_HOLDERS:
        return ()
    # Lines 4 and 18: equal, absent to absent. Line 17: idle devices pass whatever is asked.
    (exclusion,) = totals.exclusions
    guarded = bool(totals.anti_affinities)
    if not totals.affinities:
        return (("", exclusion, guarded),)
    return tuple((label, exclusion, guarded) for label in (None, *totals.affinities))


def _add(trees: dict[Group, DeviceTree], device: Device) -> None:
    left = device.memory_bytes - device.totals.memory_bytes
    for group in groups(device):
        tree = trees.get(group)
        if tree is None:
            tree = trees[group] = DeviceTree()
        tree.add((_number(group, device), device.order, left, device))


def _remove(trees: dict[Group, DeviceTree], device: Device) -> None:
    for group in groups(device):
        tree = trees[group]
        tree.remove(_number(group, device), device.order)
        if not tree:
            del trees[group]


def _first(
    tree: DeviceTree, group: Group, demand: Demand, total: int, *, worst: bool
) -> Device | None:
    """The first device of a group that fits; all are GPUs of `total` bytes."""
    memory, compute = demand.memory.on(total), demand.compute_on(total)
    # Lines 5 and 19; groups without any anti-affinity need not be asked.
    without = demand.anti_affinity if group[2] else ""
    nodes: Container[str] | None = demand.nodes
    # Lines 6 and 20.
    if not worst:
        return tree.first(compute << _BITS | memory, memory, without=without, nodes=nodes)
    found = tree.first(0, memory, without=without, nodes=nodes)
    # Its compute is the most of all that pass, so the others have too little as well.
    return found if found is not None and found.compute_left >= compute else None


def _few(nodes: frozenset[str] | None) -> TypeGuard[frozenset[str]]:
    """So few nodes are asked for that looking at all their devices is faster than searching."""
    return nodes is not None and len(nodes) <= _FEW_NODES


def _would_do(kind: FreeGpu, demand: Demand) -> bool:
    return (
        demand.model in ("", kind.model)
        and demand.memory.on(kind.memory_bytes) <= kind.memory_bytes
    )


def _fits(device: Device, demand: Demand) -> bool:
    """Lines 5-6 and 19-20, and the model, of a device in one of the right groups."""
    return (
        demand.model in ("", device.model)
        and demand.anti_affinity not in device.anti_affinities
        and demand.memory.on(device.memory_bytes) <= device.memory_left
        and demand.compute_on(device.memory_bytes) <= device.compute_left
    )


def _number(group: Group, device: Device) -> int:
    """Compute left, then memory left; from the most where a group is searched by worst fit."""
    totals = device.totals
    if group[0] == "":
        return (MICROS - totals.request_micros) << _BITS | (
            device.memory_bytes - totals.memory_bytes
        )
    return totals.request_micros << _BITS | (_MOST - device.memory_bytes + totals.memory_bytes)


def _kind(device: Device) -> FreeGpu:
    return FreeGpu(device.model, device.memory_bytes)


def _kinds(node: Node | None) -> frozenset[FreeGpu]:
    """Every kind of GPU that a node is known to have, in use or not."""
    return node.kinds.union(node.free) if node else frozenset()


def _is_same_gpu(before: Device, after: Device) -> bool:
    """Nothing has changed but its holders and its state."""
    return (
        before.node == after.node
        and before.model == after.model
        and before.memory_bytes == after.memory_bytes
    )


def _less(counter: Counter[Key], key: Key) -> None:
    """One less; what is counted no more is not there."""
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
