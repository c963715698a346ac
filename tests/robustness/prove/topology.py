"""Episodes for the topology policy: few nodes of all shapes, fractions and whole GPUs."""

import random
from collections.abc import Iterator
from itertools import count

import msgspec

from core.policies.slow_topology import Answer, slow_decide
from core.topology.topologies import CUBE_MESH, DGX_1, TREES, mesh
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand, Memory
from kubeshare.core.ledger.device import Device, FreeGpu, Node, SelectableGpu
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.topology.policy import decide
from kubeshare.core.topology import Level, Links, nvlink
from kubeshare.core.units import MICROS
from robustness.prove.binpack import labels_of
from robustness.prove.engine import BY_NAMESPACE, Step, Trial

NODES = ("n1", "n2", "n10")
SHAPES = (*TREES.values(), CUBE_MESH, DGX_1, mesh(5, [(0, 1), (1, 2), (3, 4)], Level.PHB), ())
LEVELS = (
    tuple(level for level in Level if level > Level.NVLINK),
    (Level.NVLINK, Level.SYS),
    (nvlink(4), nvlink(2), nvlink(1), Level.SYS),
    (Level.NVLINK, Level.PIX, Level.SYS),
)
SHARES = (0, 1, 100_000, 200_000, 333_333, 500_000, 600_000, 900_000, 999_999)
SIZES = (0, 0, 1, 4, 16, 20, 40, 64, 65)
WANTED = (None, None, None, frozenset(["n1"]), frozenset(["n2", "n10"]))


def in_short(decision: Decision) -> Answer:
    """As the slow policy answers: a new device is named by its GPU."""
    new = {device.id: f"new on {device.uuid}" if device.uuid else "new" for device in decision.new}
    ids = tuple(new.get(device_id, device_id) for device_id in decision.devices)
    return decision.outcome, decision.node, ids


def branch(ledger: Ledger, demand: Demand, decision: Decision) -> str:
    """By which of the paper's algorithms a demand was answered, and how."""
    if decision.outcome == "rejected":
        return f"rejected: {decision.field}"
    rule = "Fragment"
    if demand.request_micros == MICROS:
        rule = "Singular" if demand.count == 1 else "Link"
    if decision.outcome == "pending":
        return f"{rule}: waits"
    if decision.created:
        chosen = any(device.uuid for device in decision.new)
        return f"{rule}: opens a vGPU, {'selected' if chosen else 'as the plugin selects'}"
    found = "idle" if ledger.devices[decision.devices[0]].idle else "in use"
    nodes = "one node" if len(ledger.nodes) == 1 else "several nodes"
    return f"{rule}: {found}, {nodes}{labels_of(demand)}"


def episode(source: random.Random) -> list[Step]:
    """A cluster comes, then whatever may happen happens."""
    names = count()
    known: list[Demand] = []
    steps: list[Step] = [BY_NAMESPACE] if source.random() < 0.3 else []
    for name in source.sample(NODES, source.choice((1, 1, 2, 3))):
        steps += node_and_devices(source, name)
    for _ in range(source.randint(20, 60)):
        steps += _happens(source, names, known)
    return steps


def node_and_devices(source: random.Random, name: str) -> Iterator[Step]:
    """A node with its GPUs, most of them numbered as its links are."""
    links = _links(source)
    size = len(links) or source.randint(0, 4)
    models = source.choice((("M40",), ("M40",), ("M40", "P4")))
    sizes = source.choice(((64,), (64,), (64, 32, 16)))
    numbered = source.random() > 0.05
    devices = [
        Device(
            id=f"{name}/{index}",
            node=name,
            index=index if numbered or source.random() < 0.5 else None,
            model=source.choice(models),
            memory_bytes=source.choice(sizes),
        )
        for index in range(size)
        if source.random() > 0.03
    ]
    # Of some nodes a part of the GPUs is free: known by UUID, or by kind only.
    free = source.choice((0.0, 0.0, 0.4, 1.0))
    selects = source.random() < 0.5
    opens = [device for device in devices if source.random() < free]
    yield "node", _with_free(source, Node(name, links=links), opens, selects=selects)
    for device in devices:
        if device not in opens:
            yield "device", device


def _with_free(source: random.Random, node: Node, gpus: list[Device], *, selects: bool) -> Node:
    """A node whose free GPUs these devices are."""
    kinds = [FreeGpu(gpu.model, gpu.memory_bytes) for gpu in gpus]
    selectable = [
        SelectableGpu(uuid=f"GPU-{gpu.id}", row=gpu.index, kind=kind)
        for gpu, kind in zip(gpus, kinds, strict=True)
        if selects and source.random() < 0.95
    ]
    return msgspec.structs.replace(node, free=tuple(kinds), selectable=tuple(selectable))


def random_demand(source: random.Random, name: str) -> Demand:
    """A fraction as often as whole GPUs, now and then what the policy does not know."""
    pick = source.choice
    whole = source.random() < 0.5
    several = pick((1, 1, 2, 2, 3, 4, 5, 8))
    return Demand(
        uid=name,
        name=name,
        request_micros=MICROS if whole else pick(SHARES),
        memory=Memory(bytes=pick(SIZES)) if source.random() < 0.6 else Memory(micros=500_000),
        count=several if whole or source.random() < 0.02 else 1,
        affinity=pick(("",) * 12 + ("red", "blue")),
        anti_affinity=pick(("",) * 6 + ("g", "h")),
        exclusion=pick(("",) * 10 + ("e",)),
        namespace=pick("ab"),
        device_id=pick(("",) * 80 + ("n1/0",)),
        model=pick(("",) * 16 + ("M40", "M40", "P4", "V100")),
        nodes=pick(WANTED),
    )


def _happens(source: random.Random, names: Iterator[int], known: list[Demand]) -> Iterator[Step]:
    dice = source.random()
    if dice < 0.4:
        # Most of those known wait or were rejected, and have nothing to give back.
        for demand in source.sample(known, min(len(known), 3)):
            known.remove(demand)
            yield "release", demand.uid
    elif dice < 0.5:
        yield _trouble(source)
    elif dice < 0.53:
        steps: list[Step] = [_trouble(source) for _ in range(3)]
        steps += [("release", demand.uid) for demand in source.sample(known, len(known) // 2)]
        yield "what if", steps
    for _ in range(2):
        known.append(random_demand(source, f"p{next(names)}"))
        yield "ask", known[-1]


def _trouble(source: random.Random) -> Step:
    name = source.choice(NODES)
    device_id = f"{name}/{source.randint(0, 5)}"
    healthy, fenced = source.random() < 0.5, source.random() < 0.2
    steps: list[Step] = [
        ("mark", (device_id, healthy, fenced)),
        ("mark", (device_id, True, False)),
        ("mark", (device_id, True, False)),
        ("remove", device_id),
        ("free", (name, (FreeGpu("M40", 64),) * source.randint(0, 2))),
        ("device", Device(id=device_id, node=name, index=int(device_id[-1]), memory_bytes=64)),
    ]
    if source.random() < 0.1:
        steps = [("forget", name), ("node", Node(name, links=_links(source)))]
    return source.choice(steps)


def _links(source: random.Random) -> Links:
    if source.random() < 0.8:
        return source.choice(SHAPES)
    size = source.randint(1, 6)
    levels = source.choice(LEVELS)
    links = [[0] * size for _ in range(size)]
    for row in range(size):
        for column in range(row):
            links[row][column] = links[column][row] = source.choice(levels)
    return tuple(tuple(row) for row in links)


TOPOLOGY = Trial("topology", decide, slow_decide, in_short, episode, branch)
