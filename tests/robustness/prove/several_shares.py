"""Episodes for demands of several different shares, under each policy."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

import msgspec

from core.policies import slow_shares
from core.policies.slow_shares import SlowPolicy, slow_decide
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand, Memory, Share
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy
from kubeshare.core.policies.binpack.policy import decide as binpack
from kubeshare.core.policies.locality.policy import decide as locality
from kubeshare.core.policies.topology.policy import decide as topology
from kubeshare.core.topology import read_notation
from kubeshare.core.units import MICROS
from robustness.prove.engine import BY_NAMESPACE, Step, Trial

NODES = ("n1", "n2", "n10")
KINDS = (FreeGpu("V100", 16), FreeGpu("V100", 8), FreeGpu("A100", 16))
LINKS = [
    read_notation(text, "links")
    for text in ("SYS(PIX(0,1),PIX(2,3))", "PHB(PIX(0,1),2)", "SYS(PHB(0,1,2),3)")
]
SHARES = (0, 100_000, 300_000, 500_000, 500_000, 600_000, MICROS, MICROS)
SIZES = (0, 1, 4, 5, 8, 8, 16)
CONTAINERS: tuple[tuple[str, ...], ...] = ((), ("a",), ("a",), ("b",), ("b",), ("a", "b"), ("c",))
AMONG = (None, None, None, None, frozenset(["n1"]), frozenset(["n2", "n10"]))


def in_short(decision: Decision) -> slow_shares.Answer:
    """As the slow policy answers."""
    new = {device.id: device for device in decision.new}
    placed: dict[str, list[Device]] = {}
    for name, device_id in zip(decision.shares, decision.devices, strict=True):
        device = new.get(device_id) or Device(id=device_id, node="", memory_bytes=0)
        placed.setdefault(name, []).append(device)
    return decision.outcome, decision.node, slow_shares.in_short(placed, set(new))


def branch(_: Ledger, demand: Demand, decision: Decision) -> str:
    """How many shares were asked for, and with what success."""
    if decision.outcome != "bound":
        return f"{len(demand.shares)} shares: {decision.outcome}"
    beside = "" if len(set(decision.devices)) == len(decision.devices) else ", two on one GPU"
    opened = ", opens a vGPU" if decision.new else ""
    return f"{len(demand.shares)} shares: bound{beside}{opened}"


def episode(ask: Callable[[random.Random, str], Demand], source: random.Random) -> list[Step]:
    """A cluster comes, then demands come and go."""
    names = count()
    known: list[str] = []
    steps: list[Step] = [BY_NAMESPACE] if source.random() < 0.3 else []
    for name in source.sample(NODES, source.choice((1, 1, 2, 3))):
        steps += _node_and_devices(source, name)
    for _ in range(source.randint(5, 20)):
        if source.random() < 0.4:
            for uid in source.sample(known, min(len(known), 3)):
                known.remove(uid)
                steps.append(("release", uid))
        elif source.random() < 0.1:
            device = f"{source.choice(NODES)}/{source.randint(0, 3)}"
            steps.append(("mark", (device, source.random() < 0.7, source.random() < 0.2)))
        known += [f"p{next(names)}", f"q{next(names)}"]
        steps += [("place", _occupant(source, known[-2])), ("ask", ask(source, known[-1]))]
    return steps


def _node_and_devices(source: random.Random, name: str) -> Iterator[Step]:
    links = source.choice(LINKS)
    kinds = source.choices(KINDS, k=source.choice((1, 1, 2)))
    free = tuple(source.choices(kinds, k=source.choice((0, 0, 1, 2))))
    yield "node", Node(name, free, links=links)
    for index in range(len(links)):
        if source.random() < 0.8:
            kind = source.choice(kinds)
            yield (
                "device",
                Device(
                    id=f"{name}/{index}",
                    node=name,
                    index=index,
                    model=kind.model,
                    memory_bytes=kind.memory_bytes,
                ),
            )


def _occupant(source: random.Random, name: str) -> tuple[Demand, str]:
    """A demand in the short form, placed anywhere."""
    demand = Demand(
        uid=name,
        name=name,
        request_micros=source.choice(SHARES),
        memory=Memory(bytes=source.choice(SIZES)),
    )
    return _labelled(source, demand), f"{source.choice(NODES)}/{source.randint(0, 3)}"


def _demand(source: random.Random, name: str) -> Demand:
    names = ("s", "t", "u")[: source.choice((1, 2, 2, 2, 3))]
    demand = Demand(
        uid=name,
        name=name,
        shares=tuple(_share(source, each) for each in names),
        model=source.choice(("", "", "", "V100", "A100")),
        nodes=source.choice(AMONG),
    )
    return _labelled(source, demand)


def _share(source: random.Random, name: str) -> Share:
    sized = source.random() < 0.5
    return Share(
        name=name,
        request_micros=source.choice(SHARES),
        memory=Memory(bytes=source.choice(SIZES)) if sized else Memory(micros=250_000),
        count=source.choice((1, 1, 1, 2)),
        containers=source.choice(CONTAINERS),
    )


def _labelled(source: random.Random, demand: Demand) -> Demand:
    return msgspec.structs.replace(
        demand,
        namespace=source.choice("ab"),
        affinity=source.choice(("",) * 5 + ("red",)),
        anti_affinity=source.choice(("",) * 5 + ("g",)),
        exclusion=source.choice(("",) * 9 + ("e",)),
    )


def _whole_or_one(source: random.Random, name: str) -> Demand:
    """Of several GPUs the topology policy gives whole ones."""
    demand = _demand(source, name)
    shares = [
        share if share.request_micros == MICROS else msgspec.structs.replace(share, count=1)
        for share in demand.shares
    ]
    return msgspec.structs.replace(demand, shares=tuple(shares))


def _trial(
    name: str, fast: Policy, slow: SlowPolicy, ask: Callable[[random.Random, str], Demand]
) -> Trial:
    return Trial(
        f"{name}, several shares",
        fast,
        partial(slow_decide, slow),
        in_short,
        partial(episode, ask),
        branch,
    )


SEVERAL_SHARES = (
    _trial("locality", locality, slow_shares.LOCALITY, _demand),
    _trial("binpack", binpack, slow_shares.BINPACK, _demand),
    _trial("topology", topology, slow_shares.TOPOLOGY, _whole_or_one),
)
