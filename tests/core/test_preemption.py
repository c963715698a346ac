"""Who is preempted: the cheapest set, against trying out every set there is."""

import random
from collections.abc import Mapping
from itertools import combinations

import pytest

from core.builders import a_demand, a_device, a_holder, a_node
from core.clusters import POLICIES, Asker, Cluster
from core.gang.clusters import a_cluster, obeys, some_members
from kubeshare.core.decision import commit
from kubeshare.core.demand import Demand
from kubeshare.core.gang import Near, Nearness, place_gang
from kubeshare.core.gang_preemption import change_for_gang, cheapest_for_gang
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy, policy
from kubeshare.core.preemption import cheapest_preemption

LOCALITY = policy("locality")


def cheapest_by_trial(
    decide: Policy, ledger: Ledger, demand: Demand, priority: int, preemptible: Mapping[str, int]
) -> tuple[int, int] | None:
    """The highest priority and the number of those who leave, of every set the least."""
    holding = {each.demand for one in ledger.devices.values() for each in one.holders}
    may = sorted(uid for uid in holding if preemptible.get(uid, priority) < priority)
    costs = []
    for size in range(1, len(may) + 1):
        for leavers in combinations(may, size):
            with ledger.what_if():
                for uid in leavers:
                    ledger.release(uid)
                if decide(ledger, demand).outcome == "bound":
                    costs.append((max(preemptible[uid] for uid in leavers), size))
    return min(costs, default=None)


def preempt(decide: Policy, clusters: int, cluster: Cluster, requester: Asker) -> dict[bool, int]:
    source = random.Random(9)
    seen = {True: 0, False: 0}
    for _ in range(clusters):
        ledger = cluster(source)
        preemptible: dict[str, int] = {}
        for number in range(18):
            asked = requester(source, number)
            decision = decide(ledger, asked)
            priority = source.randint(0, 3)
            if decision.outcome == "bound" and len(preemptible) < 7:
                commit(ledger, asked, decision)
                preemptible[asked.uid] = source.choice([0, 0, 1, 2, 99])
            elif decision.outcome == "pending":
                found = cheapest_preemption(
                    decide, ledger, asked, priority=priority, preemptible=preemptible
                )
                cost = (found.priority, len(found.leave)) if found else None
                assert cost == cheapest_by_trial(decide, ledger, asked, priority, preemptible)
                seen[found is not None] += 1
    return seen


@pytest.mark.parametrize(("name", "cluster", "demand"), POLICIES)
def test_in_a_few_clusters_no_cheaper_set_is_overlooked(
    name: str, cluster: Cluster, demand: Asker
) -> None:
    assert min(preempt(policy(name), 8, cluster, demand).values()) > 3


@pytest.mark.slow
@pytest.mark.parametrize(("name", "cluster", "demand"), POLICIES)
def test_no_cheaper_set_is_overlooked(name: str, cluster: Cluster, demand: Asker) -> None:
    assert min(preempt(policy(name), 120, cluster, demand).values()) > 60


def three_holders() -> Ledger:
    """Two GPUs of one node: A with `low` and `mid`, B with `big`."""
    return Ledger(
        [a_node()],
        [
            a_device("A", a_holder("low", "0.5"), a_holder("mid", "0.5")),
            a_device("B", a_holder("big", "0.9")),
        ],
    )


@pytest.mark.parametrize(
    ("request_", "priority", "preemptible", "leave"),
    [
        ("0.5", 5, {"low": 0, "mid": 1, "big": 1}, ("low",)),
        ("0.5", 5, {"mid": 1, "big": 1}, ("mid",)),
        ("0.5", 5, {"mid": 2, "big": 1}, ("big",)),
        ("1", 5, {"low": 0, "mid": 1, "big": 2}, ("low", "mid")),
        ("1", 5, {"low": 0, "mid": 2, "big": 2}, ("big",)),
        ("1", 5, {"low": 0, "big": 2}, ("big",)),
    ],
    ids=[
        "the lowest priority",
        "of one priority the smaller part",
        "a lower priority comes before a smaller part",
        "a lower priority comes before fewer",
        "of one priority fewer",
        "one alone that may not leave keeps its GPU",
    ],
)
def test_the_cheapest_set_leaves(
    request_: str, priority: int, preemptible: dict[str, int], leave: tuple[str, ...]
) -> None:
    found = cheapest_preemption(
        LOCALITY,
        three_holders(),
        a_demand("p", request_),
        priority=priority,
        preemptible=preemptible,
    )
    assert found is not None
    assert found.leave == leave
    assert found.priority == max(preemptible[uid] for uid in leave)
    assert all(any(word.startswith(f"{uid} leaves n1/") for word in found.words) for uid in leave)


