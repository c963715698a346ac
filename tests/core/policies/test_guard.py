"""Whatever a policy of another package does, it is named, and nothing else decides."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from core.builders import a_demand, a_device, a_holder, a_node
from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy
from kubeshare.core.policies.guard import MAX_WORDS, GuardedPolicy, failure, misfit

WHO = "policy house (house:decide) "
LOCALITY = policy("locality")


def cluster() -> Ledger:
    devices = [
        a_device("A", a_holder("q", "0.7")),
        a_device("B", model="T4"),
        a_device("C", a_holder("r", "0.1", exclusion="mine")),
        a_device("D", node="n2"),
        a_device("E", fenced=True),
    ]
    return Ledger([a_node("n1"), a_node("n2", free=1)], devices)


def answering(answer: Any) -> GuardedPolicy:
    return GuardedPolicy("house", "house:decide", lambda ledger, demand: answer)


def bound(*devices: str, node: Any = "n1", **more: Any) -> Decision:
    return Decision(outcome="bound", node=node, devices=devices, reasons={}, **more)


def fail(answer: Any, demand: Demand) -> str:
    ledger, before = cluster(), cluster()
    decision = answering(answer)(ledger, demand)
    assert ledger == before
    assert (decision.outcome, decision.node, decision.field) == ("pending", None, "policy")
    assert decision.reasons == {"policy": failure(decision)}
    return failure(decision).removeprefix(WHO)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "answered with NoneType, which is no Decision"),
        (Decision(outcome="maybe", reasons={}), "answered with the outcome 'maybe'"),  # type: ignore[arg-type]
        (
            Decision(outcome="pending", node="n1", reasons={}),
            "answered pending, and named a GPU",
        ),
        (bound("A"), "chose n1/A, which does not fit: compute 0.3 left, 0.5 asked"),
        (bound("B", "B"), "chose what does not fit: a asks for 1 different vGPUs"),
        (bound("C"), "chose n1/C, which does not fit: "),
        (bound("D"), "chose n2/D, which does not fit: it is not on node n1"),
        (bound("E"), "chose n1/E, which does not fit: "),
        (bound("Z"), "chose GPU Z, which is not there"),
        (bound("B", node="n9"), "chose node n9, which is not there"),
        (bound("B", node=None), "chose node None, which is not there"),
        (bound("D", node="n2"), "chose node n2, which the demand may not use"),
        (bound("B", shares=("x",)), "named the shares ('x',), and they are ()"),
        (bound("B", new=(a_device("N"),)), "opened N, which it did not choose"),
        (bound("N", new=(a_device("N"),)), "chose n1/N, which does not fit: no free GPU"),
        (bound(), "chose what does not fit: a asks for 1 different vGPUs"),
        (
            Decision(outcome="bound", node="n1", devices=7, reasons={}),  # type: ignore[arg-type]
            "answered with a Decision that cannot be read: it raised TypeError",
        ),
    ],
)
def test_an_answer_that_does_not_fit_is_named(answer: Any, words: str) -> None:
    assert fail(answer, a_demand("a", "0.5", nodes=frozenset(["n1"]))).startswith(words)


def test_gpus_of_different_models_are_no_answer() -> None:
    demand = a_demand("a", "0.1", count=2, exclusion="mine")
    devices = [a_device("A"), a_device("B", model="T4")]
    ledger = Ledger([a_node("n1")], devices)
    wrong = misfit(ledger, demand, bound("A", "B"))
    assert wrong == f"chose GPUs of different models: {', '.join(sorted(['T4', devices[0].model]))}"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "T4"}, "model T4 is asked for"),
        ({"device_id": "mine"}, "vGPU mine is asked for"),
    ],
)
def test_a_new_vgpu_is_of_what_was_asked(change: dict[str, str], words: str) -> None:
    demand = a_demand("a", "0.1")
    decision = LOCALITY(Ledger([a_node("n2", free=1)], []), demand)
    assert misfit(cluster(), demand, decision) == ""
    other = msgspec.structs.replace(demand, **change)
    path = decision.new[0].path
    assert misfit(cluster(), other, decision) == f"chose {path}, which does not fit: {words}"


def deep(ledger: Ledger, demand: Demand) -> Decision:
    raise ValueError("two\nlines " + "x" * 2 * MAX_WORDS)


def wordless(ledger: Ledger, demand: Demand) -> Decision:
    raise RecursionError


def in_the_core(ledger: Ledger, demand: Demand) -> Decision:
    ledger.release("nobody")
    raise AssertionError


@pytest.mark.parametrize(
    ("decide", "words"),
    [
        (deep, "raised ValueError: two lines xxx"),
        (wordless, "raised RecursionError (line "),
        (in_the_core, "raised LedgerError: demand nobody holds nothing (line "),
    ],
)
def test_what_is_raised_is_named_in_a_line_with_its_place(
    decide: Callable[[Ledger, Demand], Decision], words: str
) -> None:
    failures: list[int] = []
    guarded = GuardedPolicy("house", "house:decide", decide, lambda: failures.append(1))
    words_of = failure(guarded(cluster(), a_demand("a")))
    assert words_of.startswith(f"{WHO}{words}")
    assert words_of.endswith(f"of {__name__})")
    assert "\n" not in words_of
    assert len(words_of) < MAX_WORDS + 150
    assert len(failures) == 1


def test_what_it_changed_in_the_ledger_is_undone() -> None:
    def greedy(ledger: Ledger, demand: Demand) -> Decision:
        decision = LOCALITY(ledger, demand)
        ledger.place(demand, *decision.devices)
        return decision

    ledger, demand = cluster(), a_demand("a", "0.1")
    decision = GuardedPolicy("house", "house:decide", greedy)(ledger, demand)
    assert (decision.outcome, ledger) == ("bound", cluster())
    assert decision.devices == LOCALITY(ledger, demand).devices


def broken() -> dict[str, str]:
    raise KeyError("gpu")


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        (LazyReasons(broken), "it raised KeyError: 'gpu'"),
        ({"n1/A": None}, "a reason is not text"),
        (None, "it raised TypeError"),
    ],
)
def test_a_decision_without_reasons_still_holds(reasons: Any, words: str) -> None:
    decision = answering(Decision(outcome="bound", node="n1", devices=("B",), reasons=reasons))(
        cluster(), a_demand("a", "0.1")
    )
    assert (decision.outcome, failure(decision)) == ("bound", "")
    assert decision.reasons["policy"].startswith(f"{WHO}does not explain its decision: {words}")


def test_a_policy_that_works_is_not_noticed() -> None:
    guarded = GuardedPolicy("house", "house:decide", LOCALITY)
    for demand in (a_demand("a", "0.1"), a_demand("b", "1", count=9), a_demand("c", count=2)):
        ledger = cluster()
        found, expected = guarded(ledger, demand), LOCALITY(cluster(), demand)
        assert dict(found.reasons) == dict(expected.reasons)
        assert msgspec.structs.replace(found, reasons={}) == msgspec.structs.replace(
            expected, reasons={}
        )
