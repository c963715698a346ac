"""Gangs: enough members fit together, or none is placed."""

import random
from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.builders import a_demand, a_device, a_holder, a_node
from core.clusters import POLICIES, Asker, Cluster
from kubeshare.core.decision import commit
from kubeshare.core.demand import Demand
from kubeshare.core.gang import GangPlacement, place_gang, placements
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy, policy
from kubeshare.core.units import MICROS

LOCALITY = policy("locality")


def four(request: str = "1") -> list[Demand]:
    return [a_demand(f"m{number}", request) for number in range(4)]


def binder(ledger: Ledger, answer: GangPlacement) -> None:
    for each in answer.placed:
        commit(ledger, each.demand, each.decision)


def fit_in_some_order(decide: Policy, ledger: Ledger, members: Sequence[Demand]) -> int:
    """How many fit together at most, found by trying every order."""
    most = 0
    for order in permutations(members):
        fit = 0
        with ledger.what_if():
            for demand in order:
                decision = decide(ledger, demand)
                if decision.outcome == "bound":
                    commit(ledger, demand, decision)
                    fit += 1
        most = max(most, fit)
    return most


def test_a_gang_of_four_with_room_for_four_is_placed_whole() -> None:
    ledger = Ledger([a_node("n1", 2), a_node("n2", 2)])
    answer = place_gang(LOCALITY, ledger, four(), 4)
    assert answer.whole
    binder(ledger, answer)
    assert all(ledger.held_by(f"m{number}") for number in range(4))


def test_case_61_a_gang_of_four_with_room_for_three_places_nobody() -> None:
    ledger = Ledger([a_node(free=3)])
    answer = place_gang(LOCALITY, ledger, four(), 4)
    assert (answer.whole, answer.placed, answer.room_for) == (False, (), 3)
    assert answer.unplaced is not None
    assert answer.unplaced.reasons["n1"] == "no free GPU"


def test_where_fewer_are_needed_than_there_are_as_many_as_fit_are_placed() -> None:
    answer = place_gang(LOCALITY, Ledger([a_node(free=3)]), four(), 2)
    assert len(answer.placed) == 3
    assert answer.unplaced is not None


def test_members_share_a_gpu_that_one_of_them_has_opened() -> None:
    ledger = Ledger([a_node(free=1)])
    answer = place_gang(LOCALITY, ledger, four("0.25"), 4)
    assert [each.decision.created for each in answer.placed] == [True, False, False, False]
    binder(ledger, answer)
    assert len(ledger.devices) == 1


def test_another_order_is_tried_where_the_first_one_leaves_somebody_out() -> None:
    devices = [a_device("A", a_holder("q", "0.5")), a_device("B", a_holder("r", "0.4"))]
    ledger = Ledger([a_node()], devices)
    small, large = a_demand("small", "0.5"), a_demand("large", "0.6")
    tight = [a_demand("s1", "0.3"), a_demand("s2", "0.3"), a_demand("s3", "0.5")]
    assert place_gang(LOCALITY, ledger, [small, large], 2).whole
    answer = place_gang(LOCALITY, ledger, tight, 3)
    assert [each.demand.name for each in answer.placed] == ["s3", "s1", "s2"]


@pytest.mark.parametrize(
    ("free", "members"),
    [
        (
            2,
            [
                a_demand(f"m{place}", request)
                for place, request in enumerate(
                    ("0.05", "0.1", "0.15", "0.15", "0.2", "0.3", "0.45", "0.6")
                )
            ],
        ),
        (
            2,
            [
                a_demand(f"m{place}", "0", memory=size)
                for place, size in enumerate((50, 50, 100, 100, 250, 350, 500, 600))
            ],
        ),
        (
            2,
            [
                a_demand(f"m{place}", "0", share_of_memory=share)
                for place, share in enumerate(
                    ("0.05", "0.1", "0.15", "0.2", "0.25", "0.3", "0.35", "0.6")
                )
            ],
        ),
        (
            3,
            [
                *(
                    a_demand(f"m{place}", request)
                    for place, request in enumerate(("0.6", "0.35", "0.3", "0.15", "0.12", "0.1"))
                ),
                a_demand("of three", "0.4", count=3),
            ],
        ),
    ],
    ids=["compute", "memory", "a share of memory", "how many GPUs"],
)
def test_of_many_orders_that_with_the_largest_first_is_tried_first(
    free: int, members: list[Demand]
) -> None:
    assert place_gang(LOCALITY, Ledger([a_node(free=free)]), members, len(members)).whole


