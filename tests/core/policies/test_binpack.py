"""The binpack policy against a slow one written from the text, and for its own promises."""

import random

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import samples
from core.builders import GPUSHARE_MEMORY, a_gpu, a_pod
from core.clusters import binpack_cluster, binpack_demand
from core.policies.slow_binpack import slow_decide
from core.strategies import LABELS, MODELS, NODE_NAMES, SHARES, SIZES, free_gpus, memories
from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.holder import Holder
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy
from kubeshare.core.policies.binpack.policy import decide
from robustness.prove.binpack import BINPACK, in_short
from robustness.prove.engine import Step, narrow_trees, play, run

STATES = samples.count(whole=90_000, sample=20_000)
SEED = 20180918


def assert_explained(ledger: Ledger, demand: Demand, decision: Decision) -> None:
    """Every GPU of a node that may be used and is known has a reason, unless it was taken."""
    for device in ledger.devices.values():
        asked = demand.nodes is None or device.node in demand.nodes
        passed = device.id not in decision.devices and asked and device.node in ledger.nodes
        assert (device.path in decision.reasons) == passed
    for name in ledger.nodes:
        excluded = demand.nodes is not None and name not in demand.nodes
        if excluded or not (decision.node is None or decision.created):
            assert (name in decision.reasons) == excluded
        elif name != decision.node:
            # A node all of whose GPUs are numbered is explained by those.
            gpus = [path for path in decision.reasons if path.startswith(f"{name}/")]
            assert gpus or name in decision.reasons
    assert all(decision.reasons.values())
    assert (decision.field is not None) == (decision.outcome == "rejected")


gpus = st.builds(
    lambda node, index, model, memory, healthy, fenced: Device(
        id=f"{node}/{index}",
        node=node,
        index=index,
        model=model,
        memory_bytes=memory,
        healthy=healthy,
        fenced=fenced,
    ),
    st.sampled_from(NODE_NAMES),
    st.sampled_from([0, 1, 2, 10]),
    MODELS,
    SIZES,
    st.sampled_from([True, True, True, False]),
    st.sampled_from([False, False, False, True]),
)
pods = st.builds(
    lambda uid, memory, request, proportional, count, model, nodes, labels: Demand(
        uid=uid,
        name=uid,
        request_micros=0 if proportional else request,
        memory=memory,
        proportional=proportional,
        count=count,
        model=model,
        nodes=nodes,
        affinity=labels[0],
        anti_affinity=labels[1],
        exclusion=labels[2],
    ),
    st.uuids().map(str),
    memories,
    SHARES,
    st.sampled_from([True, True, True, False]),
    st.sampled_from([1, 1, 1, 2, 3]),
    MODELS,
    st.none() | st.frozensets(st.sampled_from(NODE_NAMES)),
    st.tuples(LABELS, LABELS, LABELS),
)


@pytest.mark.slow
@settings(max_examples=samples.count(whole=300, sample=60), deadline=None)
@given(
    st.frozensets(st.sampled_from(NODE_NAMES)),
    st.fixed_dictionaries(dict.fromkeys(NODE_NAMES, st.lists(free_gpus, max_size=2).map(tuple))),
    st.lists(gpus, max_size=6, unique_by=lambda device: device.id),
    st.lists(pods, min_size=1, max_size=10),
)
def test_it_answers_as_the_slow_one_and_explains_itself(
    known: frozenset[str],
    free: dict[str, tuple[FreeGpu, ...]],
    pool: list[Device],
    asked: list[Demand],
) -> None:
    nodes = [Node(name, free[name]) for name in known]
    ledger = Ledger(nodes, pool)
    for demand in asked:
        decision = decide(ledger, demand)
        assert in_short(decision) == slow_decide(ledger, demand)
        assert_explained(ledger, demand, decision)
        if decision.outcome == "bound":
            commit(ledger, demand, decision)


@pytest.mark.slow
@pytest.mark.sampled
def test_on_many_random_states_it_answers_as_the_slow_one() -> None:
    *_, seen = run(BINPACK, STATES, SEED)
    click.echo(f"{seen.states} states, {seen.distinct} distinct, {dict(seen.branches)}")
    assert seen.distinct > 0.95 * STATES
    # Every kind of answer came often; otherwise the comparison would say little.
    assert len(seen.branches) == 24
    assert min(seen.branches.values()) >= STATES // 2_250


STEPS = st.one_of(
    pods.map(lambda pod: ("ask", pod)),
    pods.map(lambda pod: ("ask", pod)),
    pods.map(lambda pod: ("ask", pod)),
    gpus.map(lambda gpu: ("device", gpu)),
    st.builds(
        lambda name, free: ("node", Node(name, free)),
        st.sampled_from(NODE_NAMES),
        st.lists(free_gpus, max_size=2).map(tuple),
    ),
    st.tuples(st.sampled_from(["n1/0", "n2/1"]), st.booleans(), st.booleans()).map(
        lambda marks: ("mark", marks)
    ),
)


