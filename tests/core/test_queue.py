"""What waits is asked again after a release, oldest first, and once bound never again."""

from core.builders import a_demand, a_device, a_node
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
