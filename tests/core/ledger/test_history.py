"""Snapshots show their moment after later changes; unreferenced ones keep no log."""

import random

import msgspec

from core.builders import a_demand, a_device, a_node
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.history import History, Snapshot
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.locality.policy import decide


def a_ledger() -> Ledger:
    return Ledger([a_node("n1", free=2)], [a_device("A"), a_device("B")])


def shows(snapshot: Snapshot, ledger: Ledger) -> bool:
    return snapshot.nodes == ledger.nodes and snapshot.devices == ledger.devices


def test_a_snapshot_shows_what_was() -> None:
    ledger = a_ledger()
    before = ledger.snapshot()
    ledger.place(a_demand("p"), "A")
    between = ledger.snapshot()
    ledger.place(a_demand("q"), "C", new=[a_device("C")])
    ledger.remove_device("B")
    assert shows(before, a_ledger())
    expected = a_ledger()
    expected.place(a_demand("p"), "A")
    assert shows(between, expected)
    assert shows(ledger.snapshot(), ledger)


def test_it_shows_the_same_however_often_and_late_it_is_looked_at() -> None:
    ledger = a_ledger()
    before = ledger.snapshot()
    ledger.remove_node("n1")
    assert shows(before, a_ledger())
    ledger.remove_device("A")
    assert shows(before, a_ledger())


def test_what_was_only_supposed_is_not_seen() -> None:
    ledger = a_ledger()
    before = ledger.snapshot()
    with ledger.what_if():
        ledger.place(a_demand("p"), "A")
        inside = ledger.snapshot()
    assert shows(before, a_ledger())
    assert inside.devices["A"].holders


def test_many_snapshots_of_a_changing_ledger_each_show_their_moment() -> None:
    source = random.Random(3)
    ledger = a_ledger()
    kept: list[tuple[Snapshot, dict[str, Node], dict[str, Device]]] = []
    for number in range(500):
        if source.random() < 0.7:
            taken = ledger.snapshot()
            if source.random() < 0.5:
                kept.append((taken, dict(ledger.nodes), dict(ledger.devices)))
        if ledger.held_by("p"):
            ledger.release("p")
        else:
            ledger.place(a_demand("p"), source.choice("AB"))
        ledger.set_free("n1", a_node(free=number % 3).free)
        if kept and source.random() < 0.4:
            snapshot, nodes, devices = kept.pop(source.randrange(len(kept)))
            assert snapshot.nodes == nodes
            assert snapshot.devices == devices


def test_notes_are_bounded_by_the_snapshots_that_somebody_keeps() -> None:
    ledger = a_ledger()
    history = ledger._tables.history
    kept = [ledger.snapshot()]
    recent: list[Snapshot] = []
    for _ in range(300):
        recent = [*recent[-4:], ledger.snapshot()]
        ledger.place(a_demand("p"), "A")
        ledger.release("p")
    assert notes(history) < 30
    assert shows(kept[0], a_ledger())


def notes(history: History) -> int:
    return len(history._moments)


def test_reasons_are_those_of_the_moment_of_the_decision() -> None:
    ledger = a_ledger()
    demand = a_demand("p", "0.7")
    at_once = dict(decide(ledger, demand).reasons)
    later = decide(ledger, demand)
    ledger.place(a_demand("q", "0.9"), "A")
    ledger.remove_device("B")
    assert at_once == later.reasons
    assert repr(later.reasons) == f"Reasons({at_once})"
    assert later.reasons.keys() == {"n1/B"}
    assert msgspec.structs.replace(later, reasons=at_once) == later
