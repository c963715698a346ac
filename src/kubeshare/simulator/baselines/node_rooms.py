"""What is left of each node, kept as a ledger changes."""

from collections import defaultdict
from collections.abc import Hashable
from typing import Final

import msgspec

from kubeshare.core.constraints.affinity_labels import is_label_in_use
from kubeshare.core.constraints.checks import labels_admit, takes_holders
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.index.node_devices import NodeDevices
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.natural_sort import natural_name
from kubeshare.core.units import MICROS, Memory
from kubeshare.simulator.engine.host_room import HostRoom
from kubeshare.simulator.jobs import NO_HOST_REQUEST, HostRequest

_NO_MEMORY: Final = Memory(bytes=0)
_MAX_HOSTS: Final = 4096


class GpuRoom(msgspec.Struct, frozen=True, order=True, gc=False):
    """A GPU, with the device itself, which tells whether labels admit a job.

    Attributes:
        index: of the GPU on its node.
        id: of its device.
        micros, memory_left: what is left.
        memory_bytes: its memory.
        unlabelled: whether it takes a job without labels.
        state: all that ranks and labels look at; equal for GPUs that are alike.
    """

    index: int
    id: str
    micros: int
    memory_left: int
    memory_bytes: int
    device: Device
    unlabelled: bool
    state: Hashable

    @classmethod
    def of(cls, device: Device) -> "GpuRoom":
        """What is left of a device."""
        micros, memory_left, takes = device.compute_left, device.memory_left, takes_holders(device)
        labels = device.affinities, device.anti_affinities, device.exclusions
        return cls(
            device.index or 0,
            device.id,
            micros,
            memory_left,
            device.memory_bytes,
            device,
            takes and not any(device.exclusions),
            (micros, memory_left, device.memory_bytes, takes, device.idle, labels),
        )


class NodeRoom(msgspec.Struct, frozen=True, gc=False):
    """A node: what is left of its GPUs, in order, and of its CPUs; the model of its GPUs.

    Attributes:
        left: the micros that are left of the GPUs, in ascending order.
    """

    name: str
    gpus: tuple[GpuRoom, ...]
    cpu_millis: int
    model: str
    left: tuple[int, ...]

    @property
    def micros(self) -> int:
        """What is left of all its GPUs."""
        return sum(gpu.micros for gpu in self.gpus)


class Ask(msgspec.Struct, frozen=True, gc=False):
    """What a job asks for: micros and memory of each of so many GPUs, and of the node.

    Attributes:
        micros, memory, count, model, host: as in its demand and its request of the node.
        labelled: the demand without what identifies it, if it has labels.
        label_in_use: whether a GPU has its affinity label.
    """

    micros: int
    memory: Memory
    count: int
    model: str = ""
    host: HostRequest = NO_HOST_REQUEST
    labelled: Demand | None = None
    label_in_use: bool = False

    @classmethod
    def of(cls, demand: Demand, host: HostRequest, *, label_in_use: bool = False) -> "Ask":
        """What a demand in the short form asks for."""
        labels = demand.affinity or demand.anti_affinity or demand.exclusion
        return cls(
            demand.request_micros,
            demand.memory,
            demand.count,
            demand.model,
            host,
            demand.kind() if labels else None,
            label_in_use,
        )

    def fitting(self, room: NodeRoom) -> list[GpuRoom] | None:
        """The GPUs of a node with room for it; None if they are fewer than it asks for."""
        if self.count and self.model not in ("", room.model):
            return None
        micros, on, plain = self.micros, self.memory.on, self.labelled is None
        memory_bytes, needed = -1, 0  # GPUs of a node are mostly alike
        fits = []
        for gpu in room.gpus:
            if gpu.micros < micros:
                continue
            if gpu.memory_bytes != memory_bytes:
                memory_bytes = gpu.memory_bytes
                needed = on(memory_bytes)
            if gpu.memory_left >= needed and (
                gpu.unlabelled if plain else self._admitted_to(gpu.device)
            ):
                fits.append(gpu)
        return fits if len(fits) >= self.count else None

    def _admitted_to(self, device: Device) -> bool:
        """Whether the labels of a GPU admit it, and the GPU takes holders."""
        assert self.labelled is not None
        return takes_holders(device) and labels_admit(
            device, self.labelled, label_in_use=self.label_in_use
        )

    @property
    def shares(self) -> bool:
        """Whether it asks for less than a whole GPU."""
        return self.count == 1 and self.micros < MICROS


