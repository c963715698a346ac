"""Episodes for the binpack policy: few nodes, GPUs of few sizes, full and half empty."""

import random
from collections.abc import Iterator
from itertools import count

from core.policies.slow_binpack import slow_decide
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand, Memory
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.binpack.policy import decide
from robustness.prove.engine import BY_NAMESPACE, Step, Trial

KINDS = (FreeGpu("V100", 16), FreeGpu("V100", 8), FreeGpu("A100", 11), FreeGpu("", 16))
NODES = ("n1", "n2", "n10", "n1a")
SIZES = (0, 1, 1, 2, 2, 3, 4, 5, 8, 8, 11, 16, 17)
SHARES = (0, 1, 200_000, 333_333, 500_000, 900_000)
# The last one has so many that devices are searched for, and not looked at node by node.
WANTED = (None,) * 6 + (
    frozenset(["n1"]),
    frozenset(["n2", "n10"]),
    frozenset[str](),
    frozenset(["n1", "n2", *(f"x{number}" for number in range(16))]),
)


def in_short(decision: Decision) -> tuple[str, str | None, tuple[str, ...]]:
    """As the slow policy answers: a generated id is "new"."""
    opened = {device.id: device.name for device in decision.new}
    opened = {key: "new" if name.startswith("vgpu-") else name for key, name in opened.items()}
    ids = [opened.get(device_id, device_id) for device_id in decision.devices]
    return decision.outcome, decision.node, tuple(sorted(ids))


def branch(ledger: Ledger, demand: Demand, decision: Decision) -> str:
    """How many GPUs were asked for, in whose words, and with what success."""
    if decision.outcome == "rejected":
        return f"rejected: {decision.field}"
    asked = "several" if demand.count > 1 else "one"
    words = "by memory" if demand.proportional else "by memory and compute"
    if decision.outcome == "pending":
        return f"{asked}, {words}: waits"
    if decision.created:
        return f"{asked}, {words}: opens a vGPU"
    idle = any(ledger.devices[device_id].idle for device_id in decision.devices)
    labels = labels_of(demand) if demand.count == 1 else ""
    return f"{asked}, {words}: {'idle' if idle else 'in use'}{labels}"


def labels_of(demand: Demand) -> str:
    """Whether a demand is labelled, as the end of the name of a branch."""
    labelled = demand.affinity or demand.anti_affinity or demand.exclusion
    return ", labelled" if labelled else ""


def episode(source: random.Random) -> list[Step]:
    """A cluster comes, then whatever may happen happens."""
    names = count()
    known: list[Demand] = []
    steps: list[Step] = [BY_NAMESPACE] if source.random() < 0.3 else []
    for name in source.sample(NODES, source.randint(1, len(NODES))):
        steps += _node_and_devices(source, name)
    for _ in range(source.randint(20, 100)):
        steps += _happens(source, names, known)
    return steps


def _node_and_devices(source: random.Random, name: str) -> Iterator[Step]:
    if source.random() < 0.95:
        yield "node", _node(source, name)
    # Where all GPUs are alike the lists are long; where they are not there are many.
    kinds = source.sample(KINDS, source.choice((1, 1, 2)))
    for index in range(source.choice((0, 1, 2, 2, 4, 6))):
        yield "device", _device(source, name, index, source.choice(kinds))


def _node(source: random.Random, name: str) -> Node:
    free = tuple(source.choices(KINDS, k=source.choice((0, 0, 0, 1, 2, 3))))
    return Node(name, free, frozenset(source.sample(KINDS, source.choice((0, 0, 1)))))


def _device(source: random.Random, name: str, index: int, kind: FreeGpu) -> Device:
    return Device(
        id=f"{name}/{index}",
        node=name,
        index=index if source.random() < 0.95 else None,
        model=kind.model,
        memory_bytes=kind.memory_bytes,
    )


def _happens(source: random.Random, names: Iterator[int], known: list[Demand]) -> Iterator[Step]:
    dice = source.random()
    if dice < 0.35:
        # Most of those known wait or were rejected, and have nothing to give back.
        for demand in source.sample(known, min(len(known), 5)):
            known.remove(demand)
            yield "release", demand.uid
    elif dice < 0.45:
        yield _trouble(source)
    elif dice < 0.47:
        steps: list[Step] = [_trouble(source) for _ in range(3)]
        steps += [("release", demand.uid) for demand in source.sample(known, len(known) // 2)]
        yield "what if", steps
    for _ in range(3):
        yield "ask", _demand(source, names, known)


def _trouble(source: random.Random) -> Step:
    name, index = source.choice(NODES), source.randint(0, 5)
    device_id = f"{name}/{index}"
    marks = (source.random() < 0.9, source.random() < 0.1)
    steps: list[Step] = [
        ("mark", (device_id, *marks)),
        ("mark", (device_id, True, False)),
        ("node", _node(source, name)),
        ("free", (name, tuple(source.choices(KINDS, k=source.randint(0, 2))))),
        ("remove", device_id),
        ("device", _device(source, name, index, source.choice(KINDS))),
    ]
    return ("forget", name) if source.random() < 0.1 else source.choice(steps)


def _demand(source: random.Random, names: Iterator[int], known: list[Demand]) -> Demand:
    pick = source.choice
    name = f"p{next(names)}"
    proportional = source.random() < 0.8
    known.append(
        Demand(
            uid=name,
            name=name,
            request_micros=0 if proportional else pick(SHARES),
            memory=Memory(bytes=pick(SIZES)) if source.random() < 0.8 else Memory(micros=333_333),
            proportional=proportional,
            affinity=pick(("",) * 8 + ("red", "blue")),
            anti_affinity=pick(("",) * 5 + ("g", "h")),
            exclusion=pick(("",) * 8 + ("e",)),
            namespace=pick("ab"),
            count=pick((2, 2, 3, 4)) if source.random() < 0.2 else 1,
            device_id=pick(("",) * 60 + ("0", "n1/0", "mine", "vgpu-a")),
            model=pick(("",) * 6 + ("V100", "A100")),
            nodes=pick(WANTED),
        )
    )
    return known[-1]


BINPACK = Trial("binpack", decide, slow_decide, in_short, episode, branch)
