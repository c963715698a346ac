"""Room that preemption has nominated for a requester."""

import pytest

from core.builders import a_demand, a_device, a_holder, a_node
from kubeshare.core.gang_preemption import finish, preempt_in_steps
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy
from kubeshare.scheduler.preemption.nominations import MAX_NOMINATIONS, Nomination, Nominations

LOCALITY = policy("locality")


def a_place(owner: str = "high", *, priority: int = 5, until: float = 10.0) -> Nomination:
    return Nomination(
        owner=owner,
        uids=frozenset([owner]),
        priority=priority,
        devices={"A": "n1"},
        victims=frozenset(["q"]),
        until=until,
    )


def keeping(place: Nomination) -> Nominations:
    kept = Nominations()
    kept.add(place)
    return kept


@pytest.mark.parametrize(
    ("name", "priority", "now", "bound"),
    [
        ("low", 0, 0.0, False),
        ("low", 5, 0.0, False),
        ("higher", 6, 0.0, True),
        ("high", 5, 0.0, True),
        ("low", 0, 10.0, True),
    ],
    ids=["lower", "of the same priority", "higher", "its owner", "when its time is over"],
)
def test_a_place_is_given(name: str, priority: int, now: float, *, bound: bool) -> None:
    ledger = Ledger([a_node()], [a_device("A", a_holder("q", "0.4"))])
    kept = keeping(a_place())
    decision = kept.policy(LOCALITY, [name], priority, now)(ledger, a_demand(name))
    assert (decision.outcome == "bound") is bound
    assert bound or decision.reasons["n1/A"] == "kept for high of priority 5"
    assert (kept.seconds_left([name], priority, now) is None) is bound


@pytest.mark.parametrize("there", [False, True], ids=["gone", "being given back"])
def test_a_vgpu_that_goes_leaves_the_place_to_a_free_gpu_of_its_node(*, there: bool) -> None:
    devices = [a_device("A", fenced=True)] if there else []
    ledger = Ledger([a_node(free=1)], devices)
    keeps = keeping(a_place()).policy(LOCALITY, ["low"], 0, 0.0)
    decision = keeps(ledger, a_demand("low"))
    assert decision.outcome == "pending"
    assert decision.reasons["n1"] == "kept for high of priority 5"
    assert ledger == Ledger([a_node(free=1)], devices)
    two = Ledger([a_node(free=2)], devices)
    assert keeps(two, a_demand("low")).outcome == "bound"


def test_a_place_is_hidden_once_for_many_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a step of a search for whom to evict, which asks the policy for each member."""
    marked: list[str] = []
    mark = Ledger.mark

    def counting(ledger: Ledger, device_id: str, *, fenced: bool) -> None:
        marked.append(device_id)
        mark(ledger, device_id, fenced=fenced)

    monkeypatch.setattr(Ledger, "mark", counting)
    devices = [a_device("A"), *[a_device(name, a_holder(f"q{name}", "1")) for name in "BC"]]
    ledger = Ledger([a_node()], devices)
    members = [a_demand(f"low-{number}", "1") for number in range(2)]
    search = preempt_in_steps(
        LOCALITY,
        ledger,
        members,
        needed=2,
        priority=1,
        preemptible={"qB": 0, "qC": 0},
        prepare=keeping(a_place()).hiding(["low-0", "low-1"], 1, 0.0),
    )
    next(search)
    assert marked == ["A"]
    assert not ledger.devices["A"].fenced
    found = finish(search)
    assert found is not None
    assert found.leave == ("qB", "qC")


def test_a_place_that_is_dropped_is_anybodys() -> None:
    kept = keeping(a_place())
    assert kept.of("high", 0.0) is not None
    kept.remove("high")
    assert kept.of("high", 0.0) is None
    assert kept.policy(LOCALITY, ["low"], 0, 0.0) is LOCALITY


def test_no_more_than_so_many_places_are_kept() -> None:
    kept = Nominations()
    for number in range(MAX_NOMINATIONS):
        assert not kept.full(0.0)
        kept.add(a_place(f"high-{number}", until=10.0 + number))
    assert kept.full(0.0)
    assert not kept.full(10.0)


def test_the_room_that_is_free_first_is_waited_for() -> None:
    kept = Nominations()
    for owner, until in (("late", 300.0), ("early", 250.0)):
        kept.add(a_place(owner, until=until))
    assert kept.seconds_left(["low"], 0, 100.0) == 150.0
    assert kept.seconds_left(["early"], 0, 100.0) == 200.0
    assert kept.seconds_left(["low"], 0, 270.0) == 30.0
    assert kept.seconds_left(["low"], 0, 300.0) is None


def test_whoever_waits_is_tried_again_once_room_is_freed_before_its_time() -> None:
    freed: list[str] = []
    kept = Nominations(on_freed=lambda: freed.append("again"))
    kept.add(a_place())
    kept.remove("nobody")
    assert freed == []
    kept.remove("high")
    kept.remove("high")
    assert freed == ["again"]
