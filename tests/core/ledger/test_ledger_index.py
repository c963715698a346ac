"""Indexes of a ledger: they see each change, and each change that is undone."""

import pytest

from core.builders import a_demand, a_device, a_node
from kubeshare.core.errors import LedgerError
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.ledger import Ledger


class Copy:
    """An index that holds what the ledger holds."""

    def __init__(self, ledger: Ledger) -> None:
        self.devices = dict(ledger.devices)
        self.nodes = dict(ledger.nodes)

    def device_changed(self, before: Device | None, after: Device | None) -> None:
        if before:
            assert self.devices.pop(before.id) == before
        if after:
            self.devices[after.id] = after

    def node_changed(self, before: Node | None, after: Node | None) -> None:
        if before:
            assert self.nodes.pop(before.name) == before
        if after:
            self.nodes[after.name] = after


def test_an_index_is_told_of_every_change_and_made_once() -> None:
    ledger = Ledger([a_node("n1", free=1)], [a_device("A")])
    copy = ledger.index(Copy)
    ledger.add_node(a_node("n2"))
    ledger.place(a_demand("p"), "A")
    ledger.place(a_demand("q"), "B", new=[a_device("B")])
    ledger.release("p")
    ledger.remove_device("A")
    ledger.remove_node("n2")
    assert copy.devices == ledger.devices
    assert copy.nodes == ledger.nodes
    assert ledger.index(Copy) is copy


def test_an_index_is_told_of_what_is_taken_back() -> None:
    ledger = Ledger([a_node(free=1)], [a_device("A"), a_device("B")])
    copy = ledger.index(Copy)
    with pytest.raises(LedgerError, match="no vGPU C"):
        ledger.place(a_demand("p", count=3), "A", "B", "C")
    with ledger.what_if():
        ledger.place(a_demand("p"), "A")
        ledger.release("p")
        ledger.remove_device("A")
        ledger.place(a_demand("p"), "A", new=[a_device("A")])
        ledger.remove_node("n1")
    assert copy.devices == ledger.devices
    assert copy.nodes == ledger.nodes
