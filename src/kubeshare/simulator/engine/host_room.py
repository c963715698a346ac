"""CPU and memory of nodes, and which nodes have room.

The scheduler computes from CPU and memory which nodes a pod may use, and passes these to the
policy as ``Demand.nodes``. So does the simulator: the core knows nothing of CPUs.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural_name
from kubeshare.simulator.jobs import HostRequest


class HostCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has beside GPUs: thousandths of a CPU, bytes, and the model of its GPUs."""

    cpu_millis: int
    memory_bytes: int
    model: str = ""


MAX_CANDIDATES: Final = 512
"""The most requests whose nodes are kept; at one more all are computed anew."""


class _Candidates:
    """The nodes with room for a request, and the nodes that have changed since."""

    def __init__(self, nodes: Iterable[str]) -> None:
        self.nodes: frozenset[str] = frozenset()
        self.stale = set(nodes)

    def refresh(self, room: set[str]) -> None:
        """Set which of the changed nodes have room."""
        if room != self.stale & self.nodes:
            self.nodes = self.nodes - self.stale | room
        self.stale.clear()


class HostRoom:
    """An index of a ledger: what the holders leave of CPU and memory of each node.

    What a holder takes of its node is known by its ``group``, which is the ``service`` of its
    demand: the key of the :class:`HostRequest` of its job. A demand takes it once, however many
    GPUs it holds.

    Attributes:
        requests: key of each request that is counted → the request.
        capacity: name of each node → what it has.
        listeners: called with the name of a node when something of it is taken or given back.
    """

    def __init__(self, ledger: Ledger) -> None:
        assert not ledger.devices or all(each.idle for each in ledger.devices.values())
        self.requests: dict[str, HostRequest] = {}
        self.capacity: Mapping[str, HostCapacity] = {}
        self._candidates: dict[HostRequest, _Candidates] = {}
        self._cpu: dict[str, int] = {}
        self._memory: dict[str, int] = {}
        self.listeners: list[Callable[[str], None]] = []
        self._shares: Counter[str] = Counter()  # uid of a demand -> how many devices it holds

    def set_capacity(self, capacity: Mapping[str, HostCapacity]) -> None:
        """Set what the nodes have, before anything is placed."""
        self.capacity = capacity
        self._candidates.clear()
        self._cpu = {name: each.cpu_millis for name, each in capacity.items()}
        self._memory = {name: each.memory_bytes for name, each in capacity.items()}

    def left(self, node: str) -> tuple[int, int]:
        """Thousandths of a CPU and bytes that are left of a node."""
        return self._cpu[node], self._memory[node]

    def candidates(self, request: HostRequest) -> frozenset[str]:
        """The nodes with room for a request."""
        known = self._candidates.get(request)
        if known is None:
            if len(self._candidates) >= MAX_CANDIDATES:
                self._candidates.clear()
            known = self._candidates[request] = _Candidates(self.capacity)
        if known.stale:
            known.refresh({name for name in known.stale if self._has_room(name, request)})
        return known.nodes

    def emptiest(self, request: HostRequest) -> str | None:
        """Of the nodes with room the one with the largest part left; None if none has room."""
        return min(self.candidates(request), key=lambda name: self._place(name, -1), default=None)

    def fullest(self, request: HostRequest) -> str | None:
        """Of the nodes with room the one with the least part left; None if none has room."""
        return min(self.candidates(request), key=lambda name: self._place(name, 1), default=None)

    def ever_fits(self, request: HostRequest) -> bool:
        """Whether an empty node has room for a request."""
        return any(
            each.cpu_millis >= request.cpu_millis
            and each.memory_bytes >= request.memory_bytes
            and (not request.models or each.model in request.models)
            for each in self.capacity.values()
        )

    def take(self, node: str, request: HostRequest) -> None:
        """Take room of a node."""
        self._cpu[node] -= request.cpu_millis
        self._memory[node] -= request.memory_bytes
        self._changed(node)

    def give_back(self, node: str, request: HostRequest) -> None:
        """Give room of a node back."""
        self._cpu[node] += request.cpu_millis
        self._memory[node] += request.memory_bytes
        self._changed(node)

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """Follow the holders of a device."""
        was = {holder.demand: holder for holder in before.holders} if before else {}
        now = {holder.demand: holder for holder in after.holders} if after else {}
        for uid in was.keys() - now.keys():
            self._shares[uid] -= 1
            request = self.requests.get(was[uid].group)
            if not self._shares[uid]:
                del self._shares[uid]
                if request is not None and before is not None:
                    self.give_back(before.node, request)
        for uid in now.keys() - was.keys():
            self._shares[uid] += 1
            request = self.requests.get(now[uid].group)
            if self._shares[uid] == 1 and request is not None and after is not None:
                self.take(after.node, request)

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """Ignore a change of the GPUs of a node."""

    def _changed(self, node: str) -> None:
        for known in self._candidates.values():
            known.stale.add(node)
        for listener in self.listeners:
            listener(node)

    def _has_room(self, node: str, request: HostRequest) -> bool:
        return (
            self._cpu[node] >= request.cpu_millis
            and self._memory[node] >= request.memory_bytes
            and (not request.models or self.capacity[node].model in request.models)
        )

    def _place(self, node: str, sign: int) -> tuple[float, str]:
        """What is left of CPU and memory, in parts; then the name."""
        has = self.capacity[node]
        left = self._cpu[node] / max(1, has.cpu_millis)
        left += self._memory[node] / max(1, has.memory_bytes)
        return sign * left, natural_name(node)