def test_nobody_of_the_same_or_a_higher_priority_leaves() -> None:
    found = cheapest_preemption(
        LOCALITY,
        three_holders(),
        a_demand("p"),
        priority=1,
        preemptible={"low": 1, "mid": 2, "big": 1},
    )
    assert found is None


def test_nobody_leaves_who_has_not_said_that_it_may_be_preempted() -> None:
    asked = a_demand("p")
    assert (
        cheapest_preemption(LOCALITY, three_holders(), asked, priority=100, preemptible={}) is None
    )


def test_who_may_not_leave_stays_where_its_leaving_alone_would_do() -> None:
    """`both` has parts of both GPUs, and is not preemptible."""
    devices = [a_device(gpu, a_holder("both"), a_holder(f"on {gpu}")) for gpu in "AB"]
    found = cheapest_preemption(
        LOCALITY,
        Ledger([a_node()], devices),
        a_demand("p", "0.5", count=2),
        priority=1,
        preemptible={"on A": 0, "on B": 0},
    )
    assert found is not None
    assert found.leave == ("on A", "on B")


def test_who_keeps_others_away_by_a_label_is_in_the_way_too() -> None:
    ledger = Ledger([a_node()], [a_device("A", a_holder("q", "0.1", exclusion="e"))])
    for preemptible, leave in (({"q": 0}, ("q",)), ({}, None)):
        found = cheapest_preemption(
            LOCALITY, ledger, a_demand("p"), priority=1, preemptible=preemptible
        )
        assert (found and found.leave) == leave


def a_full_gang_of_gpus() -> Ledger:
    devices = [a_device(name, a_holder(f"q{name}", "1")) for name in "ABCD"]
    return Ledger([a_node()], devices)


def test_a_gang_preempts_as_many_as_it_needs() -> None:
    members = [a_demand(f"m{number}", "1") for number in range(3)]
    found = cheapest_for_gang(
        LOCALITY,
        a_full_gang_of_gpus(),
        members,
        needed=2,
        priority=5,
        preemptible={"qA": 3, "qB": 0, "qC": 1, "qD": 0},
    )
    assert found is not None
    assert (found.leave, found.priority) == (("qB", "qD"), 0)


def test_a_gang_that_cannot_be_whole_preempts_nobody() -> None:
    members = [a_demand(f"m{number}", "1") for number in range(3)]
    found = cheapest_for_gang(
        LOCALITY,
        a_full_gang_of_gpus(),
        members,
        needed=3,
        priority=5,
        preemptible={"qA": 0, "qB": 0},
    )
    assert found is None


def test_a_member_for_which_nobody_could_make_room_keeps_no_other_from_it() -> None:
    members = [a_demand("m0", "1", count=5), a_demand("m1", "1"), a_demand("m2", "1")]
    found = cheapest_for_gang(
        LOCALITY,
        a_full_gang_of_gpus(),
        members,
        needed=2,
        priority=5,
        preemptible=dict.fromkeys(("qA", "qB", "qC", "qD"), 0),
    )
    assert found is not None
    assert found.leave == ("qA", "qB")


def test_of_two_who_would_do_alone_the_one_of_higher_priority_stays() -> None:
    """One after the other both would have to leave: `red` opens an idle GPU."""
    ledger = Ledger(
        [a_node()], [a_device(gpu, a_holder(name, "1")) for gpu, name in (("A", "a"), ("B", "z"))]
    )
    found = cheapest_for_gang(
        LOCALITY,
        ledger,
        [a_demand("m", "0.5"), a_demand("red", "0.5", affinity="red")],
        needed=2,
        priority=5,
        preemptible={"a": 0, "z": 1},
    )
    assert found is not None
    assert (found.leave, found.priority, found.words) == (("a",), 0, ("a leaves n1/A",))
    assert ledger.held_by("a")


def test_a_member_that_fits_as_it_is_has_nobody_leave() -> None:
    found = cheapest_for_gang(
        LOCALITY,
        three_holders(),
        [a_demand("fits", "0.1"), a_demand("m", "0.5")],
        needed=2,
        priority=5,
        preemptible={"low": 0},
    )
    assert found is not None
    assert found.leave == ("low",)


@pytest.mark.parametrize(
    ("stay", "leave"),
    [((), ("big", "low")), (("low",), ("big", "mid")), (("low", "mid"), None)],
    ids=["anybody may leave", "one has to stay", "nobody is left who could"],
)
def test_whose_leaving_would_let_a_gang_in_is_told_whoever_they_are(
    stay: tuple[str, ...], leave: tuple[str, ...] | None
) -> None:
    members = [a_demand("m0", "0.5"), a_demand("m1", "1")]
    change = change_for_gang(LOCALITY, three_holders(), members, needed=2, stay=stay)
    assert (change and change.leave) == leave
    for uid in leave or ():
        assert change is not None
        assert any(word.startswith(f"{uid} leaves n1/") for word in change.words)


