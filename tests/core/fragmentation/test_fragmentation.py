"""Fragmentation of nodes, against sums made by hand."""

from itertools import product
from typing import Any

import pytest

from kubeshare.core.demand import Demand, Share
from kubeshare.core.fragmentation.left import nodes_left
from kubeshare.core.fragmentation.measure import (
    DemandClass,
    GpuLeft,
    NodeLeft,
    fragmented_in_all,
    fragmented_micros,
)
from kubeshare.core.fragmentation.recent import RecentDemands
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.units import GI, MICROS, Memory

HALF = MICROS // 2


def left(*micros: int, **node: Any) -> NodeLeft:
    gpus = tuple(GpuLeft(each, each * GI // MICROS, GI) for each in sorted(micros))
    return NodeLeft(gpus, node.pop("model", "T4"), **node)


def test_what_no_demand_fits_on_is_a_fragment() -> None:
    half = {DemandClass(micros=HALF): 1}
    assert fragmented_micros(left(HALF - 1, HALF, MICROS), half) == HALF - 1
    pair = {DemandClass(micros=MICROS, count=2): 1}
    assert fragmented_micros(left(MICROS, HALF), pair) == MICROS + HALF
    assert fragmented_micros(left(MICROS, MICROS, HALF), pair) == HALF


def test_kinds_count_by_how_often_they_occur() -> None:
    kinds = {DemandClass(micros=HALF): 3, DemandClass(micros=MICROS): 1}
    assert fragmented_micros(left(HALF), kinds) == HALF / 4
    without_gpu = {**kinds, DemandClass(micros=0, count=0): 4}
    assert fragmented_micros(left(HALF), without_gpu) == HALF * 5 / 8


def test_memory_models_and_cpus_are_needed_too() -> None:
    memory = {DemandClass(micros=HALF, memory=Memory(bytes=GI)): 1}
    short = NodeLeft((GpuLeft(MICROS, GI - 1, 2 * GI),), "T4")
    assert fragmented_micros(short, memory) == MICROS
    assert fragmented_micros(left(MICROS), memory) == 0
    model = {DemandClass(micros=HALF, models=frozenset(["A10"])): 1}
    assert fragmented_micros(left(MICROS), model) == MICROS
    assert fragmented_micros(left(MICROS, model="A10"), model) == 0
    cpus = {DemandClass(micros=HALF, cpu_millis=2000): 1}
    assert fragmented_micros(left(MICROS, cpu_millis=1999), cpus) == MICROS
    assert fragmented_micros(left(MICROS, cpu_millis=2000), cpus) == 0
    assert fragmented_micros(left(MICROS), cpus) == 0


def test_a_proportional_demand_needs_the_same_part_of_compute() -> None:
    kind = {DemandClass(micros=0, memory=Memory(bytes=GI), proportional=True): 1}
    enough = NodeLeft((GpuLeft(HALF, 2 * GI, 2 * GI),), "")
    short = NodeLeft((GpuLeft(HALF - 1, 2 * GI, 2 * GI),), "")
    assert fragmented_micros(enough, kind) == 0
    assert fragmented_micros(short, kind) == HALF - 1


def test_nothing_is_a_fragment_before_the_first_demand() -> None:
    assert fragmented_micros(left(HALF), {}) == 0


def test_nodes_that_are_alike_count_each() -> None:
    kinds = {DemandClass(micros=HALF): 1, DemandClass(micros=MICROS, count=2): 1}
    nodes = [left(*amounts) for amounts in product((0, HALF - 1, HALF, MICROS), repeat=2)] * 2
    each = sum(fragmented_micros(node, kinds) for node in nodes)
    assert fragmented_in_all(nodes, kinds) == pytest.approx(each)


def test_what_is_left_of_a_ledger() -> None:
    free = FreeGpu("A10", 2 * GI)
    ledger = Ledger([Node(name="n1", free=(free,))])
    for name, node in {"used": "n1", "failed": "n1", "fenced": "n1", "elsewhere": "n2"}.items():
        ledger.add_device(Device(id=name, node=node, model="T4", memory_bytes=GI))
    ledger.mark("failed", healthy=False)
    ledger.mark("fenced", fenced=True)
    asked = Demand(uid="a", name="a", request_micros=HALF, memory=Memory(bytes=GI // 4))
    ledger.place(asked, "used")
    assert list(nodes_left(ledger, lambda _: None)) == [
        NodeLeft((GpuLeft(HALF, GI * 3 // 4, GI),), "T4"),
        NodeLeft((GpuLeft(MICROS, 2 * GI, 2 * GI),), "A10"),
    ]


def test_the_oldest_demand_is_forgotten() -> None:
    recent = RecentDemands(window=2)
    for uid, micros in (("a", 1), ("a", 1), ("b", 2), ("c", 2)):
        recent.add(Demand(uid=uid, name=uid, request_micros=micros))
    assert recent.most_common() == {DemandClass(micros=2): 2}


def test_each_share_of_a_demand_is_of_a_kind() -> None:
    recent = RecentDemands()
    shares = (Share(name="x", request_micros=HALF, count=2), Share(name="y", request_micros=1))
    recent.add(Demand(uid="a", name="a", shares=shares, model="T4"))
    models = frozenset(["T4"])
    assert recent.most_common(1) == {DemandClass(micros=HALF, count=2, models=models): 1}
    assert len(recent.most_common()) == 2
