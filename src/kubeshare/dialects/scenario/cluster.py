"""Reader of the ``nodes`` of a scenario file."""

from typing import Final

import msgspec

from kubeshare.core.demand import LabelScope
from kubeshare.core.errors import InvalidValueError, LedgerError
from kubeshare.core.gpuid import hashed_name
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.holder import Holder
from kubeshare.core.ledger.index.gpuids import GpuidIndex
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.topology import Links, read_matrix, read_notation
from kubeshare.core.units import GI, MICROS, Memory, parse_memory, parse_share, parse_size
from kubeshare.dialects.scenario.request import Entries, Family, foreign, read_holder
from kubeshare.dialects.scenario.strict_yaml import Field, suggestion

DEFAULT_MEMORY: Final = 16 * GI
"""Bytes of a GPU's memory if the file does not give them."""

_NODE = ("name", "pool", "domain", "gpu", "free", "unhealthy", "vgpus", "owned", "placement")
_NUMBERED = ("gpus", "topology", "topoMatrix")
_PLACEMENTS = ("binpack", "spread")
_GPU = ("model", "memory")
_LEFT = ("compute", "memory", "affinity", "antiAffinity", "exclusion", "idle")
_VGPU = ("id", *_LEFT, "holders", "model", "memoryTotal")
_MAX_GPUS = 100_000


class Cluster:
    """The cluster of a scenario.

    Args:
        family: the manifest family of the policy.
        label_scope: whether labels of different namespaces can be equal.

    Attributes:
        ledger: the nodes that were read.
        holders: the names of all initial holders.
    """

    def __init__(self, family: Family, label_scope: LabelScope = "cluster") -> None:
        self.ledger = Ledger(label_scope=label_scope)
        self.holders: set[str] = set()
        self._family = family
        self._numbered: dict[tuple[str, str], str] = {}  # node, number -> id in the ledger

    def find(self, node: str, name: str) -> Device | None:
        """The GPU with this name on a node; None if there is none."""
        return next(iter(self.ledger.index(GpuidIndex).find(node, name)), None)

    def check_node(self, field: Field) -> str:
        """The name of an existing node."""
        name, nodes = field.name(), self.ledger.nodes
        if name not in nodes:
            field.fail(f"no node of that name: {name}{suggestion(name, sorted(nodes))}")
        return name

    def read_node(self, field: Field) -> None:
        """Read an entry of ``nodes``."""
        entries = field.mapping(_NODE + _NUMBERED, required=("name",))
        self._check_gpus(entries)
        name = entries["name"].name()
        if name in self.ledger.nodes:
            entries["name"].fail(f"node {name} is there twice")
        gpu = _read_gpu(entries.get("gpu"))
        links = _read_links(entries)
        free = _count(entries["free"]) if "free" in entries else 0
        pool = entries["pool"].text() if "pool" in entries else ""
        spread = "placement" in entries and self._read_placement(entries["placement"]) == "spread"
        domain = entries["domain"].text() if "domain" in entries else ""
        node = Node(name, (gpu,) * free, frozenset([gpu]), links=links, spread=spread)
        self.ledger.add_node(msgspec.structs.replace(node, pool=pool, domain=domain))
        numbered = {device.id: device for device in self._numbered_gpus(entries, name, gpu, links)}
        devices = dict(numbered)
        listed: set[str] = set()
        for item in entries["vgpus"].items() if "vgpus" in entries else ():
            device = self._read_vgpu(item, name, gpu, numbered, listed)
            devices[device.id] = device
        for device in devices.values():
            self.ledger.add_device(device)
        for item in entries["unhealthy"].items() if "unhealthy" in entries else ():
            failed = self.find(name, item.id())
            if failed is None:
                item.fail(f"node {name} has no vGPU {item.id()}")
            self.ledger.mark(failed.id, healthy=False)

    def _check_gpus(self, entries: Entries) -> None:
        """Check that the fields about its GPUs fit the policy and who owns them."""
        owned = "owned" in entries and entries["owned"].boolean()
        for key in entries.keys() & set(_NUMBERED):
            if not self._family.numbered and not owned:
                entries[key].fail("is a field of policies binpack and topology, and of owned nodes")
        if owned and "free" in entries:
            entries["free"].fail("an owned node has no free GPU: each of its GPUs is a vGPU")

    def _read_placement(self, field: Field) -> str:
        """How shares are placed on the GPUs of a node, as the label of gpushare nodes says."""
        if not self._family.spreads:
            field.fail("is a field of policy binpack")
        if (placement := field.name()) not in _PLACEMENTS:
            field.fail(f"must be {' or '.join(_PLACEMENTS)}")
        return placement

    def _numbered_gpus(
        self, entries: Entries, node: str, gpu: FreeGpu, links: Links
    ) -> list[Device]:
        """The GPUs "0", "1", … of a node whose GPUs are numbered."""
        count = _count(entries["gpus"]) if "gpus" in entries else len(links)
        if links and count != len(links):
            entries["gpus"].fail(f"{count} GPUs, and the topology names {len(links)}")
        return [self._number(node, index, gpu) for index in range(count)]

    def _number(self, node: str, index: int, gpu: FreeGpu) -> Device:
        device_id = f"{node}/{index}"
        self._numbered[node, str(index)] = device_id
        return Device(
            id=device_id, node=node, index=index, model=gpu.model, memory_bytes=gpu.memory_bytes
        )

    def _read_vgpu(
        self, field: Field, node: str, gpu: FreeGpu, numbered: dict[str, Device], listed: set[str]
    ) -> Device:
        entries = field.mapping(_VGPU, required=("id",))
        name = entries["id"].id()
        if name in listed:
            entries["id"].fail(f"node {node} has {name} twice")
        listed.add(name)
        device = self._named(entries["id"], node, gpu, numbered)
        device = msgspec.structs.replace(
            device,
            model=entries["model"].text() if "model" in entries else gpu.model,
            memory_bytes=_size(entries["memoryTotal"])
            if "memoryTotal" in entries
            else gpu.memory_bytes,
        )
        if "holders" in entries:
            for key in _LEFT:
                if key in entries:
                    entries[key].fail("follows from the holders: give one or the other")
            holders = self._read_holders(entries["holders"], device)
        else:
            holders = _holders_of_taken(entries, device)
        device = msgspec.structs.replace(device, holders=holders)
        try:
            Ledger([], [device])
        except LedgerError as error:
            field.fail(str(error))
        return device

    def _named(self, field: Field, node: str, gpu: FreeGpu, numbered: dict[str, Device]) -> Device:
        """The GPU that an entry of ``vgpus`` describes.

        A node without ``gpus`` has the GPUs that it lists.
        """
        name = field.id()
        if (node, name) in self._numbered:
            return numbered[self._numbered[node, name]]
        if not self._family.pooled:
            if numbered or not name.isdecimal():
                has = f"only 0 to {len(numbered) - 1}" if numbered else "they are numbered from 0"
                field.fail(f"node {node} has no GPU {name}, {has}")
            return self._number(node, int(name), gpu)
        if name in self.ledger.devices:
            own = hashed_name(node, name)
            return Device(id=own, node=node, gpuid=name, memory_bytes=gpu.memory_bytes)
        return Device(id=name, node=node, memory_bytes=gpu.memory_bytes)

    def _read_holders(self, field: Field, device: Device) -> tuple[Holder, ...]:
        holders = []
        for item in field.items():
            entries = item.mapping(
                self._family.holder,
                required=("name",),
                foreign=_without(foreign(self._family), self._family.holder),
            )
            try:
                demand = read_holder(entries, self._family)
            except InvalidValueError as error:
                entries.get(error.field, item).fail(error.message)
            self.holders.add(demand.name)
            holders.append(Holder.of(demand, device.memory_bytes))
        return tuple(holders)


