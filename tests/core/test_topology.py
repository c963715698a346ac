"""The topology policy against a slow one written from the text, and for its own promises."""

import os
import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from core.slow_topology import Answer, slow_decide
from core.topologies import CUBE_MESH, TREES, mesh
from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand, Memory
from kubeshare.core.device import Device, Node
from kubeshare.core.ledger import Ledger
from kubeshare.core.policies.topology import decide
from kubeshare.core.topology import Links

STATES = int(os.environ.get("KUBESHARE_STATES", "30000"))
SHAPES = [*TREES.values(), CUBE_MESH, mesh(5, [(0, 1), (1, 2), (3, 4)], 4), ()]
NODES = ("n1", "n2", "n10")


def in_short(decision: Decision) -> Answer:
    return decision.outcome, decision.node, decision.devices


def in_full(decision: Decision) -> object:
    """All that it says, in the order in which it says it."""
    return in_short(decision), list(decision.reasons.items()), decision.field


def assert_explained(ledger: Ledger, demand: Demand, decision: Decision) -> None:
    """Every GPU that could have been taken and was not has a reason."""
    for device in ledger.devices.values():
        asked = demand.nodes is None or device.node in demand.nodes
        told = device.path in decision.reasons
        assert told == (device.id not in decision.devices and asked), (device, decision)
    assert all(decision.reasons.values())
    assert (decision.field is not None) == (decision.outcome == "rejected")


def random_links(source: random.Random) -> Links:
    if source.random() < 0.7:
        return source.choice(SHAPES)
    size = source.randint(1, 6)
    levels = source.choice([(2, 3, 4, 5, 6), (1, 6), (1, 2, 6)])
    links = [[0] * size for _ in range(size)]
    for row in range(size):
        for column in range(row):
            links[row][column] = links[column][row] = source.choice(levels)
    return tuple(tuple(row) for row in links)


def random_node(source: random.Random, name: str) -> tuple[Node, list[Device]]:
    links = random_links(source)
    size = len(links) or source.randint(0, 4)
    models = source.choice([["M40"], ["M40"], ["M40", "P4"]])
    sizes = source.choice([[64], [64], [64, 32, 16]])
    numbers: list[int | None] = [None if source.random() < 0.02 else at for at in range(size)]
    devices = [
        Device(
            id=f"{name}/{at}",
            node=name,
            index=number,
            model=source.choice(models),
            memory=source.choice(sizes),
            healthy=source.random() > 0.05,
            fenced=source.random() < 0.03,
        )
        for at, number in enumerate(numbers)
        if source.random() > 0.03
    ]
    return Node(name, links=links), devices


def random_demand(source: random.Random, number: int) -> Demand:
    pick = source.choice
    whole = source.random() < 0.5
    return Demand(
        uid=f"p{number}",
        name=f"p{number}",
        request=1_000_000 if whole else pick([0, 100_000, 200_000, 500_000, 600_000, 900_000]),
        memory=pick([Memory(bytes=pick([0, 4, 16, 20, 40])), Memory(micros=pick([0, 500_000]))]),
        count=pick([1, 1, 2, 2, 3, 4, 5]) if whole or source.random() < 0.02 else 1,
        exclusion=pick([""] * 60 + ["e"]),
        model=pick(["", "", "", "M40", "P4"]),
        nodes=pick([None, None, None, frozenset(["n1"]), frozenset(["n2", "n10"])]),
    )


def branch(demand: Demand, decision: Decision, ledger: Ledger) -> str:
    """Which rule of the policy gave an answer."""
    if decision.outcome != "bound":
        return decision.outcome
    if demand.request == 1_000_000:
        return "Singular" if demand.count == 1 else "Link"
    return "idle for a fraction" if ledger.devices[decision.devices[0]].idle else "Fragment"


def test_on_many_random_states_it_answers_as_the_slow_one() -> None:
    source = random.Random(20180801)
    seen: Counter[str] = Counter()
    states = set()
    number = 0
    while number < STATES:
        nodes, devices = [], []
        for name in NODES[: source.randint(1, 3)]:
            node, its = random_node(source, name)
            nodes.append(node)
            devices += its
        ledger = Ledger(nodes, devices)
        holders: list[str] = []
        for _ in range(30):
            number += 1
            if holders and source.random() < 0.35:
                ledger.release(holders.pop(source.randrange(len(holders))))
            if devices and source.random() < 0.1:
                unlucky = source.choice(devices).id
                ledger.mark(unlucky, healthy=source.random() < 0.5)
            demand = random_demand(source, number)
            decision = decide(ledger, demand)
            assert in_short(decision) == slow_decide(ledger, demand), (
                ledger.nodes,
                ledger.devices,
                demand,
            )
            if number % 16 == 0:
                assert_explained(ledger, demand, decision)
            seen[branch(demand, decision, ledger)] += 1
            states.add(hash((tuple(ledger.nodes.values()), tuple(ledger.devices.values()), demand)))
            if decision.outcome == "bound":
                commit(ledger, demand, decision)
                holders.append(demand.uid)
    print(f"{len(states)} distinct states; {dict(seen)}")  # noqa: T201  # what was compared
    # Every kind of answer came often; otherwise the comparison would say little.
    assert min(seen.values()) >= number // 100
    assert len(seen) == 6


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 10**6), min_size=1, max_size=8))
def test_hypothesis_finds_no_cluster_on_which_it_answers_otherwise(
    cluster: int, asked: list[int]
) -> None:
    source = random.Random(cluster)
    made = [random_node(source, name) for name in NODES]
    ledger = Ledger([node for node, _ in made], [gpu for _, its in made for gpu in its])
    for number, seed in enumerate(asked):
        demand = random_demand(random.Random(seed), number)
        decision = decide(ledger, demand)
        assert in_short(decision) == slow_decide(ledger, demand)
        assert_explained(ledger, demand, decision)
        if decision.outcome == "bound":
            commit(ledger, demand, decision)


def test_no_answer_depends_on_an_order_of_listing() -> None:
    source = random.Random(5)
    for _ in range(100):
        made = [random_node(source, name) for name in NODES]
        ledger = Ledger([node for node, _ in made], [gpu for _, its in made for gpu in its])
        for number in range(6):
            demand = random_demand(source, number)
            answer = decide(ledger, demand)
            if answer.outcome == "bound":
                commit(ledger, demand, answer)
        demand = random_demand(source, 99)
        expected = in_full(decide(ledger, demand))
        shuffled = Ledger(
            source.sample(list(ledger.nodes.values()), len(ledger.nodes)),
            source.sample(list(ledger.devices.values()), len(ledger.devices)),
        )
        assert in_full(decide(shuffled, demand)) == expected
