"""Moves that free whole GPUs: which, in what order, and that each of them can be made."""

import random
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.builders import a_demand, a_device, a_holder, a_node
from core.clusters import POLICIES, Asker, Cluster
from kubeshare.core.constraints.filter import Filter
from kubeshare.core.decision import commit
from kubeshare.core.defragmentation import Step, defragment, demand_of
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy


def found(ledger: Ledger, **instead: Demand | None) -> list[Step]:
    """The steps under ``locality``; of some demands another one is known, None may not move."""
    movable = {
        holder.demand: demand_of(holder, device)
        for device in ledger.devices.values()
        for holder in device.holders
    }
    known = {uid: demand for uid, demand in (movable | instead).items() if demand is not None}
    return defragment(ledger, policy("locality"), known)


def in_words(steps: list[Step]) -> list[tuple[str, dict[str, str]]]:
    return [
        (
            " ".join(step.frees),
            {move.demand.name: " ".join(sorted(move.after)) for move in step.moves},
        )
        for step in steps
    ]


def test_the_gpu_that_is_emptied_for_least_is_first() -> None:
    ledger = Ledger(
        [a_node("n1"), a_node("n2")],
        [
            a_device("A", a_holder("train", "0.6")),
            a_device("B", a_holder("web", "0.3")),
            a_device("C", a_holder("batch", "0.5"), node="n2"),
            a_device("D", a_holder("cache", "0.2"), a_holder("log", "0.1"), node="n2"),
        ],
    )
    steps = found(ledger)
    assert in_words(steps) == [("B", {"web": "A"}), ("C", {"batch": "D"})]
    assert [(step.micros, len(step.moves)) for step in steps] == [(300_000, 1), (500_000, 1)]


def test_all_of_a_gpu_moves_or_nothing() -> None:
    ledger = Ledger(
        [a_node()],
        [
            a_device("A", a_holder("full", "0.9")),
            a_device("B", a_holder("small", "0.1"), a_holder("middle", "0.5")),
        ],
    )
    assert found(ledger) == []
    ledger.add_device(a_device("C", a_holder("x", "0.2"), a_holder("y", "0.2"), a_holder("z", "0")))
    # The larger one first, else the smaller one would be in its way.
    assert in_words(found(ledger)) == [("B", {"middle": "C", "small": "A"})]


def test_idle_and_free_gpus_are_not_used() -> None:
    ledger = Ledger(
        [a_node(free=3)],
        [a_device("A", a_holder("a", "0.6")), a_device("B", a_holder("b")), a_device("C")],
    )
    before = dict(ledger.devices), dict(ledger.nodes)
    assert found(ledger) == []
    assert (dict(ledger.devices), dict(ledger.nodes)) == before


@pytest.mark.parametrize("state", [{"healthy": False}, {"fenced": True}, {"node": "unknown"}])
def test_a_gpu_that_takes_no_pod_is_neither_emptied_nor_filled(state: dict[str, object]) -> None:
    out = msgspec.structs.replace(a_device("A", a_holder("a", "0.2")), **state)
    assert found(Ledger([a_node()], [out, a_device("B", a_holder("b", "0.5"))])) == []


def test_who_may_not_move_stays_and_receives() -> None:
    devices = [a_device("A", a_holder("a", "0.2")), a_device("B", a_holder("b", "0.5"))]
    ledger = Ledger([a_node()], devices)
    assert in_words(found(ledger, a=None)) == [("B", {"b": "A"})]
    assert found(ledger, a=None, b=None) == []


def test_what_a_demand_asks_for_binds() -> None:
    devices = [a_device("A", a_holder("a", "0.2")), a_device("B", a_holder("b"), node="n2")]
    ledger = Ledger([a_node("n1"), a_node("n2")], devices)
    assert in_words(found(ledger)) == [("A", {"a": "B"})]
    for wish in ({"nodes": frozenset(["n1"])}, {"device_id": "A"}, {"model": "A100"}):
        stays = a_demand("a", "0.2", **wish)
        assert in_words(found(ledger, a=stays)) == [("B", {"b": "A"})]


