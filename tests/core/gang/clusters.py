"""Small random clusters whose GPUs have links, and what a gang on them has asked for."""

import random
from collections.abc import Sequence
from itertools import combinations

from core.builders import a_demand, a_device, a_holder
from kubeshare.core.demand import Demand
from kubeshare.core.gang import GangPlacement, Near
from kubeshare.core.gang.one_order import OneOrder
from kubeshare.core.gang.scopes import Scope
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy
from kubeshare.core.topology import Level, read_notation

MACHINES = [
    read_notation(text, "links")
    for text in ("SYS(PIX(0,1),PXB(2,3))", "PHB(PIX(0,1),2)", "SYS(0,1)", "PIX(0,1)", "0")
]
REQUESTS = ["0.3", "0.5", "0.6", "1"]


def a_cluster(source: random.Random, nodes: int = 3) -> Ledger:
    """Nodes with numbered GPUs, some partly taken."""
    ledger = Ledger()
    for number in range(1, source.randint(1, nodes) + 1):
        name, links = f"n{number}", source.choice(MACHINES)
        ledger.add_node(Node(name, links=links, domain=source.choice(["a", "b"])))
        for index in range(len(links)):
            ledger.add_device(a_gpu(source, name, index))
    return ledger


def a_gpu(source: random.Random, node: str, index: int) -> Device:
    name, taken = f"{node}/{index}", source.choice(["", "", "0.3", "0.5", "0.9"])
    holders = [a_holder(f"q{name}", taken)] if taken else []
    return a_device(name, *holders, node=node, index=index)


def some_members(source: random.Random, kinds: int, most: int = 4) -> list[Demand]:
    requests = source.sample(REQUESTS, kinds)
    return [
        a_demand(f"m{number}", source.choice(requests)) for number in range(source.randint(1, most))
    ]


def obeys(ledger: Ledger, near: Near, uids: list[str]) -> bool:
    """Whether those who hold GPUs are as near as was asked; `nodes` asks for nothing."""
    devices = [ledger.devices[each] for uid in uids for each in ledger.held_by(uid)]
    if near == "nodes":
        return True
    if len({device.node for device in devices}) > 1:
        return False
    if near == "node" or not devices:
        return True
    links = ledger.nodes[devices[0].node].links
    indexes = [device.index for device in devices if device.index is not None]
    assert len(indexes) == len(devices)
    return all(links[a][b] <= Level.PXB for a, b in combinations(indexes, 2))


def in_order(
    policy: Policy,
    ledger: Ledger,
    members: Sequence[Demand],
    scope: Scope | None = None,
    most_misses: int | None = None,
) -> GangPlacement:
    """Place the members in the given order, passing over those that do not fit."""
    order = OneOrder(policy, ledger, members, scope, most_misses)
    while not order.done:
        order.step()
    return order.placement
