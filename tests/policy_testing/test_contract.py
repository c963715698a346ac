"""The conformance test accepts the built-in policies, and names each breach of the contract."""

import random
from collections.abc import Callable

import msgspec
import pytest

from kubeshare.core import policies
from kubeshare.core.constraints.filter import Filter
from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy
from kubeshare.policy_testing import PolicyContractError, check_policy

LOCALITY = policies.policy("locality")
Key = Callable[[Device], object]


@pytest.mark.parametrize("name", policies.BUILT_IN)
def test_the_built_in_policies_keep_the_contract(name: str) -> None:
    check_policy(policies.policy(name), seed=3, cases=60)


def by(key: Key) -> Policy:
    """A policy that places demands for one GPU on the first one that fits by a key."""

    def decide(ledger: Ledger, demand: Demand) -> Decision:
        allowed = Filter(ledger, ledger.comparable(demand))
        fitting = [each for each in ledger.devices.values() if not refusal(allowed, each)]
        if demand.count > 1 or demand.shares or not fitting:
            reasons = {each.path: "does not fit" for each in ledger.devices.values()}
            return Decision(outcome="pending", reasons=reasons)
        best = min(fitting, key=key)  # type: ignore[arg-type]  # any key will do
        reasons = {each.path: "no" for each in ledger.devices.values() if each != best}
        return Decision(outcome="bound", node=best.node, devices=(best.id,), reasons=reasons)

    return decide


def refusal(allowed: Filter, device: Device) -> object:
    return not allowed.admits(device.node) or allowed.why_not(device)


FIRST = by(lambda device: device.id)


def changed(change: Callable[[Ledger, Decision], Decision]) -> Policy:
    return lambda ledger, demand: change(ledger, FIRST(ledger, demand))


def raising(ledger: Ledger, demand: Demand) -> Decision:
    if len(ledger.devices) > 2:
        raise TypeError("too many")
    return FIRST(ledger, demand)


def unfiltered(ledger: Ledger, demand: Demand) -> Decision:
    roomy = [
        each
        for each in ledger.devices.values()
        if each.compute_left >= demand.request_micros
        and each.memory_left >= demand.memory.on(each.memory_bytes)
    ]
    if demand.count > 1 or demand.shares or not roomy:
        return FIRST(ledger, demand)
    best = min(roomy, key=lambda device: device.id)
    reasons = {each.path: "no" for each in ledger.devices.values() if each != best}
    return Decision(outcome="bound", node=best.node, devices=(best.id,), reasons=reasons)


def greedy(ledger: Ledger, demand: Demand) -> Decision:
    decision = FIRST(ledger, demand)
    if decision.node:
        ledger.place(demand, *decision.devices)
    return decision


def late(ledger: Ledger, decision: Decision) -> Decision:
    def reasons() -> dict[str, str]:
        return {
            each.path: f"healthy: {each.healthy}"
            for each in ledger.devices.values()
            if each.id not in decision.devices
        }

    return msgspec.structs.replace(decision, reasons=LazyReasons(reasons))


def broken_reasons() -> dict[str, str]:
    raise KeyError("gpu")


def rejecting(ledger: Ledger, decision: Decision) -> Decision:
    reasons = dict(decision.reasons)
    return decision if decision.node else Decision(outcome="rejected", reasons=reasons)


def of_all(ledger: Ledger, decision: Decision) -> Decision:
    reasons = {each.path: "no" for each in ledger.devices.values()}
    return msgspec.structs.replace(decision, reasons=reasons)


COIN = random.Random(1)

BREACHES: dict[str, tuple[Policy, str]] = {
    "an error": (raising, r"^it raised TypeError: too many \(line \d+ of "),
    "no decision": (lambda ledger, demand: None, "^it answered with NoneType"),  # type: ignore[dict-item,return-value]
    "a choice that breaks a constraint": (unfiltered, r"^it chose .*, which does not fit: "),
    "a random choice": (by(lambda device: COIN.random()), "decides differently when it is asked"),
    "the order of the ledger": (by(lambda device: 0), "depends on the order .*: bound n.*, then b"),
    "a changed ledger": (greedy, "changes the ledger, which only its caller may"),
    "a GPU without a reason": (
        changed(lambda ledger, decision: msgspec.structs.replace(decision, reasons={})),
        "does not say why it passed over n",
    ),
    "a reason for the chosen GPU": (changed(of_all), "and says why it passed it over"),
    "an empty reason": (
        changed(lambda ledger, d: msgspec.structs.replace(d, reasons={**d.reasons, "n1": ""})),
        "has no text as the reason of 'n1': ''",
    ),
    "reasons that raise": (
        changed(lambda ledger, d: msgspec.structs.replace(d, reasons=LazyReasons(broken_reasons))),
        "raised KeyError: 'gpu'",
    ),
    "reasons of a later state": (changed(late), r"use ledger.snapshot\(\)"),
    "a rejection without a field": (changed(rejecting), "rejects the field None"),
    "no placement at all": (
        lambda ledger, demand: of_all(ledger, Decision(outcome="pending", reasons={})),
        "places none of the demands of 30 clusters",
    ),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_each_breach_is_named(breach: str) -> None:
    policy, words = BREACHES[breach]
    with pytest.raises(PolicyContractError, match=words):
        check_policy(policy, cases=30)


def test_the_simple_policy_of_these_tests_keeps_the_contract() -> None:
    check_policy(FIRST, cases=30)


def test_the_message_has_the_case_and_is_the_same_each_time() -> None:
    messages = set()
    for _ in range(2):
        with pytest.raises(PolicyContractError) as found:
            check_policy(unfiltered, seed=5, cases=30)
        messages.add(str(found.value))
    [message] = messages
    first, second, *cluster = message.splitlines()
    assert first.startswith("it chose ")
    assert second.startswith("seed 5, case ")
    assert ": Demand(uid='demand-" in second
    assert any(line.startswith("  node n") for line in cluster)
    assert any(line.startswith("  GPU n") for line in cluster)
    assert "=''" not in second
