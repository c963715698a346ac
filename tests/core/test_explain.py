"""The shortest list of what would have to change, against trying out every list there is."""

import random
from collections import Counter
from collections.abc import Callable
from itertools import combinations

import pytest

from core.builders import GPU_MEMORY, a_demand, a_device, a_holder, a_node
from core.test_binpack import random_cluster as binpack_cluster
from core.test_binpack import random_pod
from kubeshare.core.decision import commit
from kubeshare.core.demand import Demand, Memory
from kubeshare.core.device import Device, FreeGpu, Holder, Node
from kubeshare.core.explain import shortest_change
from kubeshare.core.ledger import Ledger
from kubeshare.core.policies import Policy, policy
from kubeshare.core.quota import Limits, Quota
from kubeshare.core.topology import read_notation

LOCALITY = policy("locality")


def shortest_by_trial(decide: Policy, ledger: Ledger, demand: Demand) -> int | None:
    """How many would have to leave, found by letting every set of holders leave in turn."""
    everybody = sorted({each.demand for one in ledger.devices.values() for each in one.holders})
    for size in range(1, len(everybody) + 1):
        for leavers in combinations(everybody, size):
            with ledger.what_if():
                for uid in leavers:
                    ledger.release(uid)
                if decide(ledger, demand).outcome == "bound":
                    return size
    return None


def locality_cluster(source: random.Random) -> Ledger:
    kinds = [FreeGpu("V100", 16), FreeGpu("A100", 10)]
    nodes = [Node(name, tuple(source.choices(kinds, k=source.randint(0, 1)))) for name in "ab"]
    devices = []
    for number in range(source.randint(0, 4)):
        kind = source.choice(kinds)
        devices.append(
            Device(id=str(number), node=source.choice("ab"), model=kind.model, memory=kind.memory)
        )
    return Ledger(nodes, devices)


def locality_demand(source: random.Random, number: int) -> Demand:
    pick = source.choice
    return Demand(
        uid=f"p{number}",
        name=f"p{number}",
        request=pick([0, 200_000, 300_000, 500_000, 900_000]),
        memory=Memory(bytes=pick([0, 1, 5, 9])),
        affinity=pick(["", "", "", "red", "blue"]),
        anti_affinity=pick(["", "", "", "g", "h"]),
        exclusion=pick(["", "", "", "", "e"]),
        count=pick([1, 1, 1, 2]),
        model=pick(["", "", "", "V100", "A100"]),
    )


def topology_cluster(source: random.Random) -> Ledger:
    links = read_notation(source.choice(["SYS(PIX(0,1),PIX(2,3))", "PHB(PIX(0,1),2)"]), "links")
    gpus = [
        Device(id=f"a/{index}", node="a", index=index, memory=16) for index in range(len(links))
    ]
    return Ledger([Node("a", links=links)], gpus)


