"""Scenario files of ``kubeshare plan``: a cluster, and what happens to it.

The reader is strict: whatever it does not know is an error with its line. What a
*request* asks for is another matter: a value that no cluster could satisfy is not a
mistake in the file but a question, and its answer is ``rejected``.
"""

from typing import Final, TypeAlias

import msgspec

from kubeshare.core.demand import Demand, Memory
from kubeshare.core.device import Device, FreeGpu, Holder, Node
from kubeshare.core.errors import InvalidValueError, LedgerError, UnknownPolicyError
from kubeshare.core.ledger import Ledger
from kubeshare.core.policies import Policy, policy
from kubeshare.core.units import GI, MICROS, parse_memory, parse_share, parse_size
from kubeshare.dialects.strict_yaml import Field, load, suggestion

DEFAULT_MEMORY: Final = 16 * GI

_TOP = ("policy", "nodes", "quota", "events")
_NODE = ("name", "pool", "gpu", "free", "unhealthy", "vgpus")
_NODE_ELSEWHERE = dict.fromkeys(("gpus", "topology", "topoMatrix"), "policies binpack and topology")
_GPU = ("model", "memory")
_LEFT = ("compute", "memory", "affinity", "antiAffinity", "exclusion", "idle")
_VGPU = ("id", *_LEFT, "holders", "model", "memoryTotal")
_AMOUNTS = ("request", "limit", "memory")
_LABELS = ("affinity", "antiAffinity", "exclusion")
_HOLDER = ("name", *_AMOUNTS, *_LABELS)
_REQUEST = (*_HOLDER, "id", "count", "model", "namespace", "nodes")
_REQUEST_ELSEWHERE = {
    "gpuMem": "policy binpack",
    "gpuCount": "policy binpack",
    "cores": "policy topology",
    "memoryBlocks": "policy topology",
    "group": "quota, which no registered policy has",
}
_MOST_FREE = 100_000


class Request(msgspec.Struct, frozen=True):
    """Somebody asks for a share."""

    demand: Demand


class Refused(msgspec.Struct, frozen=True):
    """Somebody asks for what nobody can have, such as half more than a GPU."""

    name: str
    error: InvalidValueError


class Release(msgspec.Struct, frozen=True):
    """A request or a holder ends."""

    demand_uid: str


class Fail(msgspec.Struct, frozen=True):
    """A GPU fails; `where` complains when there is no such GPU by then."""

    node: str
    device_id: str
    where: Field


Event: TypeAlias = Request | Refused | Release | Fail


class Scenario(msgspec.Struct, frozen=True):
    """A cluster at the start, the policy, and what happens, in order."""

    policy: Policy
    ledger: Ledger
    events: list[Event]


def read_scenario(text: bytes, source: str) -> Scenario:
    """Read a scenario file.

    Args:
        text: its content.
        source: its name, for messages.

    Raises:
        FileError: it says something that it must not; the message names line and field.
    """
    top = load(text, source).mapping(_TOP, required=("policy", "nodes", "events"))
    try:
        chosen = policy(top["policy"].name())
    except UnknownPolicyError as error:
        top["policy"].fail(str(error))
    if "quota" in top:
        top["quota"].fail("no registered policy counts quotas")
    cluster = _Cluster()
    for field in top["nodes"].items():
        cluster.read_node(field)
    events = _Events(cluster)
    return Scenario(chosen, cluster.ledger, [events.read(field) for field in top["events"].items()])


def _uid(name: str) -> str:
    return f"demand/{name}"


