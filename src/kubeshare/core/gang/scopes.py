"""Where the members of a gang would be near each other.

A *scope* is such a place: a switch of a node, a node, or several nodes. The policy still chooses
the GPUs, among those of the scope.

A GPU whose links are unknown is under a switch with no other GPU, unless all GPUs of its node are
under one. So it is with the GPU of a new vGPU that the node's device plugin is to choose.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import Final, TypeAlias

import msgspec

from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand
from kubeshare.core.gang.nearness import Nearness
from kubeshare.core.gang.room import Room, allowed_nodes
from kubeshare.core.ledger.device import Device, FreeGpu, Node, SelectableGpu
from kubeshare.core.ledger.index.node_devices import NodeDevices
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural_name
from kubeshare.core.policies import Policy
from kubeshare.core.topology.switches import switches

RANKED_NODES: Final = 16
"""Nodes that are tried in the order of the policy; of further ones the roomiest come first."""
WIDE_SCOPES: Final = 64
"""The most sets of several nodes that are tried."""

NOT_NEAR: Final = "not near the rest of the gang"
"""The reason for a GPU or node outside the scope."""

_Gpu: TypeAlias = int | str | FreeGpu
"""A GPU of a node by its row in the links; by vGPU or UUID if that is unknown; or any free GPU of
a kind that the device plugin chooses."""


class Scope(msgspec.Struct, frozen=True):
    """Nodes, or GPUs of one node, where the members of a gang are near each other.

    Attributes:
        nodes: the names of the nodes.
        gpus: those of the GPUs of the only node; None for all GPUs of the nodes.
    """

    nodes: frozenset[str]
    gpus: frozenset[_Gpu] | None = None

    def narrow(self, demand: Demand) -> Demand:
        """The demand, restricted to the nodes."""
        nodes = self.nodes if demand.nodes is None else demand.nodes & self.nodes
        return msgspec.structs.replace(demand, nodes=nodes)

    def confine(self, ledger: Ledger) -> frozenset[str]:
        """Hide the other GPUs of the node in a ledger, which the caller restores.

        Returns:
            the paths of the vGPUs that were fenced for it.
        """
        if self.gpus is None:
            return frozenset()
        (name,) = self.nodes
        node = ledger.nodes.get(name)
        if node is None:
            return frozenset()
        selectable, free = self.free_of(node)
        kinds = node.kinds.union(node.free)  # what may be free again is not infeasible
        entry = msgspec.structs.replace(node, free=free, selectable=selectable, kinds=kinds)
        ledger.set_node(entry)
        away = [
            device
            for device in ledger.index(NodeDevices).on(name)
            if device.healthy and not device.fenced and _key_of(node, device) not in self.gpus
        ]
        for device in away:
            ledger.mark(device.id, fenced=True)
        return frozenset([device.path for device in away])

    def free_of(self, node: Node) -> tuple[tuple[SelectableGpu, ...], tuple[FreeGpu, ...]]:
        """The free GPUs of a node that are in the scope: those with a UUID, and all kinds."""
        if self.gpus is None:
            return node.selectable, node.free
        chosen = [gpu for gpu in node.selectable if _key(node, gpu.row, gpu.uuid) in self.gpus]
        unknown = [kind for kind in _unselectable(node) if kind in self.gpus]
        return tuple(chosen), (*[gpu.kind for gpu in chosen], *unknown)

    def explained(
        self, decision: Decision, demand: Demand, fenced: Collection[str] = ()
    ) -> Decision:
        """A decision about a narrowed demand, with reasons that name what was hidden.

        Args:
            decision: the decision.
            demand: the demand as it was before it was narrowed.
            fenced: the answer of :meth:`confine`.
        """

        def is_hidden(place: str) -> bool:
            node = place.partition("/")[0]
            asked = demand.nodes is None or node in demand.nodes
            return place in fenced or (asked and node not in self.nodes)

        def reasons() -> dict[str, str]:
            known = decision.reasons.items()
            return {place: NOT_NEAR if is_hidden(place) else why for place, why in known}

        return msgspec.structs.replace(decision, reasons=LazyReasons(reasons))


class Scopes:
    """The nodes, or the switches, where enough members of a gang might fit.

    Args:
        policy: ranks the nodes, by where it places one member.
        ledger: the cluster; it may change while the scopes are gone through.
        members: those that are not placed yet; of members that ask for the same, one suffices.
        near: what they ask for.
        wanted: places with room for fewer are left out, unless all are such.

    Attributes:
        rooms: node → how many members fit there, or under one of its switches, at most.
    """

    def __init__(
        self,
        policy: Policy,
        ledger: Ledger,
        members: Collection[Demand],
        near: Nearness,
        wanted: int,
    ) -> None:
        self._policy = policy
        self._ledger = ledger
        self._members = members
        self._near = near
        self._room = Room(ledger, tuple(members))
        self._home = {device.node for device in near.home(ledger)}
        fixed = bool(self._home) and near.binds
        names = self._home if fixed else allowed_nodes(ledger, members) | self._home
        self.rooms = {name: self._most(name, wanted) for name in names}
        some = max(self.rooms.values(), default=0) >= wanted
        self._wanted = wanted if some or not near.binds else 0

    def __iter__(self) -> Iterator[Scope]:
        """The scopes, those that the policy prefers first."""
        for name, preferred in self._ranked():
            if self._near.near != "switch":
                yield Scope(frozenset([name]))
                continue
            for scope in self._switches_of(name, preferred):
                if self._fitting(scope) >= self._wanted:
                    yield scope

    def _ranked(self) -> Iterator[tuple[str, Device | None]]:
        """The nodes where enough members might fit, and the GPU that the policy prefers there."""
        if self._near.apart(self._ledger):
            return
        for name in sorted(self._home, key=natural_name):
            yield name, None
        left = {name for name, room in self.rooms.items() if room >= self._wanted} - self._home
        if not self._wanted:
            left = set(_roomiest_first(left, self.rooms)[:RANKED_NODES])
        asked = 0
        for demand in self._members:
            while left and asked < RANKED_NODES:
                decision = self._policy(self._ledger, Scope(frozenset(left)).narrow(demand))
                if decision.node is None:
                    break
                asked += 1
                left.discard(decision.node)
                opened = {device.id: device for device in decision.new}
                first = decision.devices[0]
                yield decision.node, opened.get(first) or self._ledger.devices.get(first)
        # A policy that was asked less often has found that no member fits on the others.
        if asked == RANKED_NODES:
            for name in _roomiest_first(left, self.rooms):
                yield name, None

    def _most(self, name: str, wanted: int) -> int:
        most = self._room.on_node(name)
        if self._near.near != "switch" or most < wanted:
            return most
        return max(map(self._fitting, self._switches_of(name)), default=0)

    def _fitting(self, scope: Scope) -> int:
        """How many members fit in a scope of one node at most."""
        (name,) = scope.nodes
        node = self._ledger.nodes.get(name)
        if scope.gpus is None or node is None:
            return self._room.on_node(name)
        devices = self._ledger.index(NodeDevices).on(name)
        inside = [device for device in devices if _key_of(node, device) in scope.gpus]
        _, free = scope.free_of(node)
        return self._room.on_gpus(inside, free)

    def _switches_of(self, name: str, preferred: Device | None = None) -> Iterator[Scope]:
        """The switches of a node, that of the preferred GPU first."""
        node = self._ledger.nodes.get(name)
        if node is None:
            return
        devices = self._ledger.index(NodeDevices).on(name)
        known = switches(node.links)
        total = max(node.total, len(devices) + len(node.free))
        if len(known) == 1 and total <= len(node.links):
            yield Scope(frozenset([name]))
            return
        gpus = {_key_of(node, device) for device in devices}
        gpus |= {_key(node, gpu.row, gpu.uuid) for gpu in node.selectable}
        gpus |= {*_unselectable(node)}
        unlinked = sorted((gpu for gpu in gpus if not isinstance(gpu, int)), key=str)
        taken = {_key_of(node, device) for device in self._near.home(self._ledger)}
        found: list[frozenset[_Gpu]] = [*known, *(frozenset([gpu]) for gpu in unlinked)]
        if preferred is not None:
            first = _key_of_preferred(self._ledger, node, preferred)
            found.sort(key=lambda gpus: first not in gpus)
        for under_one in found:
            if taken <= under_one:
                yield Scope(frozenset([name]), under_one)


def wide_scopes(
    ledger: Ledger, rooms: Mapping[str, int], near: Nearness, wanted: int
) -> Iterator[Scope]:
    """Sets of several nodes: the fewest nodes of one domain, then of more domains.

    Domains and nodes with room for many members come first. For members that ask for the same,
    without labels, the first scope has the fewest domains, and the fewest nodes of these; for
    others it is an estimate, and larger scopes follow.

    Args:
        ledger: the cluster.
        rooms: node → how many members fit there at most.
        near: the members that are placed already.
        wanted: how many members to find room for.
    """
    home = frozenset([device.node for device in near.home(ledger)])
    domains: dict[str, list[str]] = defaultdict(list)
    for name in _roomiest_first(rooms, rooms):
        if rooms[name] and name in ledger.nodes:
            domains[ledger.nodes[name].domain] += [] if name in home else [name]
    at_home = {ledger.nodes[name].domain for name in home if name in ledger.nodes}
    there = sum(rooms.get(name, 0) for name in home)

    def fewest(nodes: Sequence[str]) -> int:
        sums = accumulate((rooms[name] for name in nodes), initial=there)
        return next((count for count, room in enumerate(sums) if room >= wanted), len(nodes) + 1)

    def growing(nodes: Sequence[str]) -> Iterator[Scope]:
        for count in range(fewest(nodes), len(nodes) + 1):
            yield Scope(home.union(nodes[:count]))

    def most(domain: str) -> tuple[bool, int, str]:
        room = sum(rooms[name] for name in domains[domain])
        return domain not in at_home, -room, natural_name(domain)

    def nearest(domain: str) -> tuple[bool, int, tuple[bool, int, str]]:
        return domain not in at_home, fewest(domains[domain]), most(domain)

    def found() -> Iterator[Scope]:
        for domain in sorted(domains, key=nearest):
            yield from growing(domains[domain])
        largest = sorted(domains, key=most)
        for count in range(2, len(largest) + 1):
            nodes = [name for domain in largest[:count] for name in domains[domain]]
            yield from growing(_roomiest_first(nodes, rooms))

    yield from islice(found(), WIDE_SCOPES)


def _roomiest_first(names: Iterable[str], rooms: Mapping[str, int]) -> list[str]:
    return sorted(names, key=lambda name: (-rooms[name], natural_name(name)))


def _key_of_preferred(ledger: Ledger, node: Node, device: Device) -> _Gpu:
    """The key of a vGPU, or of the free GPU that a new one would be opened on."""
    if device.id in ledger.devices:
        return _key_of(node, device)
    unlinked = device.uuid or FreeGpu(device.model, device.memory_bytes)
    return unlinked if device.row is None else _key(node, device.row, device.uuid)


def _unselectable(node: Node) -> Collection[FreeGpu]:
    """The kinds of the free GPUs that the device plugin of the node chooses."""
    return (Counter(node.free) - Counter([gpu.kind for gpu in node.selectable])).keys()


def _key_of(node: Node, device: Device) -> _Gpu:
    return _key(node, device.number, device.id)


def _key(node: Node, row: int | None, name: str) -> _Gpu:
    return name if row is None or row >= len(node.links) else row