@pytest.mark.parametrize(
    ("label", "other"), [({"anti_affinity": "x"}, {"anti_affinity": "x"}), ({"exclusion": "x"}, {})]
)
def test_labels_bind(label: dict[str, Any], other: dict[str, Any]) -> None:
    devices = [
        a_device("A", a_holder("a", "0.2", **label)),
        a_device("B", a_holder("b", "0.3", **other)),
    ]
    assert found(Ledger([a_node()], devices)) == []


def test_a_demand_of_several_gpus_moves_as_a_whole_and_may_free_all_of_them() -> None:
    pair = a_demand("pair", "0.3", count=2)
    devices = [a_device(name, node="n1") for name in "AB"]
    devices += [a_device(name, a_holder(f"on {name}"), node="n2") for name in "CD"]
    ledger = Ledger([a_node("n1"), a_node("n2")], devices)
    ledger.place(pair, "A", "B")
    [step] = found(ledger, pair=pair)
    assert in_words([step]) == [("A B", {"pair": "C D"})]
    assert step.micros == 600_000


def test_a_demand_of_which_only_the_holder_is_known_keeps_its_model() -> None:
    device = a_device("A", a_holder("a", "0.2", affinity="red", namespace="team"), model="V100")
    demand = demand_of(device.holders[0], device)
    assert (demand.model, demand.affinity, demand.namespace) == ("V100", "red", "team")
    assert Ledger([], [device]).comparable(demand) == demand
    scoped = Ledger([], [device], label_scope="namespace").devices["A"]
    assert demand_of(scoped.holders[0], scoped).qualified().affinity == "team/red"


@pytest.mark.parametrize(("name", "cluster", "asker"), POLICIES, ids=[row[0] for row in POLICIES])
@given(seed=st.integers(0, 2**32))
def test_every_move_fits_at_its_time_and_frees_what_it_says(
    name: str, cluster: Cluster, asker: Asker, seed: int
) -> None:
    source = random.Random(seed)
    decide, ledger = policy(name), cluster(source)
    demands: dict[str, Demand] = {}
    for number in range(source.randint(1, 14)):
        demand = asker(source, number)
        decision = decide(ledger, demand)
        if decision.outcome == "bound":
            commit(ledger, demand, decision)
            demands[demand.uid] = demand
    for uid in source.sample(sorted(demands), len(demands) // 3):
        ledger.release(uid)
        del demands[uid]
    stays = set(source.sample(sorted(demands), len(demands) // 5))
    movable = {uid: demand for uid, demand in demands.items() if uid not in stays}
    before = Ledger(ledger.nodes.values(), ledger.devices.values())
    steps = defragment(ledger, decide, movable)
    assert ledger == before
    _replay(before, steps, stays)


def _replay(ledger: Ledger, steps: list[Step], stays: set[str]) -> None:
    """Make the moves; the ledger itself refuses over-commitment."""
    idle = {device.id for device in ledger.devices.values() if device.idle}
    moved = Counter(move.demand.uid for step in steps for move in step.moves)
    assert not moved.keys() & stays
    assert set(moved.values()) <= {1}
    for step in steps:
        for move in step.moves:
            assert set(move.before) == ledger.release(move.demand.uid)
            demand = ledger.comparable(move.demand)
            for device_id in move.after:
                assert Filter(ledger, demand).why_not(ledger.devices[device_id]) is None
            ledger.place(move.demand, *move.after)
        now = {device.id for device in ledger.devices.values() if device.idle}
        assert now == idle | set(step.frees)
        assert not idle & set(step.frees)
        assert step.frees
        idle = now


@pytest.mark.parametrize("kind", ["locality", "topology"])
def test_half_of_a_half_full_cluster_is_freed(kind: str) -> None:
    devices = []
    for number in range(400):
        device = Device(
            id=f"n{number // 8}/{number % 8}",
            node=f"n{number // 8}",
            index=number % 8,
            memory_bytes=1000,
        )
        holder = a_holder(f"p{number}", "0.45" if number % 2 else "0.5")
        devices.append(msgspec.structs.replace(device, holders=(holder,)))
    nodes = [a_node(f"n{number}") for number in range(50)]
    ledger = Ledger(nodes, devices)
    movable = {each.holders[0].demand: demand_of(each.holders[0], each) for each in devices}
    assert len(defragment(ledger, policy(kind), movable)) == 200