def _without(fields: dict[str, str], known: tuple[str, ...]) -> dict[str, str]:
    return {key: where for key, where in fields.items() if key not in known}


def _read_gpu(field: Field | None) -> FreeGpu:
    entries = field.mapping(_GPU) if field else {}
    model = entries["model"].text() if "model" in entries else ""
    return FreeGpu(model, _size(entries["memory"]) if "memory" in entries else DEFAULT_MEMORY)


def _read_links(entries: Entries) -> Links:
    """The links between the GPUs, from ``topology`` or ``topoMatrix``."""
    if "topology" in entries and "topoMatrix" in entries:
        entries["topoMatrix"].fail("says the same as topology: give one or the other")
    for key, read in (("topology", read_notation), ("topoMatrix", read_matrix)):
        if key in entries:
            try:
                return read(entries[key].text(), key)
            except InvalidValueError as error:
                entries[key].fail(error.message)
    return ()


def _count(field: Field) -> int:
    count = field.whole_number()
    if not 0 <= count <= _MAX_GPUS:
        field.fail(f"must be from 0 to {_MAX_GPUS}")
    return count


def _size(field: Field) -> int:
    try:
        return parse_size(field.number(), field.path)
    except InvalidValueError as error:
        field.fail(error.message)


def _left_memory(text: str) -> Memory:
    """The memory left on a GPU, perhaps none: a share of it up to 1, else a size."""
    left = parse_memory(text, "memory")
    return Memory(bytes=parse_size(text, "memory")) if left.bytes else left


def _holders_of_taken(entries: Entries, device: Device) -> tuple[Holder, ...]:
    """Holders without a name that hold what the file says is not left, with its labels.

    A holder has one label of each kind, so there are as many as the longest list of labels.
    """
    compute = memory = 0
    try:
        if "compute" in entries:
            compute = MICROS - parse_share(entries["compute"].number(), "compute")
        if "memory" in entries:
            left = _left_memory(entries["memory"].number())
            memory = device.memory_bytes - left.on(device.memory_bytes)
    except InvalidValueError as error:
        entries[error.field].fail(error.message)
    if memory < 0:
        entries["memory"].fail("more is left than the GPU has")
    affinities = _labels(entries.get("affinity"))
    anti_affinities = _labels(entries.get("antiAffinity"))
    exclusion = entries["exclusion"].text() if "exclusion" in entries else ""
    taken = bool(compute or memory or affinities or anti_affinities or exclusion)
    idle = entries["idle"].boolean() if "idle" in entries else not taken
    if idle and taken:
        entries["idle"].fail("an idle vGPU has everything left and no labels")
    return tuple(
        Holder(
            demand=f"taken/{device.id}/{index}",
            name="",
            request_micros=0 if index else compute,
            memory_bytes=0 if index else memory,
            affinity=affinities[index] if index < len(affinities) else "",
            anti_affinity=anti_affinities[index] if index < len(anti_affinities) else "",
            exclusion=exclusion,
        )
        for index in range(0 if idle else max(1, len(affinities), len(anti_affinities)))
    )


def _labels(field: Field | None) -> list[str]:
    return [item.name() for item in field.items()] if field else []
