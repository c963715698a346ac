"""Placing an order in steps: the same answer, and no answer that others have made invalid."""

import random

import pytest

from core.builders import a_demand, a_device, a_holder, a_node
from core.clusters import POLICIES, Asker, Cluster
from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand
from kubeshare.core.gang import GangPlacement, Nearness, one_order, placements
from kubeshare.core.gang.nearness import Near
from kubeshare.core.gang.one_order import OneOrder
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy

pytestmark = pytest.mark.slow

LOCALITY = policy("locality")


def bare(placement: GangPlacement) -> object:
    """A placement with the reasons why a member did not fit as they are now."""
    decisions = [(each.demand, each.decision.devices) for each in placement.placed]
    unplaced = placement.unplaced
    return decisions, placement.room_for, None if unplaced is None else dict(unplaced.reasons)


@pytest.mark.parametrize("near", [None, "node", "nodes"])
@pytest.mark.parametrize(("name", "cluster", "demand"), POLICIES)
def test_the_answer_does_not_depend_on_the_size_of_the_steps(
    name: str,
    cluster: Cluster,
    demand: Asker,
    near: Near | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, steps = random.Random(31), 0
    for _ in range(25):
        ledger = cluster(source)
        members = [demand(source, number) for number in range(source.randint(1, 5))]
        asked = (ledger, members, source.randint(1, len(members)))
        nearness = None if near is None else Nearness(near=near)
        found = []
        for at_once in (128, 1, 2):
            monkeypatch.setattr(one_order, "AT_ONCE", at_once)
            before = ledger.snapshot().devices
            answers = list(placements(policy(name), *asked, nearness))
            assert ledger.devices == before, "a step left a member behind"
            assert not any(answer.whole for answer in answers[:-1])
            found.append(bare(answers[-1]))
            steps += len(answers)
        assert found[0] == found[1] == found[2]
    assert steps > 100


@pytest.mark.parametrize("near", [None, "node", "nodes"])
def test_no_step_decides_many_members(near: Near | None) -> None:
    decided = 0

    def counting(ledger: Ledger, demand: Demand) -> Decision:
        nonlocal decided
        decided += 1
        return LOCALITY(ledger, demand)

    members = [a_demand(f"m{number}", "0.02") for number in range(512)]
    ledger = Ledger([a_node(free=20)])
    nearness = None if near is None else Nearness(near=near)
    most, whole = 0, False
    for answer in placements(counting, ledger, members, 512, nearness):
        most, decided, whole = max(most, decided), 0, answer.whole
    assert whole
    assert most < 150


@pytest.fixture
def _member_by_member(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_order, "AT_ONCE", 1)


def changed_between(ledger: Ledger, other: str, gpu: str) -> GangPlacement:
    """Two members placed in two steps, between which another demand gets a part of a GPU."""
    order = OneOrder(LOCALITY, ledger, [a_demand("m0", "0.4"), a_demand("m1", "0.4")])
    order.step()
    ledger.place(a_demand("other", other), gpu)
    while not order.done:
        order.step()
    for each in order.placement.placed:
        commit(ledger, each.demand, each.decision)  # raises where there is no room
    return order.placement


@pytest.mark.usefixtures("_member_by_member")
def test_a_member_whose_gpu_was_taken_meanwhile_is_decided_anew() -> None:
    ledger = Ledger([a_node()], [a_device("A", a_holder("q", "0.5")), a_device("B")])
    assert LOCALITY(ledger, a_demand("m0", "0.4")).devices == ("A",)
    found = changed_between(ledger, "0.3", "A")
    assert [each.decision.devices for each in found.placed] == [("B",), ("B",)]


@pytest.mark.usefixtures("_member_by_member")
def test_a_label_that_came_meanwhile_counts_although_there_is_room() -> None:
    ledger = Ledger([a_node()], [a_device("A", a_holder("q", "0.5")), a_device("B")])
    device = ledger.devices["A"]
    order = OneOrder(LOCALITY, ledger, [a_demand("m0", "0.4"), a_demand("m1", "0.4")])
    order.step()
    assert [each.decision.devices for each in order.placement.placed] == [("A",)]
    ledger.release("q")
    ledger.place(a_demand("mine", "0.1", exclusion="mine"), device.id)
    order.step()
    assert [each.decision.devices for each in order.placement.placed] == [("B",), ("B",)]


@pytest.mark.usefixtures("_member_by_member")
def test_a_member_that_lost_its_place_to_no_other_gpu_is_not_placed() -> None:
    ledger = Ledger([a_node()], [a_device("A", a_holder("q", "0.1"))])
    found = changed_between(ledger, "0.8", "A")
    assert (found.placed, found.room_for) == ((), 0)
    assert found.unplaced is not None


@pytest.mark.usefixtures("_member_by_member")
def test_a_member_joins_its_label_that_came_meanwhile_to_another_gpu() -> None:
    ledger = Ledger([a_node()], [a_device("A", a_holder("q", "0.1")), a_device("B")])
    members = [a_demand(name, "0.2", affinity="a") for name in ("m0", "m1")]
    order = OneOrder(LOCALITY, ledger, members)
    order.step()
    [(first,)] = [each.decision.devices for each in order.placement.placed]
    other = "B" if first == "A" else "A"
    ledger.place(a_demand("other", "0.1", affinity="a"), other)
    order.step()
    assert [each.decision.devices for each in order.placement.placed] == [(other,), (other,)]
