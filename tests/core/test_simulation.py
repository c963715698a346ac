"""What waits is asked again after a release, oldest first, and once bound never again."""

import random

import pytest

from core.builders import a_demand, a_device, a_node
from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.gang import Gang
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy
from kubeshare.core.simulation import PlacementQueue


def a_queue() -> tuple[PlacementQueue, Ledger]:
    ledger = Ledger([a_node()], [a_device("A"), a_device("B")])
    return PlacementQueue(ledger, policy("locality")), ledger


def names_bound_by_releasing(queue: PlacementQueue, uid: str) -> list[str]:
    return [demand.name for demand, _ in queue.release(uid)]


def test_releases_let_in_the_oldest_that_fit_and_each_only_once() -> None:
    queue, ledger = a_queue()
    outcomes = [
        queue.submit(a_demand(name, request)).outcome
        for name, request in [("p", "1"), ("q", "1"), ("large", "1"), ("small", "0.5")]
    ]
    assert outcomes == ["bound", "bound", "pending", "pending"]
    assert names_bound_by_releasing(queue, "p") == ["large"]
    assert names_bound_by_releasing(queue, "q") == ["small"]
    assert names_bound_by_releasing(queue, "small") == []
    assert ledger.held_by("large") == {"A"}


def test_what_is_rejected_does_not_wait() -> None:
    queue, _ = a_queue()
    assert queue.submit(a_demand("p", memory=2000)).outcome == "rejected"
    assert names_bound_by_releasing(queue, "p") == []


def test_what_is_withdrawn_does_not_come_back() -> None:
    queue, ledger = a_queue()
    for name in ("p", "q", "r"):
        queue.submit(a_demand(name, "1"))
    assert names_bound_by_releasing(queue, "r") == []
    assert names_bound_by_releasing(queue, "p") == []
    assert ledger.held_by("r") == frozenset()


def test_it_answers_as_one_that_asks_everybody_each_time() -> None:
    source = random.Random(9)
    decide = policy("locality")
    bound_by_release = 0
    for _ in range(60):
        queue, ledger = a_queue()
        plain = Ledger(ledger.nodes.values(), ledger.devices.values())
        waiting: list[Demand] = []
        known: list[str] = []
        for number in range(60):
            if known and source.random() < 0.45:
                uid = known.pop(source.randrange(len(known)))
                waiting = [demand for demand in waiting if demand.uid != uid]
                if plain.held_by(uid):
                    plain.release(uid)
                expected = []
                for demand in list(waiting):
                    answer = decide(plain, demand)
                    if answer.outcome == "bound":
                        commit(plain, demand, answer)
                        waiting.remove(demand)
                        expected.append((demand.name, answer.devices))
                found = [(demand.name, decision.devices) for demand, decision in queue.release(uid)]
                assert found == expected
                bound_by_release += len(found)
                continue
            demand = a_demand(
                f"p{number}",
                source.choice(["0.3", "0.5", "1"]),
                affinity=source.choice(["", "", "red", "blue"]),
                anti_affinity=source.choice(["", "g"]),
            )
            known.append(demand.uid)
            answer = queue.submit(demand)
            expected_answer = decide(plain, demand)
            assert (answer.outcome, answer.devices) == (
                expected_answer.outcome,
                expected_answer.devices,
            )
            if answer.outcome == "bound":
                commit(plain, demand, expected_answer)
            else:
                waiting.append(demand)
    assert bound_by_release > 200


def test_a_thousand_that_ask_the_same_are_asked_once() -> None:
    ledger = Ledger([a_node()], [a_device("A")])
    asked = 0

    def counting(ledger: Ledger, demand: Demand) -> Decision:
        nonlocal asked
        asked += 1
        return policy("locality")(ledger, demand)

    queue = PlacementQueue(ledger, counting)
    for number in range(1000):
        queue.submit(a_demand(f"p{number}", "1"))
    asked = 0
    for number in range(900):
        assert names_bound_by_releasing(queue, f"p{number}") == [f"p{number + 1}"]
    assert asked == 1800


GANG = Gang(name="g", min_available=2)


def test_of_those_that_wait_the_highest_priority_is_asked_first() -> None:
    queue, _ = a_queue()
    for name in ("p", "q"):
        queue.submit(a_demand(name, "1"))
    for name, priority in (("low", -1), ("older", 0), ("younger", 0), ("high", 7)):
        queue.submit(a_demand(name, "1"), priority)
    bound = [names_bound_by_releasing(queue, uid) for uid in ("p", "q", "high", "older", "younger")]
    assert bound == [["high"], ["older"], ["younger"], ["low"], []]


def test_what_is_of_a_higher_priority_and_does_not_fit_keeps_nobody_out() -> None:
    queue, _ = a_queue()
    for name in ("p", "q"):
        queue.submit(a_demand(name, "1"))
    queue.submit(a_demand("pair", "1", count=2), 9)
    queue.submit(a_demand("small", "0.5"))
    assert names_bound_by_releasing(queue, "p") == ["small"]