class NodeRooms:
    """An index of a ledger: what is left of its nodes, and which of them have changed.

    Attributes:
        names: the nodes, in natural order.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.names = sorted(ledger.nodes, key=lambda name: (natural_name(name), name))
        self._ledger = ledger
        self._on = ledger.index(NodeDevices)
        self._stale: list[set[str]] = []
        self._gpus: dict[str, dict[str, GpuRoom]] = {}  # by node and id, in order
        self._changed: defaultdict[str, dict[str, Device]] = defaultdict(dict)  # likewise
        self._hosts: dict[HostRequest, HostRequest] = {}
        self._host: HostRoom | None = None

    def attach(self, host: HostRoom | None) -> None:
        """Follow CPU and memory of the nodes, if the simulation knows them."""
        self._host = host
        if host is not None:
            host.listeners.append(self.touch)

    def follow(self, stale: set[str]) -> None:
        """Add the name of each node that changes from now on to a set."""
        self._stale.append(stale)

    def of(self, name: str) -> NodeRoom:
        """What is left of a node."""
        known = self._gpus.get(name)
        if known is None:
            in_order = sorted(map(GpuRoom.of, self._on.on(name)))
            known = self._gpus[name] = {gpu.id: gpu for gpu in in_order}
            self._changed[name].clear()
        else:
            changed = self._changed[name]
            while changed:
                device = changed.popitem()[1]
                known[device.id] = GpuRoom.of(device)  # at its place
        gpus = tuple(known.values())
        model = gpus[0].device.model if gpus else ""
        cpu_millis = self._host.left(name)[0] if self._host else 0
        return NodeRoom(name, gpus, cpu_millis, model, tuple(sorted([gpu.micros for gpu in gpus])))

    def ask(self, demand: Demand) -> Ask:
        """What a demand asks for; not the memory of the node, which no rank looks at."""
        label_in_use = is_label_in_use(self._ledger, demand)
        return Ask.of(demand, self.host_of(demand), label_in_use=label_in_use)

    def host_of(self, demand: Demand) -> HostRequest:
        """What the job of a demand requests of its node beside GPUs, without the memory."""
        known = self._host.requests.get(demand.service) if self._host else None
        return self._without_memory(known) if known else NO_HOST_REQUEST

    def ask_of_host(self, host: HostRequest) -> Ask:
        """What a job asks for that uses no GPU; not the memory either."""
        return Ask(0, _NO_MEMORY, 0, "", self._without_memory(host))

    def candidates(self, host: HostRequest) -> frozenset[str] | None:
        """The nodes with CPU and memory for a job; None for all."""
        return self._host.candidates(host) if self._host else None

    def touch(self, name: str) -> None:
        """Note that a node has changed."""
        for stale in self._stale:
            stale.add(name)

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        """Note the node of a device."""
        device = after or before
        assert device is not None
        if after is not None and device.id in self._gpus.get(device.node, ()):
            self._changed[device.node][device.id] = after
        else:
            self._gpus.pop(device.node, None)
        self.touch(device.node)

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        """Note a node."""
        known = after or before
        assert known is not None
        self.touch(known.name)

    def _without_memory(self, host: HostRequest) -> HostRequest:
        known = self._hosts.get(host)
        if known is None:
            if len(self._hosts) >= _MAX_HOSTS:
                self._hosts.clear()
            known = self._hosts[host] = msgspec.structs.replace(host, memory_bytes=0)
        return known
