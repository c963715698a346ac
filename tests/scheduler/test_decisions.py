"""A decision about eligible nodes only, and its reasons in a sentence."""

from core.builders import a_demand, a_device, a_holder, a_node
from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.core.decision import Decision
from kubeshare.core.diagnosis.messages import MESSAGE_LENGTH, explain
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy
from kubeshare.scheduler.scheduling import decide, helpful_change

LOCALITY = policy("locality")
ANY = Eligible(frozenset({"n1", "n2"}), {})


def pending(reasons: dict[str, str], field: str = "") -> Decision:
    return Decision(outcome="pending", reasons=reasons, field=field)


def sentence(decision: Decision, places: int = 0) -> str:
    return explain(Ledger([], []), a_demand("a"), decision, places)


def test_nodes_that_are_not_eligible_have_their_reasons() -> None:
    ledger = Ledger([a_node("n1", free=1), a_node("n2", free=1)], [])
    eligible = Eligible(frozenset(), {"n1": "cordoned", "n2": "tainted"})
    decision = decide(LOCALITY, ledger, a_demand("a"), eligible)
    assert decision.outcome == "pending"
    assert dict(decision.reasons) == {"n1": "cordoned", "n2": "tainted"}


def test_of_nodes_that_the_demand_names_only_they_are_explained() -> None:
    ledger = Ledger([a_node("n1", free=1), a_node("n2", free=1)], [])
    eligible = Eligible(frozenset({"n2"}), {"n1": "cordoned", "n3": "tainted"})
    demand = a_demand("a", nodes=frozenset({"n1", "n9", "n8"}))
    decision = decide(LOCALITY, ledger, demand, eligible)
    assert decision.outcome == "pending"
    found = {place: why for place, why in decision.reasons.items() if place != "n2"}
    assert list(found.items()) == [
        ("n1", "cordoned"),
        ("n8", "there is no such node"),
        ("n9", "there is no such node"),
    ]


def test_an_excluded_vgpu_is_not_used_and_says_why() -> None:
    devices = [a_device("A", a_holder("q", "0.4")), a_device("B", fenced=True)]
    ledger = Ledger([a_node("n1")], devices)
    gpus = {("n1", "A"): "set aside", ("n1", "B"): "set aside", ("n1", "C"): "set aside"}
    eligible = Eligible(frozenset({"n1"}), {}, gpus)
    decision = decide(LOCALITY, ledger, a_demand("a"), eligible)
    assert decision.outcome == "pending"
    assert decision.reasons["n1/A"] == "set aside"
    assert decision.reasons["n1/B"] != "set aside"
    assert not ledger.devices["A"].fenced
    assert decide(LOCALITY, ledger, a_demand("a"), ANY).devices == ("A",)


def test_what_would_help_names_who_has_to_leave() -> None:
    ledger = Ledger([a_node("n1")], [a_device("A", a_holder("q", "0.9"))])
    change = helpful_change(LOCALITY, ledger, a_demand("a"), ANY)
    assert change is not None
    assert change.leave == ("q",)
    assert "q" in str(change)
    small = Ledger([a_node("n1")], [a_device("A", a_holder("q", "0.9"), model="T4")])
    assert helpful_change(LOCALITY, small, a_demand("a", model="A100"), ANY) is None


def test_reasons_are_one_sentence_each_and_the_field_comes_first() -> None:
    assert sentence(pending({"n1": "full", "n2": "cordoned"})) == "n1: full; n2: cordoned"
    reasons = {"n1": "full", "memory": "too large"}
    assert sentence(pending(reasons, "memory")) == "memory: too large; n1: full"
    assert sentence(pending(reasons, "quota")) == "n1: full; memory: too large"
    assert sentence(pending({"n1": "full"}), places=3) == "n1: full; and 2 more"
    words = "no node has reported a GPU yet: is the node agent running?"
    assert sentence(pending({})) == words


def test_many_reasons_are_counted_where_they_would_be_too_long() -> None:
    reason = "x" * (MESSAGE_LENGTH // 2 - 6)  # two of them, with names and separators
    two = {"n1": reason, "n2": reason}
    assert len(sentence(pending(two))) == MESSAGE_LENGTH - 2
    assert sentence(pending(two | {"n3": "full"})).endswith("; and 1 more")
    long = sentence(pending({"n1": "y" * 2 * MESSAGE_LENGTH, "n2": "full"}))
    assert long == f"n1: {'y' * (MESSAGE_LENGTH - 4)}; and 1 more"
