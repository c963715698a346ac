"""Draws small clusters and demands that collide often."""

from collections.abc import Iterator
from random import Random
from typing import Final

import msgspec

from kubeshare.core.demand import Demand, Memory, Share
from kubeshare.core.errors import LedgerError
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.topology import read_notation
from kubeshare.core.units import GI, MICROS

_KINDS: Final = (FreeGpu("V100", 16 * GI), FreeGpu("V100", 32 * GI), FreeGpu("A100", 40 * GI))
_NAMES: Final = ("n1", "n2", "n10", "n3")
_LABELS: Final = ("", "", "", "red", "blue")
_REQUESTS: Final = (0, 1, 100_000, 300_000, 333_333, 500_000, 900_000, MICROS)
_MEMORIES: Final = (
    Memory(bytes=0),
    Memory(bytes=4 * GI),
    Memory(bytes=20 * GI),
    Memory(micros=250_000),
    Memory(micros=MICROS),
    Memory(bytes=64 * GI),
)


def clusters(random: Random) -> Ledger:
    """A cluster of up to four nodes with up to four GPUs each, and some holders."""
    nodes, devices = [], []
    for name in random.sample(_NAMES, random.randint(1, len(_NAMES))):
        kind, count = random.choice(_KINDS), random.randint(0, 4)
        free = tuple(random.choices(_KINDS, k=random.choice((0, 0, 1, 2))))
        links = read_notation("SYS(PIX(0,1),PIX(2,3))", "links") if random.random() < 0.3 else None
        nodes.append(Node(name, free, links=links) if links else Node(name, free))
        devices += [_device(random, name, kind, index) for index in range(count)]
    ledger = Ledger(nodes, devices)
    for number in range(random.randint(0, 8)):
        _hold(random, ledger, f"holder-{number}")
    for device in random.sample(devices, len(devices) // 4):
        ledger.mark(device.id, healthy=random.random() < 0.5, fenced=random.random() < 0.5)
    return ledger


def demands(random: Random, ledger: Ledger) -> Iterator[Demand]:
    """Demands for a cluster, of every form."""
    gpuids = ["mine", *(device.name for device in ledger.devices.values())]
    for number in range(6):
        form = random.random()
        if form < 0.1:
            yield _of_shares(random, f"demand-{number}")
        elif form < 0.2:
            yield _demand(random, f"demand-{number}", device_id=random.choice(gpuids))
        else:
            count = random.choice((1, 1, 1, 1, 2, 3))
            yield _demand(random, f"demand-{number}", count=count)


def shuffled(random: Random, ledger: Ledger) -> Ledger:
    """The same cluster, which lists its nodes and GPUs in another order."""
    nodes, devices = list(ledger.nodes.values()), list(ledger.devices.values())
    random.shuffle(nodes)
    random.shuffle(devices)
    return Ledger(nodes, devices, label_scope=ledger.label_scope)


def described(ledger: Ledger) -> str:
    """A cluster in lines, for people."""
    lines = []
    for node in ledger.nodes.values():
        free = ", ".join(f"{kind.model} {kind.memory_bytes // GI}Gi" for kind in node.free)
        lines.append(f"  node {node.name}: free GPUs: {free or 'none'}")
    for device in ledger.devices.values():
        state = "" if device.healthy else ", unhealthy"
        state += ", fenced" if device.fenced else ""
        left = f"{device.compute_left} of {MICROS} and {device.memory_left / GI:g}Gi left"
        lines.append(
            f"  GPU {device.path}: {device.model} {device.memory_bytes // GI}Gi, {left}{state}"
        )
        lines += [f"    {brief(holder)}" for holder in device.holders]
    return "\n".join(lines)


def brief(value: msgspec.Struct) -> str:
    """A demand or a holder, without the fields that have their default."""
    fields = msgspec.structs.fields(value)
    given = {each.name: getattr(value, each.name) for each in fields}
    words = [
        f"{each.name}={given[each.name]!r}" for each in fields if given[each.name] != each.default
    ]
    return f"{type(value).__name__}({', '.join(words)})"


def _device(random: Random, node: str, kind: FreeGpu, index: int) -> Device:
    name = f"{node}-gpu-{index}"
    number = index if random.random() < 0.5 else None
    return Device(
        id=name, node=node, index=number, model=kind.model, memory_bytes=kind.memory_bytes
    )


def _hold(random: Random, ledger: Ledger, name: str) -> None:
    """Let a demand hold a GPU of the cluster, if it fits on the one that is drawn."""
    demand = _demand(random, name)
    if ledger.devices:
        try:
            ledger.place(demand, random.choice(sorted(ledger.devices)))
        except LedgerError:
            return


def _demand(random: Random, name: str, *, count: int = 1, device_id: str = "") -> Demand:
    return Demand(
        uid=name,
        name=name,
        namespace=random.choice(("team-a", "team-b")),
        request_micros=random.choice(_REQUESTS),
        memory=random.choice(_MEMORIES),
        affinity=random.choice(_LABELS),
        anti_affinity=random.choice(_LABELS),
        exclusion=random.choice(_LABELS),
        count=count,
        device_id=device_id,
        model=random.choice(("", "", "", "V100", "A100", "T4")),
        nodes=random.choice((None, None, frozenset(_NAMES[:2]), frozenset(_NAMES[2:]))),
    )


def _of_shares(random: Random, name: str) -> Demand:
    shares = [
        Share(
            name=share,
            request_micros=random.choice(_REQUESTS),
            memory=random.choice(_MEMORIES[:4]),
            containers=containers,
        )
        for share, containers in (("model", ("main",)), ("cache", ("sidecar",)))
    ]
    return Demand(uid=name, name=name, namespace="team-a", shares=tuple(shares))