class _Cluster:
    """Reads ``nodes`` into a ledger."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.holders: set[str] = set()

    def read_node(self, field: Field) -> None:
        entries = field.mapping(_NODE, required=("name",), foreign=_NODE_ELSEWHERE)
        name = entries["name"].name()
        if name in self.ledger.nodes:
            entries["name"].fail(f"node {name} is there twice")
        if "pool" in entries:
            entries["pool"].name()
        gpu = self._read_gpu(entries.get("gpu"))
        free = entries["free"].whole_number() if "free" in entries else 0
        if not 0 <= free <= _MOST_FREE:
            entries["free"].fail(f"must be from 0 to {_MOST_FREE}")
        self.ledger.add_node(Node(name, (gpu,) * free, frozenset([gpu])))
        for vgpu in entries["vgpus"].items() if "vgpus" in entries else ():
            self._read_vgpu(vgpu, name, gpu)
        for item in entries["unhealthy"].items() if "unhealthy" in entries else ():
            device_id = item.text()
            if not self.has(name, device_id):
                item.fail(f"node {name} has no vGPU {device_id}")
            self.ledger.mark(device_id, healthy=False)

    def has(self, node: str, device_id: str) -> bool:
        """The node has this vGPU now."""
        device = self.ledger.devices.get(device_id)
        return device is not None and device.node == node

    def _read_gpu(self, field: Field | None) -> FreeGpu:
        entries = field.mapping(_GPU) if field else {}
        model = entries["model"].text() if "model" in entries else ""
        return FreeGpu(model, _size(entries["memory"]) if "memory" in entries else DEFAULT_MEMORY)

    def _read_vgpu(self, field: Field, node: str, gpu: FreeGpu) -> None:
        entries = field.mapping(_VGPU, required=("id",))
        device = Device(
            id=entries["id"].name(),
            node=node,
            model=entries["model"].text() if "model" in entries else gpu.model,
            memory=_size(entries["memoryTotal"]) if "memoryTotal" in entries else gpu.memory,
        )
        if "holders" in entries:
            for key in _LEFT:
                if key in entries:
                    entries[key].fail("follows from the holders: give one or the other")
            holders = self._read_holders(entries["holders"], device)
        else:
            holders = _holders_of_what_is_taken(entries, device)
        try:
            self.ledger.add_device(msgspec.structs.replace(device, holders=holders))
        except LedgerError as error:
            field.fail(str(error))

    def _read_holders(self, field: Field, device: Device) -> tuple[Holder, ...]:
        holders = []
        for item in field.items():
            entries = item.mapping(_HOLDER, required=("name",))
            try:
                demand = _demand(entries)
            except InvalidValueError as error:
                entries.get(error.field, item).fail(error.message)
            self.holders.add(demand.name)
            holders.append(Holder.of(demand, device))
        return tuple(holders)


class _Events:
    """Reads ``events``, and follows which names are in use."""

    def __init__(self, cluster: _Cluster) -> None:
        self._cluster = cluster
        self._names = set(cluster.holders)

    def read(self, field: Field) -> Event:
        entries = field.mapping(("request", "release", "fail"))
        if len(entries) != 1:
            field.fail("must be one of request, release and fail")
        if "request" in entries:
            return self._read_request(entries["request"])
        if "release" in entries:
            return self._read_release(entries["release"])
        return self._read_fail(entries["fail"])

    def _read_request(self, field: Field) -> Request | Refused:
        entries = field.mapping(_REQUEST, required=("name",), foreign=_REQUEST_ELSEWHERE)
        name = entries["name"].name()
        if name in self._names:
            entries["name"].fail(f"{name} has asked or holds something already")
        self._names.add(name)
        for item in entries["nodes"].items() if "nodes" in entries else ():
            self._check_node(item)
        try:
            return Request(_demand(entries))
        except InvalidValueError as error:
            return Refused(name, error)

    def _read_release(self, field: Field) -> Release:
        name = field.name()
        if name not in self._names:
            field.fail(f"nobody of that name: {name}{suggestion(name, sorted(self._names))}")
        self._names.discard(name)
        return Release(_uid(name))

    def _read_fail(self, field: Field) -> Fail:
        entries = field.mapping(("node", "gpu"), required=("node", "gpu"))
        self._check_node(entries["node"])
        return Fail(entries["node"].name(), entries["gpu"].name(), entries["gpu"])

    def _check_node(self, field: Field) -> None:
        name, nodes = field.name(), self._cluster.ledger.nodes
        if name not in nodes:
            field.fail(f"no node of that name: {name}{suggestion(name, sorted(nodes))}")


def _demand(entries: dict[str, Field]) -> Demand:
    """The demand of a request or a holder.

    Raises:
        InvalidValueError: a value that nobody can ask for, under its name in the file.
        FileError: a value of the wrong type.
    """
    text = {
        key: entries[key].text() if key in entries else ""
        for key in (*_LABELS, "id", "model", "namespace")
    }
    count = entries["count"].whole_number() if "count" in entries else 1
    nodes = entries["nodes"].items() if "nodes" in entries else None
    written = {key: entries[key].number() for key in _AMOUNTS if key in entries}
    request = parse_share(written.get("request", "0"), "request")
    return Demand(
        uid=_uid(entries["name"].name()),
        name=entries["name"].name(),
        namespace=text["namespace"],
        request=request,
        limit=parse_share(written["limit"], "limit") if "limit" in written else MICROS,
        memory=(
            parse_memory(written["memory"], "memory")
            if "memory" in written
            else Memory(micros=request)
        ),
        affinity=text["affinity"],
        anti_affinity=text["antiAffinity"],
        exclusion=text["exclusion"],
        device_id=text["id"],
        count=count,
        model=text["model"],
        nodes=None if nodes is None else frozenset(node.name() for node in nodes),
    )


def _size(field: Field) -> int:
    try:
        return parse_size(field.number(), field.path)
    except InvalidValueError as error:
        field.fail(error.message)


def _holders_of_what_is_taken(entries: dict[str, Field], device: Device) -> tuple[Holder, ...]:
    """Holders without a name, who take what the file says is not left and carry its labels.

    A holder carries one label of a kind, so there are as many as the longest list of labels.
    """
    compute = memory = 0
    try:
        if "compute" in entries:
            compute = MICROS - parse_share(entries["compute"].number(), "compute")
        if "memory" in entries:
            left = parse_memory(entries["memory"].number(), "memory")
            memory = device.memory - left.on(device.memory)
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
            request=0 if index else compute,
            memory=0 if index else memory,
            affinity=affinities[index] if index < len(affinities) else "",
            anti_affinity=anti_affinities[index] if index < len(anti_affinities) else "",
            exclusion=exclusion,
        )
        for index in range(0 if idle else max(1, len(affinities), len(anti_affinities)))
    )


def _labels(field: Field | None) -> list[str]:
    return [item.name() for item in field.items()] if field else []
