"""Beside another namespace, a namespace takes a quarter of the slots of a vGPU at most."""

import random
from typing import Any

import pytest

from core.builders import a_demand, a_device, a_holder, a_node
from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand, Share
from kubeshare.core.ledger.holder import MAX_HOLDERS, Holder
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy
from kubeshare.core.quota.slots import MAX_SLOTS, within_slots

POLICIES = ("locality", "binpack", "topology")
WHY = "32 of its 128 slots are this namespace's; beside another namespace it takes 32 at most"


def crowd(number: int, namespace: str = "a") -> list[Holder]:
    return [a_holder(f"{namespace}{each}", "0", namespace=namespace) for each in range(number)]


def ask(ledger: Ledger, name: str, *, by: str = "locality", **fields: Any) -> Decision:
    demand = a_demand(name, "0", **({"namespace": "a"} | fields))
    return within_slots(policy(by))(ledger, demand)


@pytest.mark.parametrize("by", POLICIES)
@pytest.mark.parametrize(
    ("own", "others", "outcome"),
    [
        (31, 1, "bound"),
        (32, 1, "pending"),
        (40, 1, "pending"),  # it was there before the other namespace
        (32, 0, "bound"),
        (MAX_HOLDERS - 1, 0, "bound"),
        (1, 32, "bound"),
    ],
)
def test_a_namespace_takes_its_slots_and_no_more(
    by: str, own: int, others: int, outcome: str
) -> None:
    ledger = Ledger([a_node()], [a_device("A", *crowd(own), *crowd(others, "b"))])
    before = Ledger(ledger.nodes.values(), ledger.devices.values())
    assert ask(ledger, "p", by=by).outcome == outcome
    assert ledger == before


@pytest.mark.parametrize("by", POLICIES)
def test_the_reason_has_the_numbers_and_names_nobody(by: str) -> None:
    full = a_device("A", *crowd(32), *crowd(1, "b"), model="V100")
    ledger = Ledger([a_node()], [full, a_device("B", model="M40")])
    assert ask(ledger, "p", by=by).devices == ("B",)
    waiting = ask(ledger, "p", by=by, model="V100")
    assert (waiting.outcome, waiting.reasons["n1/A"]) == ("pending", WHY)
    assert ask(ledger, "q", by=by, namespace="c", model="V100").outcome == "bound"


@pytest.mark.parametrize(
    ("state", "why"),
    [({"healthy": False}, "unhealthy"), ({"fenced": True}, "fenced, takes no new holder")],
)
def test_what_is_out_of_service_is_that_and_not_full(state: dict[str, Any], why: str) -> None:
    ledger = Ledger([a_node()], [a_device("A", *crowd(32), *crowd(1, "b"), **state)])
    assert ask(ledger, "p").reasons["n1/A"] == why


@pytest.mark.parametrize("asked", [2, 16])
def test_shares_that_may_be_on_one_gpu_need_a_slot_each(asked: int) -> None:
    names = [f"s{number}" for number in range(asked)]
    shares = tuple(Share(name=name, containers=(name,)) for name in names)
    demand = Demand(uid="p", name="p", namespace="a", shares=shares)
    most = MAX_SLOTS - asked
    for own, outcome in ((most, "bound"), (most + 1, "pending")):
        ledger = Ledger([a_node()], [a_device("A", *crowd(own), *crowd(1, "b"))])
        decision = within_slots(policy("binpack"))(ledger, demand)
        assert decision.outcome == outcome
    words = f"{most + 1} of its 128 slots are this namespace's, {asked} asked;"
    assert words in decision.reasons["n1/A"]


def test_it_fits_again_when_the_other_namespace_or_a_holder_of_its_own_leaves() -> None:
    for leaver in ("b0", "a7"):
        ledger = Ledger([a_node()], [a_device("A", *crowd(32), *crowd(1, "b"))])
        assert ask(ledger, "p").outcome == "pending"
        with ledger.what_if():
            ledger.release(leaver)
            assert ask(ledger, "p").outcome == "bound"
        assert ask(ledger, "p").outcome == "pending"
        ledger.release(leaver)
        assert ask(ledger, "p").outcome == "bound"


@pytest.mark.parametrize("seed", range(3))
def test_whoever_comes_after_another_namespace_never_has_more(seed: int) -> None:
    """Two namespaces beside a holder of a third one, with holders that come and go."""
    draw = random.Random(seed)
    ledger = Ledger([a_node()], [a_device("A", *crowd(1, "victim"))])
    decide = within_slots(policy(POLICIES[seed]))
    refused = 0
    for number in range(200):
        held = [each.demand for each in ledger.devices["A"].holders if each.namespace != "victim"]
        if held and draw.random() < 0.2:
            ledger.release(draw.choice(held))
        demand = a_demand(f"p{number}", "0", namespace=draw.choice("ab"))
        decision = decide(ledger, demand)
        own = [each for each in ledger.devices["A"].holders if each.namespace == demand.namespace]
        assert (decision.outcome == "bound") == (len(own) < MAX_SLOTS)
        if decision.outcome == "bound":
            commit(ledger, demand, decision)
        else:
            refused += 1
    assert refused
