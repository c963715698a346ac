"""The shortest list of what would have to change, against trying out every list there is."""

import random
from collections import Counter
from itertools import combinations

import pytest

import samples
from core.builders import GPU_MEMORY, a_demand, a_device, a_holder, a_node
from core.clusters import POLICIES, Asker, Cluster
from kubeshare.core.decision import commit
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.explain import shortest_change
from kubeshare.core.ledger.device import FreeGpu, Node
from kubeshare.core.ledger.holder import Holder
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy, policy
from kubeshare.core.quota.model import QuotaPolicy, fixed
from kubeshare.core.quota.rows import Quota

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
@pytest.mark.sampled
@pytest.mark.parametrize(("name", "cluster", "demand"), POLICIES)
def test_no_shorter_list_is_overlooked(name: str, cluster: Cluster, demand: Asker) -> None:
    clusters = samples.count(whole=150, sample=50)
    lengths = lengths_found(name, cluster, demand, clusters)
    assert lengths[1] > clusters * 2 // 3
    assert lengths[2] > clusters // 15


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
        [a_node()],
        [a_device("A", Holder(demand="taken", name="", request_micros=1_000_000, memory_bytes=0))],
    )
    change = shortest_change(LOCALITY, ledger, a_demand("p"))
    assert change is not None
    assert change.words == ("who holds it leaves n1/A",)


def test_quotas_are_part_of_the_question() -> None:
    ledger = Ledger(
        [Node("n1", pool="a"), Node("n2", pool="b")],
        [a_device("A", a_holder("q", "1")), a_device("B", a_holder("r", "0.9"), node="n2")],
    )
    decide = QuotaPolicy(
        LOCALITY, fixed([Quota(namespace="x", pools=frozenset(["a"]), micros=1_000_000)])
    )
    change = shortest_change(decide, ledger, a_demand("p", "0.5", namespace="x"))
    assert change is not None
    assert change.leave == ("q",)
