"""What waits is asked again after a release, oldest first, and once bound never again."""

import random

from core.builders import a_demand, a_device, a_node
from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand
from kubeshare.core.ledger import Ledger
from kubeshare.core.policies import policy
from kubeshare.core.queue import Queue


def a_queue() -> tuple[Queue, Ledger]:
    ledger = Ledger([a_node()], [a_device("A"), a_device("B")])
    return Queue(ledger, policy("locality")), ledger


def names_bound_by_releasing(queue: Queue, uid: str) -> list[str]:
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
                found = [(demand.name, told.devices) for demand, told in queue.release(uid)]
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

    queue = Queue(ledger, counting)
    for number in range(1000):
        queue.submit(a_demand(f"p{number}", "1"))
    asked = 0
    for number in range(900):
        assert names_bound_by_releasing(queue, f"p{number}") == [f"p{number + 1}"]
    assert asked == 1800
