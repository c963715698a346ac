"""Episodes for the locality policy: small clusters where labels and sizes often collide."""

import random
from collections.abc import Iterator
from itertools import count

from core.policies.slow_locality import slow_decide
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand, Memory
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.locality.policy import decide
from robustness.prove.engine import BY_NAMESPACE, Step, Trial

KINDS = (FreeGpu("V100", 16), FreeGpu("V100", 8), FreeGpu("A100", 10), FreeGpu("", 16))
NODES = ("n1", "n2", "n10")
IDS = ("A", "B", "a-2", "a-10", "2", "10", "02", "vgpu-a", "vgpu-b", "c", "d", "e")
AMONG = (
    *(None,) * 6,
    frozenset(["n1"]),
    frozenset(["n2", "n10"]),
    # So many that devices are searched for, and not looked at node by node.
    frozenset(["n1", "n2", *(f"x{number}" for number in range(16))]),
)
SHARES = (0, 0, 1, 100_000, 100_000, 200_000, 200_000, 300_000, 333_333, 500_000, 1_000_000)
SIZES = (0, 0, 1, 1, 2, 2, 3, 5, 8, 16, 17)


def in_short(decision: Decision) -> tuple[str, str | None, str | None]:
    """As the slow policy answers: a generated id is "new"."""
    opened = {device.id: device.name for device in decision.new}
    names = [opened.get(device_id, device_id) for device_id in decision.devices]
    generated = [name for name in opened.values() if name.startswith("vgpu-")]
    kept = sorted(set(names) - set(generated))
    devices = ",".join([*kept, *["new"] * len(generated)])
    return decision.outcome, decision.node, devices or None


def branch(ledger: Ledger, demand: Demand, decision: Decision) -> str:
    """By which lines of Algorithm 1 a demand was answered, and how."""
    if decision.outcome == "rejected":
        return f"rejected: {decision.field}"
    if demand.count > 1:
        bound = "opens a vGPU" if decision.created else "all from the pool"
        return f"several: {bound if decision.node else 'waits'}"
    if demand.device_id:
        known = any(device.name == demand.device_id for device in ledger.devices.values())
        lines = "a known GPUID" if known else "a new GPUID"
    elif demand.affinity:
        label = ledger.comparable(demand).affinity
        known = any(label in device.affinities for device in ledger.devices.values())
        lines = "lines 2-8" if known else "lines 9-14"
    else:
        lines = "lines 15-26"
    return f"{lines}: {_answer(ledger, decision)}"


def _answer(ledger: Ledger, decision: Decision) -> str:
    if decision.outcome == "pending":
        return "waits"
    if decision.created:
        return "opens a vGPU"
    taken = ledger.devices[decision.devices[0]]
    if taken.idle:
        return "idle"
    anti = " with anti-affinity" if taken.anti_affinities else ""
    return ("labelled" if taken.affinities else "unlabelled") + anti


def episode(source: random.Random) -> list[Step]:
    """A cluster comes, then whatever may happen happens."""
    names = count()
    known: list[Demand] = []
    steps: list[Step] = [BY_NAMESPACE] if source.random() < 0.3 else []
    steps += [("node", _node(source, name)) for name in NODES if source.random() < 0.9]
    steps += [("device", device) for device in _devices(source)]
    for _ in range(source.randint(20, 120)):
        steps += _happens(source, names, known)
    return steps


def _happens(source: random.Random, names: Iterator[int], known: list[Demand]) -> Iterator[Step]:
    dice = source.random()
    if dice < 0.3:
        # Most of those known wait or were rejected, and have nothing to give back.
        for demand in source.sample(known, min(len(known), 8)):
            known.remove(demand)
            yield "release", demand.uid
    elif dice < 0.35:
        yield "place", (_demand(source, names, known), source.choice(IDS))
    elif dice < 0.42:
        yield _trouble(source)
    elif dice < 0.44:
        steps: list[Step] = [_trouble(source) for _ in range(3)]
        steps += [("release", demand.uid) for demand in source.sample(known, len(known) // 2)]
        steps += [("place", (_demand(source, names, []), source.choice(IDS)))]
        yield "what if", steps
    for _ in range(3):
        yield "ask", _demand(source, names, known)


def _trouble(source: random.Random) -> Step:
    name, device_id = source.choice(NODES), source.choice(IDS)
    marks = (source.random() < 0.9, source.random() < 0.1)
    steps: list[Step] = [
        ("mark", (device_id, *marks)),
        ("mark", (device_id, True, False)),
        ("free", (name, tuple(source.choices(KINDS, k=source.randint(0, 3))))),
        ("node", _node(source, name)),
        ("remove", device_id),
        ("device", Device(id=device_id, node=name, model="V100", memory_bytes=16)),
    ]
    return ("forget", name) if source.random() < 0.1 else source.choice(steps)


def _node(source: random.Random, name: str) -> Node:
    free = source.choices(KINDS, k=source.choice((0, 0, 0, 1, 2)))
    return Node(name, tuple(free), frozenset(source.sample(KINDS, source.randint(0, 1))))


def _devices(source: random.Random) -> Iterator[Device]:
    # Where all GPUs are alike trees are deep; where they are not there are many.
    kinds = source.sample(KINDS, source.choice((1, 1, 2, 3)))
    for device_id in source.sample(IDS, source.randint(0, len(IDS))):
        kind = source.choice(kinds)
        node = source.choice(NODES)
        yield Device(id=device_id, node=node, model=kind.model, memory_bytes=kind.memory_bytes)
        if source.random() < 0.3:
            # Another node has a vGPU of the same GPUID.
            other = source.choice([name for name in NODES if name != node])
            yield Device(
                id=f"{other}-{device_id}",
                node=other,
                gpuid=device_id,
                model=kind.model,
                memory_bytes=kind.memory_bytes,
            )


def _demand(source: random.Random, names: Iterator[int], known: list[Demand]) -> Demand:
    pick = source.choice
    name = f"p{next(names)}"
    nodes = pick(AMONG)
    known.append(
        Demand(
            uid=name,
            name=name,
            request_micros=pick(SHARES),
            memory=Memory(bytes=pick(SIZES)) if source.random() < 0.7 else Memory(micros=250_000),
            affinity=pick(("", "", "", "red", "blue")),
            anti_affinity=pick(("", "", "g", "h")),
            exclusion=pick(("",) * 5 + ("e",)),
            namespace=pick("ab"),
            device_id=pick(("",) * 24 + ("A", "2", "mine", "vgpu-b")),
            count=source.choice((2, 2, 3)) if source.random() < 0.08 else 1,
            model=pick(("",) * 6 + ("V100", "A100")),
            nodes=nodes,
            device_nodes=pick((None, nodes)),
        )
    )
    return known[-1]


LOCALITY = Trial("locality", decide, slow_decide, in_short, episode, branch)