@pytest.mark.slow
@settings(max_examples=samples.count(whole=300, sample=60), deadline=None)
@given(
    st.lists(gpus, max_size=6, unique_by=lambda device: device.id),
    st.lists(STEPS, min_size=50, max_size=80),
)
def test_hypothesis_finds_no_state_in_which_it_answers_otherwise(
    pool: list[Device], steps: list[Step]
) -> None:
    cluster: list[Step] = [("node", Node(name)) for name in NODE_NAMES]
    cluster += [("device", device) for device in pool]
    with narrow_trees():
        assert play(BINPACK, cluster + steps)


def test_no_answer_depends_on_an_order_of_listing() -> None:
    source = random.Random(12)
    for _ in range(200):
        ledger = binpack_cluster(source)
        for number in range(10):
            demand = binpack_demand(source, number)
            answer = decide(ledger, demand)
            if answer.outcome == "bound":
                commit(ledger, demand, answer)
        demand = binpack_demand(source, 99)
        answer = decide(ledger, demand)
        shuffled = Ledger(
            source.sample(list(ledger.nodes.values()), len(ledger.nodes)),
            source.sample(list(ledger.devices.values()), len(ledger.devices)),
        )
        again = decide(shuffled, demand)
        assert in_short(again) == in_short(answer)
        assert list(again.reasons.items()) == list(answer.reasons.items())


def test_a_node_that_comes_and_goes_takes_its_gpus_along() -> None:
    ledger = Ledger([], [a_gpu("n1", 0)])
    assert decide(ledger, a_pod("p", 1)).outcome == "pending"
    ledger.add_node(Node("n1"))
    assert decide(ledger, a_pod("p", 1)).devices == ("n1/0",)
    ledger.remove_node("n1")
    assert decide(ledger, a_pod("p", 1)).outcome == "pending"
    ledger.remove_device("n1/0")
    assert decide(ledger, a_pod("p", GPUSHARE_MEMORY + 1)).outcome == "pending"


def test_shares_of_a_sixth_fill_a_gpu() -> None:
    ledger = Ledger([Node("n1")], [a_gpu("n1", 0, memory=6 * 7)])
    for number in range(6):
        demand = a_pod(f"p{number}", 7)
        commit(ledger, demand, decide(ledger, demand))
    assert ledger.devices["n1/0"].memory_left == 0
    assert ledger.devices["n1/0"].compute_left >= 0


def test_memory_is_told_before_the_compute_that_follows_it() -> None:
    ledger = Ledger([Node("n1")], [a_gpu("n1", 0, 12207)])
    decision = decide(ledger, a_pod("p", 8138))
    assert decision.reasons == {"n1/0": "memory 3.97Ki left, 7.95Ki asked"}


def test_compute_that_others_hold_is_not_there_for_memory() -> None:
    busy = Device(
        id="n1/0",
        node="n1",
        index=0,
        memory_bytes=100,
        holders=(Holder(demand="q", name="q", request_micros=700_000, memory_bytes=10),),
    )
    ledger = Ledger([Node("n1")], [busy])
    assert decide(ledger, a_pod("p", 30)).devices == ("n1/0",)
    decision = decide(ledger, a_pod("p", 31))
    assert decision.reasons == {"n1/0": "compute 0.3 left, 0.31 asked"}


def test_gpus_with_ids_of_their_own_are_taken_by_their_number() -> None:
    ids = {"vgpu-b": 2, "vgpu-a": 10, "vgpu-d": 3, "vgpu-0": None}

    def device(name: str, row: int | None) -> Device:
        return Device(id=name, node="n1", row=row, memory_bytes=GPUSHARE_MEMORY)

    ledger = Ledger([Node("n1")], [device(name, row) for name, row in ids.items()])
    placed: list[str] = []
    for number in range(4):
        demand = a_pod(f"p{number}", GPUSHARE_MEMORY)
        decision = decide(ledger, demand)
        commit(ledger, demand, decision)
        placed += decision.devices
    assert placed == ["vgpu-b", "vgpu-d", "vgpu-a", "vgpu-0"]
    ledger.release("p0")
    ledger.release("p2")
    ledger.set_device(device("vgpu-b", 11))
    assert decide(ledger, a_pod("p", GPUSHARE_MEMORY)).devices == ("vgpu-a",)


def test_it_is_registered() -> None:
    assert policy("binpack") is decide
