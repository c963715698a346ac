"""Small random clusters for each policy, and demands for them."""

import random
from collections.abc import Callable

import msgspec

from core.builders import a_gpu, a_pod
from kubeshare.core.demand import Demand, Memory
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.topology import read_notation


def locality_cluster(source: random.Random) -> Ledger:
    kinds = [FreeGpu("V100", 16), FreeGpu("A100", 10)]
    nodes = [Node(name, tuple(source.choices(kinds, k=source.randint(0, 1)))) for name in "ab"]
    devices = []
    for number in range(source.randint(0, 4)):
        kind = source.choice(kinds)
        devices.append(
            Device(
                id=str(number),
                node=source.choice("ab"),
                model=kind.model,
                memory_bytes=kind.memory_bytes,
            )
        )
    return Ledger(nodes, devices)


def locality_demand(source: random.Random, number: int) -> Demand:
    pick = source.choice
    return Demand(
        uid=f"p{number}",
        name=f"p{number}",
        request_micros=pick([0, 200_000, 300_000, 500_000, 900_000]),
        memory=Memory(bytes=pick([0, 1, 5, 9])),
        affinity=pick(["", "", "", "red", "blue"]),
        anti_affinity=pick(["", "", "", "g", "h"]),
        exclusion=pick(["", "", "", "", "e"]),
        count=pick([1, 1, 1, 2]),
        model=pick(["", "", "", "V100", "A100"]),
    )


def binpack_cluster(source: random.Random) -> Ledger:
    known, pool = [], []
    for name in source.sample(["n1", "n2", "n10", "n1a"], source.randint(1, 4)):
        model, memory = source.choice([("V100", 16), ("V100", 8), ("A100", 10), ("", 11)])
        known.append(Node(name, (FreeGpu(model, memory),) * source.choice([0, 0, 0, 1])))
        for index in range(source.randint(0, 4)):
            mixed = source.choice(["V100", "A100"]) if source.random() < 0.1 else model
            healthy = source.random() > 0.05
            gpu = msgspec.structs.replace(
                a_gpu(name, index, memory=memory, model=mixed), healthy=healthy
            )
            pool.append(gpu)
    return Ledger(known, pool)


def binpack_demand(source: random.Random, number: int) -> Demand:
    pick = source.choice
    return a_pod(
        f"p{number}",
        pick([0, 1, 2, 3, 5, 5, 8, 9, 16]),
        count=pick([1, 1, 1, 1, 2, 3]),
        model=pick(["", "", "", "V100", "A100"]),
        nodes=pick([None, None, None, frozenset(["n1"]), frozenset(["n2", "n10"])]),
    )


def topology_cluster(source: random.Random) -> Ledger:
    links = read_notation(source.choice(["SYS(PIX(0,1),PIX(2,3))", "PHB(PIX(0,1),2)"]), "links")
    gpus = [
        Device(id=f"a/{index}", node="a", index=index, memory_bytes=16)
        for index in range(len(links))
    ]
    return Ledger([Node("a", links=links)], gpus)


def topology_demand(source: random.Random, number: int) -> Demand:
    cores = source.choice([10, 30, 50, 100, 100, 200, 300])
    name = f"p{number}"
    if cores < 100:
        memory = Memory(bytes=source.choice([1, 8]))
        return Demand(uid=name, name=name, request_micros=cores * 10_000, memory=memory)
    whole = Memory(micros=1_000_000)
    return Demand(uid=name, name=name, request_micros=1_000_000, memory=whole, count=cores // 100)


Cluster = Callable[[random.Random], Ledger]
Asker = Callable[[random.Random, int], Demand]

POLICIES: list[tuple[str, Cluster, Asker]] = [
    ("locality", locality_cluster, locality_demand),
    ("binpack", binpack_cluster, binpack_demand),
    ("topology", topology_cluster, topology_demand),
]