def test_a_gang_waits_for_its_members_and_is_placed_with_the_last_of_them() -> None:
    queue, ledger = a_queue()
    first, bound = queue.join(a_demand("a", "1"), GANG)
    assert (first.outcome, bound) == ("pending", [])
    assert dict(first.reasons) == {"gang g": "1 of the 2 members that it needs are there"}
    second, bound = queue.join(a_demand("b", "1"), GANG)
    assert second.devices == ("B",)
    assert [(demand.name, decision.devices) for demand, decision in bound] == [("a", ("A",))]
    assert ledger.held_by("a") == {"A"}


def test_a_gang_without_room_for_all_takes_nothing_until_there_is() -> None:
    queue, ledger = a_queue()
    queue.submit(a_demand("p", "0.5"))
    queue.join(a_demand("a", "1"), GANG)
    second, bound = queue.join(a_demand("b", "1"), GANG)
    assert (second.outcome, bound) == ("pending", [])
    assert second.reasons["gang g"] == "room for 1 of the 2 members that it needs"
    assert "compute 0.5 left, 1 asked" in second.reasons.values()
    assert not ledger.held_by("a")
    assert queue.submit(a_demand("x", "0.5")).outcome == "bound"
    assert names_bound_by_releasing(queue, "x") == []
    assert names_bound_by_releasing(queue, "p") == ["a", "b"]


def test_who_comes_after_enough_are_placed_is_asked_alone() -> None:
    queue, _ = a_queue()
    for name in ("a", "b"):
        queue.join(a_demand(name, "0.5"), GANG)
    assert queue.join(a_demand("c", "0.5"), GANG)[0].outcome == "bound"
    assert queue.join(a_demand("d", "1"), GANG)[0].outcome == "pending"
    assert queue.join(a_demand("e", memory=2000), GANG)[0].outcome == "rejected"
    waiting = queue.waiting(a_demand("d"), GANG)
    assert ([each.name for each in waiting.members], waiting.placed) == (["d"], frozenset("abc"))
    assert names_bound_by_releasing(queue, "a") == []
    assert names_bound_by_releasing(queue, "b") == ["d"]


def test_gangs_of_one_name_in_two_namespaces_are_two() -> None:
    queue, _ = a_queue()
    for namespace in ("one", "other"):
        decision, _ = queue.join(a_demand(namespace, "0.1", namespace=namespace), GANG)
        assert decision.outcome == "pending"


def test_a_gang_that_has_gone_is_forgotten() -> None:
    queue, _ = a_queue()
    queue.join(a_demand("a", "0.1"), GANG)
    assert names_bound_by_releasing(queue, "a") == []
    larger = Gang(name="g", min_available=1)
    assert queue.join(a_demand("b", "0.1"), larger)[0].outcome == "bound"
    assert names_bound_by_releasing(queue, "b") == []
    assert queue.join(a_demand("c", "0.1"), GANG, 5)[0].outcome == "pending"


@pytest.mark.parametrize(
    ("gang", "priority", "refusal"),
    [
        (Gang(name="g", min_available=3), 0, "min_available: 3 differs from 2 of"),
        (GANG, 1, "priority: 1 differs from 0 of"),
        (Gang(name="g", min_available=2, near="node"), 0, "near: node differs from none of"),
    ],
)
def test_members_have_to_say_the_same_of_their_gang(
    gang: Gang, priority: int, refusal: str
) -> None:
    queue, _ = a_queue()
    queue.join(a_demand("a", "0.1"), GANG)
    with pytest.raises(InvalidValueError, match=f"^{refusal} the other members of gang g$"):
        queue.join(a_demand("b", "0.1"), gang, priority)


def test_the_members_of_a_near_gang_are_placed_on_one_node_also_later_ones() -> None:
    ledger = Ledger([a_node("n1", 1), a_node("n2", 3)])
    queue, near = (
        PlacementQueue(ledger, policy("locality")),
        Gang(name="g", min_available=2, near="node"),
    )
    first, _ = queue.join(a_demand("a", "1"), near)
    second, bound = queue.join(a_demand("b", "1"), near)
    assert (first.outcome, second.node, bound[0][1].node) == ("pending", "n2", "n2")
    assert queue.join(a_demand("c", "1"), near)[0].node == "n2"
    waits, _ = queue.join(a_demand("d", "1"), near)
    assert (waits.outcome, waits.reasons["n2"]) == ("pending", "no free GPU")
    assert queue.waiting(a_demand("d"), near).near == near.nearness("abc")
    assert names_bound_by_releasing(queue, "a") == ["d"]


def test_a_gang_is_asked_in_the_order_of_its_priority() -> None:
    queue, _ = a_queue()
    for name in ("p", "q"):
        queue.submit(a_demand(name, "1"))
    queue.submit(a_demand("old", "1"))
    for name in ("a", "b"):
        queue.join(a_demand(name, "0.5"), GANG, 3)
    queue.submit(a_demand("late", "1"))
    assert names_bound_by_releasing(queue, "p") == ["a", "b"]
    assert names_bound_by_releasing(queue, "q") == ["old"]
