"""Affinity, anti-affinity and exclusion bind under every policy, by example."""

from typing import Any

import pytest

from core.builders import a_demand, a_device, a_holder, a_node
from kubeshare.core.constraints.filter import Filter
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand, LabelScope
from kubeshare.core.diagnosis.explain import shortest_change
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy
from kubeshare.core.preemption import cheapest_preemption

POLICIES = ["locality", "binpack", "topology"]
MANY_NODES = frozenset(f"n{number}" for number in range(1, 20))


def held(device_id: str, **labels: Any) -> Device:
    return a_device(device_id, a_holder(f"on-{device_id}", "0.1", **labels))


CASES: dict[str, tuple[list[Device], dict[str, Any], str | None, dict[str, str]]] = {
    "the demand's anti-affinity is on a holder": (
        [held("A", anti_affinity="g"), held("B", anti_affinity="h")],
        {"anti_affinity": "g"},
        "B",
        {"n1/A": "anti-affinity g is on it already"},
    ),
    "anti-affinity has nowhere to go": (
        [held("A", anti_affinity="g")],
        {"anti_affinity": "g"},
        None,
        {"n1/A": "anti-affinity g is on it already"},
    ),
    "a holder excludes those without a label": (
        [held("A", exclusion="e")],
        {},
        None,
        {"n1/A": "exclusion e, asked none"},
    ),
    "the demand excludes holders without a label": (
        [held("A"), held("B", exclusion="e")],
        {"exclusion": "e"},
        "B",
        {"n1/A": "exclusion none, asked e"},
    ),
    "exclusions differ": (
        [held("A", exclusion="e")],
        {"exclusion": "f"},
        None,
        {"n1/A": "exclusion e, asked f"},
    ),
    "an idle GPU takes any exclusion": ([a_device("A")], {"exclusion": "e"}, "A", {}),
    "affinity goes to the GPU with the label": (
        [held("A"), held("B", affinity="red"), a_device("C")],
        {"affinity": "red"},
        "B",
        {"n1/A": "affinity red is on n1/B", "n1/C": "affinity red is on n1/B"},
    ),
    "affinity waits for the GPU with the label": (
        [a_device("A"), held("B", affinity="red", exclusion="e")],
        {"affinity": "red"},
        None,
        {"n1/A": "affinity red is on n1/B", "n1/B": "exclusion e, asked none"},
    ),
    "an affinity label that no GPU has asks for an idle GPU": (
        [held("A", affinity="blue"), held("B"), a_device("C")],
        {"affinity": "red"},
        "C",
        {
            "n1/A": "occupied, and affinity red asks for an idle or a new vGPU",
            "n1/B": "occupied, and affinity red asks for an idle or a new vGPU",
        },
    ),
    "an affinity label that no GPU has waits for an idle GPU": (
        [held("A")],
        {"affinity": "red"},
        None,
        {"n1/A": "occupied, and affinity red asks for an idle or a new vGPU"},
    ),
    "all labels at once": (
        [
            held("A", affinity="red", anti_affinity="g", exclusion="e"),
            held("B", affinity="red", anti_affinity="h", exclusion="e"),
            held("C", affinity="red", exclusion="f"),
        ],
        {"affinity": "red", "anti_affinity": "g", "exclusion": "e"},
        "B",
        {"n1/A": "anti-affinity g is on it already", "n1/C": "exclusion f, asked e"},
    ),
}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("nodes", [None, frozenset(["n1"]), MANY_NODES], ids=["any", "one", "many"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_labels_bind_under_every_policy(
    name: str,
    nodes: frozenset[str] | None,
    case: tuple[list[Device], dict[str, Any], str | None, dict[str, str]],
) -> None:
    devices, labels, expected, reasons = case
    ledger = Ledger([a_node()], devices)
    decision = policy(name)(ledger, a_demand("p", "0.2", nodes=nodes, **labels))
    assert decision.devices == ((expected,) if expected else ())
    assert {place: decision.reasons[place] for place in reasons} == reasons
    assert decision.outcome == ("bound" if expected else "pending")


@pytest.mark.parametrize("name", POLICIES)
def test_labels_bind_a_demand_for_several_gpus(name: str) -> None:
    devices = [a_device("A"), held("B", affinity="red"), a_device("C")]
    ledger = Ledger([a_node()], devices)

    def decided(**labels: Any) -> Decision:
        demand = a_demand("p", "1", share_of_memory="1", count=2, **labels)
        return policy(name)(ledger, demand)

    assert decided(exclusion="e").devices == ("A", "C")
    assert decided(affinity="blue").devices == ("A", "C")
    assert decided(affinity="red").outcome == "pending"


@pytest.mark.parametrize("name", POLICIES)
def test_the_holder_whose_label_is_in_the_way_is_the_one_to_leave(name: str) -> None:
    guarded = a_device("A", a_holder("guard", "0.1", anti_affinity="g"), a_holder("large", "0.7"))
    ledger = Ledger([a_node()], [guarded])
    demand = a_demand("p", "0.2", anti_affinity="g")
    change = shortest_change(policy(name), ledger, demand)
    assert change is not None
    assert change.leave == ("guard",)
    preempted = cheapest_preemption(
        policy(name), ledger, demand, priority=1, preemptible={"guard": 0, "large": 0}
    )
    assert preempted is not None
    assert preempted.leave == ("guard",)


def in_namespace(namespace: str, **fields: Any) -> Demand:
    return a_demand(f"{namespace}-p", "0.1", namespace=namespace, **fields)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize(
    ("scope", "labels", "joins"),
    [
        ("cluster", {"affinity": "red"}, True),
        ("namespace", {"affinity": "red"}, False),
        ("cluster", {"exclusion": "e"}, True),
        ("namespace", {"exclusion": "e"}, False),
        ("cluster", {"anti_affinity": "g"}, False),
        ("namespace", {"anti_affinity": "g"}, True),
        ("namespace", {}, True),
    ],
)
def test_labels_of_two_namespaces_are_compared_as_configured(
    name: str, scope: LabelScope, labels: dict[str, Any], joins: bool
) -> None:
    holder = a_holder("q", "0.1", namespace="a", **labels)
    ledger = Ledger([a_node()], [a_device("A", holder), a_device("B")], label_scope=scope)
    decide = policy(name)
    assert decide(ledger, in_namespace("b", **labels)).devices == (("A",) if joins else ("B",))
    own = decide(ledger, in_namespace("a", **labels)).devices
    assert own == (("B",) if "anti_affinity" in labels else ("A",))


def test_a_placed_demand_has_the_labels_of_its_namespace() -> None:
    ledger = Ledger([a_node()], [a_device("A")], label_scope="namespace")
    ledger.place(in_namespace("a", affinity="red"), "A")
    assert ledger.devices["A"].affinities == {"a/red"}
    ledger.set_device(ledger.devices["A"])
    assert ledger.devices["A"].affinities == {"a/red"}
    reason = Filter(ledger, ledger.comparable(in_namespace("b", affinity="red"))).why_not(
        ledger.devices["A"]
    )
    assert reason == "occupied, and affinity b/red asks for an idle or a new vGPU"
    assert ledger != Ledger(ledger.nodes.values(), ledger.devices.values())


def test_the_change_that_would_help_compares_labels_of_the_namespace() -> None:
    holders = [
        a_holder("mine", "0.1", namespace="a", exclusion="e"),
        a_holder("other", "0.1", namespace="b", exclusion="e"),
    ]
    ledger = Ledger([a_node()], [a_device("A", *holders)], label_scope="namespace")
    change = shortest_change(policy("locality"), ledger, in_namespace("a", exclusion="e"))
    assert change is not None
    assert change.leave == ("other",)
