"""Counts what namespaces are charged by model and pool, and groups' models."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from operator import attrgetter
from typing import NamedTuple

from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.quota.charge import charges
from kubeshare.core.quota.rows import Place


class NodeKind(NamedTuple):
    """What quotas see of a node; nodes of one kind are within a quota or not together."""

    pool: str
    label: str
    gpus: frozenset[FreeGpu]

    def place(self, model: str, group: str) -> Place:
        """Where a share of one of its GPUs is."""
        return Place(self.pool, self.label, model, group)


class QuotaIndex:
    """An index of a ledger: charges of namespaces, models of groups, kinds of nodes."""

    def __init__(self, ledger: Ledger) -> None:
        self._nodes = ledger.nodes
        self._held: dict[str, Counter[tuple[str, str, str]]] = defaultdict(Counter)
        self._groups: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self._on_node: dict[str, dict[str, FreeGpu]] = defaultdict(dict)
        self._kind_of: dict[str, NodeKind] = {}
        self._of_kind: dict[NodeKind, set[str]] = defaultdict(set)
        for node in ledger.nodes.values():
            self.node_changed(None, node)
        for device in ledger.devices.values():
            self.device_changed(None, device)

    def used_by(self, namespace: str) -> Counter[Place]:
        """The micros that a namespace is charged at each place, and those of each of its groups.

        A place without a group is for the namespace as a whole, its groups included.
        """
        used: Counter[Place] = Counter()
        for (node, model, group), micros in self._held.get(namespace, Counter()).items():
            used[self.place(node, model, group)] += micros
        return used

    def place(self, node: str, model: str, group: str) -> Place:
        """Where a share of a GPU is; a node that is gone has no pool and no label."""
        known = self._nodes.get(node)
        return (
            Place(known.pool, known.model, model, group) if known else Place("", "", model, group)
        )

    def model_of_group(self, namespace: str, group: str) -> str:
        """The model that a group uses; "" if the group holds nothing."""
        return min(self._groups.get((namespace, group), Counter()), default="")

    def node_kinds(self) -> Mapping[NodeKind, AbstractSet[str]]:
        """The kinds of nodes, with the names of their nodes."""
        return self._of_kind

    def kinds_on(self, node: Node) -> frozenset[FreeGpu]:
        """The kinds of the GPUs of a node, vGPUs or free."""
        return frozenset(self._on_node.get(node.name, {}).values()) | set(node.free) | node.kinds

    def devices_on(self, node: str) -> Mapping[str, FreeGpu]:
        """Id → kind of the devices on a node."""
        return self._on_node.get(node, {})

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """Update the counts of a device and its holders."""
        if before is not None:
            del self._on_node[before.node][before.id]
            self._count(before, -1)
        if after is not None:
            self._on_node[after.node][after.id] = FreeGpu(after.model, after.memory_bytes)
            self._count(after, 1)
        for node in {device.node for device in (before, after) if device is not None}:
            self._classify(node)

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """Update the kind of a node."""
        changed = after or before
        if changed is not None:
            self._classify(changed.name)

    def _classify(self, name: str) -> None:
        node, before = self._nodes.get(name), self._kind_of.get(name)
        kind = NodeKind(node.pool, node.model, self.kinds_on(node)) if node else None
        if kind == before:
            return
        if before is not None:
            del self._kind_of[name]
            self._of_kind[before].discard(name)
            if not self._of_kind[before]:
                del self._of_kind[before]
        if kind is not None:
            self._kind_of[name] = kind
            self._of_kind[kind].add(name)

    def _count(self, device: Device, sign: int) -> None:
        holders, total = device.holders, device.memory_bytes
        for namespace, charge in charges(holders, total, attrgetter("namespace")).items():
            self._charge(namespace, "", device, sign * charge.micros)
        grouped = [holder for holder in holders if holder.group]
        by_group = charges(grouped, total, attrgetter("namespace", "group"))
        for (namespace, group), charge in by_group.items():
            self._charge(namespace, group, device, sign * charge.micros)
        for holder in grouped if device.model else ():
            models = self._groups[holder.namespace, holder.group]
            models[device.model] += sign
            if not models[device.model]:
                del models[device.model]

    def _charge(self, namespace: str, group: str, device: Device, micros: int) -> None:
        held, where = self._held[namespace], (device.node, device.model, group)
        held[where] += micros
        if not held[where]:
            del held[where]