def test_a_gang_that_fits_preempts_nobody() -> None:
    found = cheapest_for_gang(
        LOCALITY, three_holders(), [a_demand("m", "0.1")], needed=1, priority=5, preemptible={}
    )
    assert found is None


@pytest.mark.parametrize(("name", "cluster", "demand"), POLICIES)
def test_no_member_of_the_set_leaves_in_vain(name: str, cluster: Cluster, demand: Asker) -> None:
    decide = policy(name)
    source = random.Random(4)
    found_some = 0
    for _ in range(40):
        ledger = cluster(source)
        preemptible: dict[str, int] = {}
        for number in range(8):
            asked = demand(source, number)
            decision = decide(ledger, asked)
            if decision.outcome == "bound":
                commit(ledger, asked, decision)
                preemptible[asked.uid] = source.choice([0, 1, 9])
        members = [demand(source, 100 + number) for number in range(3)]
        if place_gang(decide, ledger, members, 2).whole:
            continue
        found = cheapest_for_gang(
            decide, ledger, members, needed=2, priority=5, preemptible=preemptible
        )
        if found is None:
            continue
        found_some += 1
        assert all(preemptible[uid] < 5 for uid in found.leave)
        for kept in (None, *found.leave):
            with ledger.what_if():
                for uid in found.leave:
                    if uid != kept:
                        ledger.release(uid)
                assert place_gang(decide, ledger, members, 2).whole == (kept is None)
    assert found_some > 2


def test_a_gang_on_one_node_preempts_on_that_node_only() -> None:
    """Anywhere, the two holders of the lowest priority would do, but they are on two nodes."""
    ledger = Ledger(
        [a_node("n1"), a_node("n2")],
        [
            a_device("A", a_holder("low-1", "1")),
            a_device("B", a_holder("high-1", "1")),
            a_device("C", a_holder("low-2", "1"), node="n2"),
            a_device("D", a_holder("mid-2", "1"), node="n2"),
        ],
    )
    preemptible = {"low-1": 0, "low-2": 0, "mid-2": 1, "high-1": 2}
    members = [a_demand("m0", "1"), a_demand("m1", "1")]

    def leaving(near: Nearness | None) -> tuple[str, ...]:
        found = cheapest_for_gang(
            LOCALITY, ledger, members, needed=2, priority=5, preemptible=preemptible, near=near
        )
        assert found is not None
        return found.leave

    assert leaving(None) == ("low-1", "low-2")
    assert leaving(Nearness(near="nodes")) == ("low-1", "low-2")
    assert leaving(Nearness(near="node")) == ("low-2", "mid-2")


@pytest.mark.parametrize("near", ["switch", "node"])
def test_what_a_near_gang_preempts_gives_it_room_as_near_as_it_asks(near: Near) -> None:
    source = random.Random(12)
    seen = {True: 0, False: 0}
    for _ in range(80):
        ledger, members = a_cluster(source), some_members(source, 2)
        needed, nearness = source.randint(1, len(members)), Nearness(near=near)
        holders = {each.demand for one in ledger.devices.values() for each in one.holders}
        may = dict.fromkeys(sorted(holders), 0)
        if place_gang(LOCALITY, ledger, members, needed, nearness).whole:
            continue
        found = cheapest_for_gang(
            LOCALITY, ledger, members, needed=needed, priority=1, preemptible=may, near=nearness
        )
        before = set(ledger.devices)
        with ledger.what_if():
            for uid in found.leave if found else may:
                ledger.release(uid)
            answer = place_gang(LOCALITY, ledger, members, needed, nearness)
            assert answer.whole == (found is not None)
            for each in answer.placed:
                commit(ledger, each.demand, each.decision)
            assert obeys(ledger, near, [each.demand.uid for each in answer.placed])
        assert set(ledger.devices) == before
        seen[found is not None] += 1
    assert min(seen.values()) > 2


def test_for_a_near_gang_no_member_of_it_has_to_leave() -> None:
    ledger = Ledger([a_node("n1")], [a_device("A", a_holder("mate", "1"))])
    near = Nearness(near="node", mates=frozenset(["mate"]))
    members = [a_demand("m1", "1")]
    assert change_for_gang(LOCALITY, ledger, members, needed=1) is not None
    assert change_for_gang(LOCALITY, ledger, members, needed=1, near=near) is None
