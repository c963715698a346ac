"""The locality policy on random states, beside the slow one that is obviously right."""

import random

import click
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import samples
from core.strategies import demands, devices, nodes
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.locality.policy import decide
from robustness.prove.engine import Failure, Step, narrow_trees, play, run, shorten
from robustness.prove.locality import LOCALITY

STATES = samples.count(whole=90_000, sample=20_000)
SEED = 20200623


@pytest.mark.slow
@pytest.mark.sampled
def test_on_many_random_states_it_answers_as_the_slow_one() -> None:
    *_, seen = run(LOCALITY, STATES, SEED)
    click.echo(f"{seen.states} states, {seen.distinct} distinct, {dict(seen.branches)}")
    assert seen.distinct > 0.99 * STATES
    # Every kind of answer came often; otherwise the comparison would say little.
    assert len(seen.branches) == 29
    assert min(seen.branches.values()) >= STATES // 3_000


STEPS = st.one_of(
    demands(st.uuids().map(str)).map(lambda demand: ("ask", demand)),
    demands(st.uuids().map(str)).map(lambda demand: ("ask", demand)),
    demands(st.uuids().map(str)).map(lambda demand: ("ask", demand)),
    nodes.map(lambda node: ("node", node)),
    devices.map(lambda device: ("device", device)),
    st.tuples(st.sampled_from(["A", "B", "2"]), st.booleans(), st.booleans()).map(
        lambda marks: ("mark", marks)
    ),
)
UNIQUE_NODES = st.lists(nodes, max_size=3, unique_by=lambda node: node.name)
UNIQUE_DEVICES = st.lists(devices, max_size=4, unique_by=lambda device: device.id)


@pytest.mark.slow
@settings(max_examples=samples.count(whole=300, sample=60), deadline=None)
@given(UNIQUE_NODES, UNIQUE_DEVICES, st.lists(STEPS, min_size=50, max_size=80))
def test_hypothesis_finds_no_state_in_which_it_answers_otherwise(
    known: list[Node], pool: list[Device], steps: list[Step]
) -> None:
    cluster: list[Step] = [("node", node) for node in known]
    cluster += [("device", device) for device in pool]
    with narrow_trees():
        assert play(LOCALITY, cluster + steps)


def test_a_policy_that_errs_is_found_and_its_episode_shortened() -> None:
    def forgetful(ledger: Ledger, demand: Demand) -> Decision:
        return decide(ledger, msgspec.structs.replace(demand, anti_affinity=""))

    wrong = msgspec.structs.replace(LOCALITY, fast=forgetful)
    with pytest.raises(Failure, match="policy locality differs") as caught:
        for _ in run(wrong, STATES, SEED):
            pass
    # A node, a device or a free GPU, two demands that repel each other.
    assert len(str(caught.value).splitlines()) <= 4 + 5
    source = random.Random(1)
    steps = LOCALITY.episode(source)
    while play(wrong, steps):
        steps = LOCALITY.episode(source)
    short = shorten(wrong, steps)
    assert not play(wrong, short)
    assert play(LOCALITY, short)
    assert all(play(wrong, short[:at] + short[at + 1 :]) for at in range(len(short)))
