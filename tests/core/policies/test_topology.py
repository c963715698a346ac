"""The topology policy against a slow one written from the text, and for its own promises."""

import random

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import samples
from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.topology.index import TopologyIndex
from kubeshare.core.policies.topology.policy import decide
from robustness.prove.engine import Trial, among_many, run
from robustness.prove.topology import (
    NODES,
    TOPOLOGY,
    in_short,
    node_and_devices,
    random_demand,
)

STATES = samples.count(whole=45_000, sample=10_000)
SEED = 20180801


def a_cluster(source: random.Random) -> Ledger:
    steps = [step for name in NODES for step in node_and_devices(source, name)]
    nodes = [what for kind, what in steps if kind == "node"]
    return Ledger(nodes, [what for kind, what in steps if kind == "device"])


def in_full(decision: Decision) -> object:
    """All that it says, in the order in which it says it."""
    return in_short(decision), list(decision.reasons.items()), decision.field


def assert_explained(ledger: Ledger, demand: Demand, decision: Decision) -> None:
    """Every GPU that could have been taken and was not has a reason."""
    for device in ledger.devices.values():
        asked = demand.nodes is None or device.node in demand.nodes
        has_reason = device.path in decision.reasons
        assert has_reason == (device.id not in decision.devices and asked), (device, decision)
    for name in ledger.nodes:
        if name != decision.node and (decision.node is None or decision.created):
            own = [path for path in decision.reasons if path.startswith(f"{name}/")]
            assert own or name in decision.reasons
    assert all(decision.reasons.values())
    assert (decision.field is not None) == (decision.outcome == "rejected")


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("trial", [TOPOLOGY, among_many(TOPOLOGY)], ids=lambda trial: trial.name)
def test_on_many_random_states_it_answers_as_the_slow_one(trial: Trial) -> None:
    *_, seen = run(trial, STATES, SEED)
    click.echo(f"{seen.states} states, {seen.distinct} distinct, {dict(seen.branches)}")
    assert seen.distinct > 0.98 * STATES
    # Every kind of answer came often; otherwise the comparison would say little.
    assert len(seen.branches) == 30
    assert min(seen.branches.values()) >= STATES // 900


def test_nothing_is_kept_of_nodes_and_gpus_that_are_gone() -> None:
    ledger = a_cluster(random.Random(3))
    index = ledger.index(TopologyIndex)
    decide(ledger, random_demand(random.Random(1), "p"))
    for device_id in list(ledger.devices):
        ledger.remove_device(device_id)
    for name in list(ledger.nodes):
        ledger.remove_node(name)
    assert not any((index._nodes, index._devices, index._states, index._sizes))


@pytest.mark.slow
@settings(max_examples=samples.count(whole=300, sample=100), deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 10**6), min_size=1, max_size=20))
def test_hypothesis_finds_no_cluster_on_which_it_answers_otherwise(
    cluster: int, asked: list[int]
) -> None:
    ledger = a_cluster(random.Random(cluster))
    for number, seed in enumerate(asked):
        demand = random_demand(random.Random(seed), f"p{number}")
        decision = decide(ledger, demand)
        assert in_short(decision) == TOPOLOGY.slow(ledger, demand)
        assert_explained(ledger, demand, decision)
        if decision.outcome == "bound":
            commit(ledger, demand, decision)


def test_no_answer_depends_on_an_order_of_listing() -> None:
    source = random.Random(5)
    for _ in range(100):
        ledger = a_cluster(source)
        for number in range(6):
            demand = random_demand(source, f"p{number}")
            answer = decide(ledger, demand)
            if answer.outcome == "bound":
                commit(ledger, demand, answer)
        demand = random_demand(source, "last")
        expected = in_full(decide(ledger, demand))
        shuffled = Ledger(
            source.sample(list(ledger.nodes.values()), len(ledger.nodes)),
            source.sample(list(ledger.devices.values()), len(ledger.devices)),
        )
        assert in_full(decide(shuffled, demand)) == expected