def topology_demand(source: random.Random, number: int) -> Demand:
    cores = source.choice([10, 30, 50, 100, 100, 200, 300])
    name = f"p{number}"
    if cores < 100:
        memory = Memory(bytes=source.choice([1, 8]))
        return Demand(uid=name, name=name, request=cores * 10_000, memory=memory)
    whole = Memory(micros=1_000_000)
    return Demand(uid=name, name=name, request=1_000_000, memory=whole, count=cores // 100)


Cluster = Callable[[random.Random], Ledger]
Asker = Callable[[random.Random, int], Demand]

POLICIES: list[tuple[str, Cluster, Asker]] = [
    ("locality", locality_cluster, locality_demand),
    ("binpack", binpack_cluster, random_pod),
    ("topology", topology_cluster, topology_demand),
]


def lengths_found(name: str, cluster: Cluster, demand: Asker, clusters: int) -> Counter[int | None]:
    """How often a list of each length was the shortest, in so many random clusters."""
    decide = policy(name)
    source = random.Random(3)
    lengths: Counter[int | None] = Counter()
    for _ in range(clusters):
        ledger = cluster(source)
        holding: list[str] = []
        for number in range(18):
            asked = demand(source, number)
            decision = decide(ledger, asked)
            if decision.outcome == "bound" and len(holding) < 8:
                commit(ledger, asked, decision)
                holding.append(asked.uid)
            elif decision.outcome == "pending":
                change = shortest_change(decide, ledger, asked)
                found = len(change.leave) or None if change else None
                assert found == shortest_by_trial(decide, ledger, asked), (ledger.devices, asked)
                lengths[found] += 1
    return lengths


@pytest.mark.parametrize(("name", "cluster", "demand"), POLICIES)
def test_in_a_few_clusters_no_shorter_list_is_overlooked(
    name: str, cluster: Cluster, demand: Asker
) -> None:
    assert lengths_found(name, cluster, demand, 15)[1] > 10


@pytest.mark.slow
@pytest.mark.parametrize(("name", "cluster", "demand"), POLICIES)
def test_no_shorter_list_is_overlooked(name: str, cluster: Cluster, demand: Asker) -> None:
    lengths = lengths_found(name, cluster, demand, 150)
    assert lengths[1] > 100
    assert lengths[2] > 10


def test_the_smallest_of_those_whose_leaving_is_enough_is_named() -> None:
    ledger = Ledger(
        [a_node()],
        [
            a_device("A", a_holder("big", "0.6"), a_holder("small", "0.4")),
            a_device("B", a_holder("other", "0.7")),
        ],
    )
    change = shortest_change(LOCALITY, ledger, a_demand("p", "0.4"))
    assert change is not None
    assert change.leave == ("small",)
    assert str(change) == "it fits when small leaves n1/A"


def test_asking_changes_nothing() -> None:
    ledger = Ledger([a_node()], [a_device("A", a_holder("q", "0.6"))])
    before = Ledger(ledger.nodes.values(), ledger.devices.values())
    assert shortest_change(LOCALITY, ledger, a_demand("p", "0.5")) is not None
    assert ledger == before


def test_several_that_have_to_leave_are_all_named() -> None:
    holders = [a_holder(name, "0.3", exclusion="e") for name in ("x", "y", "z")]
    ledger = Ledger([a_node()], [a_device("A", *holders)])
    change = shortest_change(LOCALITY, ledger, a_demand("p", "0.1"))
    assert str(change) == "it fits when x leaves n1/A, and y leaves n1/A, and z leaves n1/A"


def test_who_has_several_gpus_leaves_them_all() -> None:
    ledger = Ledger(
        [a_node()], [a_device("A", a_holder("q", "1")), a_device("B", a_holder("q", "1"))]
    )
    change = shortest_change(LOCALITY, ledger, a_demand("p", "1", count=2))
    assert change is not None
    assert change.words == ("q leaves n1/A, n1/B",)


def test_where_leaving_does_not_help_a_repair_does() -> None:
    ledger = Ledger([a_node()], [a_device("A", healthy=False), a_device("B", fenced=True)])
    change = shortest_change(LOCALITY, ledger, a_demand("p"))
    assert change is not None
    assert change.words == ("n1/A is healthy again",)
    ledger.remove_device("A")
    assert str(shortest_change(LOCALITY, ledger, a_demand("p"))).endswith(
        "n1/B takes holders again"
    )


def test_where_nothing_else_helps_a_free_gpu_does() -> None:
    kind = FreeGpu("V100", GPU_MEMORY)
    ledger = Ledger([Node("n1", kinds=frozenset([kind]))])
    change = shortest_change(LOCALITY, ledger, a_demand("p"))
    assert change is not None
    assert change.words == ("n1 has one more free GPU of model V100 with 1000Mi",)


def test_what_nothing_of_this_can_help_has_no_list() -> None:
    assert shortest_change(LOCALITY, Ledger([a_node()]), a_demand("p")) is None


def test_what_is_taken_by_nobody_that_is_known_is_told_so() -> None:
    ledger = Ledger(
        [a_node()], [a_device("A", Holder(demand="taken", name="", request=1_000_000, memory=0))]
    )
    change = shortest_change(LOCALITY, ledger, a_demand("p"))
    assert change is not None
    assert change.words == ("who holds it leaves n1/A",)


def test_quotas_are_part_of_the_question() -> None:
    ledger = Ledger(
        [Node("n1", pool="a"), Node("n2", pool="b")],
        [a_device("A", a_holder("q", "1")), a_device("B", a_holder("r", "0.9"), node="n2")],
    )
    decide = Limits(LOCALITY, [Quota(namespace="x", pool="a", micros=1_000_000)])
    change = shortest_change(decide, ledger, a_demand("p", "0.5", namespace="x"))
    assert change is not None
    assert change.leave == ("q",)