def test_members_that_ask_the_same_do_not_change_places() -> None:
    """Else the one order in which all fit would be far beyond those that are tried."""
    alike = [a_demand(f"m{number}", "0.5", attempt=number) for number in range(5)]
    alone_at_first = a_demand("red", "0.3", affinity="red")
    answer = place_gang(LOCALITY, Ledger([a_node(free=3)]), [*alike, alone_at_first], 6)
    assert [each.demand.name for each in answer.placed] == ["red", "m0", "m1", "m2", "m3", "m4"]


def test_where_no_order_is_better_it_is_the_given_one_that_is_told_of() -> None:
    answer = place_gang(
        LOCALITY, Ledger([a_node(free=1)]), [a_demand("large", "0.7"), a_demand("small", "0.6")], 2
    )
    assert answer.room_for == 1
    assert answer.unplaced is not None
    assert "compute 0.3 left, 0.6 asked" in answer.unplaced.reasons.values()


def test_asking_changes_nothing() -> None:
    ledger = Ledger([a_node(free=3)], [a_device("A", a_holder("q", "0.5"))])
    before = Ledger(ledger.nodes.values(), ledger.devices.values())
    for needed in (2, 4):
        place_gang(LOCALITY, ledger, four(), needed)
    assert ledger == before


def test_nobody_is_no_gang() -> None:
    answer = place_gang(LOCALITY, Ledger([a_node(free=3)]), [], 1)
    assert (answer.whole, answer.room_for, answer.unplaced) == (False, 0, None)


@pytest.mark.parametrize(("name", "cluster", "demand"), POLICIES)
def test_a_gang_is_whole_when_any_order_gives_it_room(
    name: str, cluster: Cluster, demand: Asker
) -> None:
    decide = policy(name)
    source = random.Random(5)
    seen = {True: 0, False: 0}
    for _ in range(40):
        ledger = cluster(source)
        members = [demand(source, number) for number in range(source.randint(1, 4))]
        needed = source.randint(1, len(members))
        answer = place_gang(decide, ledger, members, needed)
        most = fit_in_some_order(decide, ledger, members)
        assert answer.whole == (most >= needed), (members, needed)
        seen[answer.whole] += 1
        assert ((answer.whole and len(answer.placed)) or answer.room_for) <= most
        assert place_gang(decide, ledger, members, needed).placed == answer.placed
        binder(ledger, answer)
    assert min(seen.values()) > 2


@settings(deadline=None)
@given(
    requests=st.lists(st.integers(1, MICROS), min_size=1, max_size=8),
    free=st.integers(0, 4),
    needed=st.integers(1, 8),
)
def test_what_is_placed_can_be_carried_out_and_is_enough(
    requests: list[int], free: int, needed: int
) -> None:
    ledger = Ledger([a_node(free=free)])
    members = [
        a_demand(f"m{number}", f"0.{request:06}" if request < MICROS else "1")
        for number, request in enumerate(requests)
    ]
    answer = place_gang(LOCALITY, ledger, members, needed)
    assert len(answer.placed) == (answer.room_for if answer.room_for >= needed else 0)
    assert (answer.unplaced is None) == (answer.room_for == len(members))
    binder(ledger, answer)  # raises where a GPU would be over-committed


def test_the_last_step_is_the_answer_and_no_step_leaves_a_trace() -> None:
    ledger = Ledger([a_node(free=3)])
    before = Ledger([a_node(free=3)])
    steps = []
    for step in placements(LOCALITY, ledger, four(), 4):
        assert ledger == before, "the members of an order that failed are still there"
        steps.append(step)
    assert steps[-1] == place_gang(LOCALITY, ledger, four(), 4)
    assert not any(step.whole for step in steps[:-1])
