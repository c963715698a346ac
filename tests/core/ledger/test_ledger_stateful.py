"""The ledger's promises, whatever happens to it and in whatever order."""

import random

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from core.strategies import DEVICE_IDS, NODE_NAMES, demands, devices, free_gpus, nodes
from kubeshare.core.decision import commit
from kubeshare.core.demand import Demand
from kubeshare.core.errors import LedgerError
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.history import Snapshot
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.ledger.totals import Totals
from kubeshare.core.policies.locality.policy import decide

NAMES = st.sampled_from([f"p{number}" for number in range(6)])
IDS = st.sampled_from(DEVICE_IDS)


class LedgerMachine(RuleBasedStateMachine):
    """Does anything to a ledger; beside it, a plain account of who was given what."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.given: dict[str, dict[str, tuple[int, int]]] = {}  # uid -> device -> (micros, bytes)
        self.taken: list[tuple[Snapshot, dict[str, Node], dict[str, Device]]] = []

    @invariant()
    def nothing_is_over_committed(self) -> None:
        for device in self.ledger.devices.values():
            assert sum(holder.request_micros for holder in device.holders) <= 1_000_000
            assert sum(holder.memory_bytes for holder in device.holders) <= device.memory_bytes

    @invariant()
    def the_holders_are_those_who_were_given_something(self) -> None:
        held: dict[str, dict[str, tuple[int, int]]] = {}
        for device in self.ledger.devices.values():
            for holder in device.holders:
                held.setdefault(holder.demand, {})[device.id] = (
                    holder.request_micros,
                    holder.memory_bytes,
                )
        assert held == self.given
        for uid, parts in self.given.items():
            assert self.ledger.held_by(uid) == parts.keys()

    @invariant()
    def rebuilding_it_in_any_order_gives_an_equal_one(self) -> None:
        shuffler = random.Random(len(self.given))
        nodes_again = list(self.ledger.nodes.values())
        devices_again = [
            msgspec.structs.replace(device, holders=device.holders[::-1])
            for device in self.ledger.devices.values()
        ]
        shuffler.shuffle(nodes_again)
        shuffler.shuffle(devices_again)
        rebuilt = Ledger(nodes_again, devices_again)
        assert rebuilt == self.ledger
        assert all(rebuilt.held_by(uid) == self.ledger.held_by(uid) for uid in self.given)

    @rule(node=nodes)
    def know_a_node(self, node: Node) -> None:
        self.ledger.set_node(node)

    @rule(name=st.sampled_from(NODE_NAMES))
    def forget_a_node(self, name: str) -> None:
        if name in self.ledger.nodes:
            self.ledger.remove_node(name)

    @rule(name=st.sampled_from(NODE_NAMES), free=st.lists(free_gpus, max_size=3).map(tuple))
    def free_gpus_change(self, name: str, free: tuple[FreeGpu, ...]) -> None:
        if name in self.ledger.nodes:
            self.ledger.set_free(name, free)

    @rule(device=devices)
    def add_a_device(self, device: Device) -> None:
        if device.id in self.ledger.devices:
            before = dict(self.ledger.devices)
            with pytest.raises(LedgerError):
                self.ledger.add_device(device)
            assert self.ledger.devices == before
        else:
            self.ledger.add_device(device)

    @rule(device_id=IDS)
    def remove_a_device(self, device_id: str) -> None:
        device = self.ledger.devices.get(device_id)
        if device is None or device.holders:
            with pytest.raises(LedgerError):
                self.ledger.remove_device(device_id)
        else:
            self.ledger.remove_device(device_id)

    @rule(device_id=IDS, healthy=st.none() | st.booleans(), fenced=st.none() | st.booleans())
    def mark_a_device(self, device_id: str, healthy: bool | None, fenced: bool | None) -> None:
        if device_id in self.ledger.devices:
            self.ledger.mark(device_id, healthy=healthy, fenced=fenced)

    @rule(demand=demands(NAMES), ids=st.lists(IDS, min_size=1, max_size=2))
    def place_somewhere(self, demand: Demand, ids: list[str]) -> None:
        before = dict(self.ledger.devices)
        try:
            self.ledger.place(demand, *ids)
        except LedgerError:
            assert self.ledger.devices == before
        else:
            self._account(demand)

    @rule(demand=demands(NAMES))
    def place_where_the_policy_says(self, demand: Demand) -> None:
        decision = decide(self.ledger, demand)
        if decision.outcome == "bound" and demand.uid not in self.given:
            commit(self.ledger, demand, decision)
            assert self.ledger.held_by(demand.uid) == set(decision.devices)
            self._account(demand)

    @rule(demand=demands(NAMES))
    def placing_and_releasing_restores_exactly(self, demand: Demand) -> None:
        before = (dict(self.ledger.nodes), dict(self.ledger.devices))
        decision = decide(self.ledger, demand)
        if decision.outcome == "bound" and not decision.created and demand.uid not in self.given:
            commit(self.ledger, demand, decision)
            self.ledger.release(demand.uid)
        assert (self.ledger.nodes, self.ledger.devices) == before

    @rule(uid=NAMES)
    def release(self, uid: str) -> None:
        if uid in self.given:
            assert self.ledger.release(uid) == self.given.pop(uid).keys()
        else:
            with pytest.raises(LedgerError):
                self.ledger.release(uid)

    @rule(demand=demands(NAMES), uid=NAMES, device_id=IDS)
    def ask_what_if(self, demand: Demand, uid: str, device_id: str) -> None:
        before = (dict(self.ledger.nodes), dict(self.ledger.devices))
        with self.ledger.what_if():
            if self.ledger.held_by(uid):
                self.ledger.release(uid)
            decision = decide(self.ledger, demand)
            if decision.outcome == "bound" and not self.ledger.held_by(demand.uid):
                commit(self.ledger, demand, decision)
            if device_id in self.ledger.devices and self.ledger.devices[device_id].idle:
                self.ledger.remove_device(device_id)
        assert (self.ledger.nodes, self.ledger.devices) == before

    @rule()
    def take_a_snapshot(self) -> None:
        now = self.ledger.snapshot()
        self.taken.append((now, dict(self.ledger.nodes), dict(self.ledger.devices)))

    @rule(source=st.randoms(use_true_random=False), look=st.booleans())
    def a_snapshot_shows_what_was(self, source: random.Random, look: bool) -> None:
        if self.taken:
            snapshot, nodes_then, devices_then = self.taken.pop(source.randrange(len(self.taken)))
            if look:
                assert snapshot.nodes == nodes_then
                assert snapshot.devices == devices_then

    @invariant()
    def sums_and_labels_are_those_of_the_holders(self) -> None:
        for device in self.ledger.devices.values():
            assert device.totals == Totals.of(device.holders)
            assert [holder.demand for holder in device.holders] == sorted(
                holder.demand for holder in device.holders
            )

    def _account(self, demand: Demand) -> None:
        self.given[demand.uid] = {
            device_id: (
                demand.request_micros,
                demand.memory.on(self.ledger.devices[device_id].memory_bytes),
            )
            for device_id in self.ledger.held_by(demand.uid)
        }


LedgerMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestLedger = LedgerMachine.TestCase
