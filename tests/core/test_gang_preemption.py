"""Preemption for a gang goes in steps, between which others read and change the ledger."""

from collections.abc import Iterable
from typing import Any

import pytest

from core.builders import a_demand, a_device, a_holder, a_node
from kubeshare.core import preemption_search
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.errors import UnsettledError
from kubeshare.core.gang import Nearness, place_gang
from kubeshare.core.gang.near_search import SCOPES
from kubeshare.core.gang_preemption import (
    cheapest_for_gang,
    fewest_in_steps,
    finish,
    preempt_in_steps,
)
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy
from kubeshare.core.preemption import Preemption
from kubeshare.core.preemption_search import Steps

LOCALITY = policy("locality")
GPUS = 12
PREEMPTIBLE = {f"q{number}": number % 3 for number in range(GPUS)}


def full() -> Ledger:
    nodes = [a_node(f"n{number}") for number in range(GPUS // 4)]
    devices = [
        a_device(f"G{number}", a_holder(f"q{number}", "1"), node=f"n{number // 4}")
        for number in range(GPUS)
    ]
    return Ledger(nodes, devices)


@pytest.mark.parametrize("near", [None, Nearness(near="node")])
def test_each_step_leaves_the_ledger_as_it_was(
    near: Nearness | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [a_demand(f"m{number}", "0.6") for number in range(4)]
    ledger = full()
    before, held = dict(ledger.devices), set(ledger.holding(PREEMPTIBLE.keys()))
    at_once = cheapest_for_gang(
        LOCALITY, ledger, members, needed=4, priority=5, preemptible=PREEMPTIBLE, near=near
    )
    monkeypatch.setattr(preemption_search, "LOOKED_AT_ONCE", 1)
    search = preempt_in_steps(
        LOCALITY, ledger, members, needed=4, priority=5, preemptible=PREEMPTIBLE, near=near
    )
    for _ in range(4):
        next(search)
        assert dict(ledger.devices) == before
        assert set(ledger.holding(PREEMPTIBLE.keys())) == held
    found = finish(search)
    assert found is not None
    assert found == at_once


def test_what_leaves_or_comes_between_two_steps_is_taken_into_account(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preemption_search, "LOOKED_AT_ONCE", 1)
    members = [a_demand(f"m{number}", "1") for number in range(4)]
    ledger = full()
    search = preempt_in_steps(
        LOCALITY, ledger, members, needed=4, priority=5, preemptible=PREEMPTIBLE
    )
    next(search)
    next(search)
    ledger.release("q0")  # it was to leave for a member
    ledger.release("q1")
    ledger.place(a_demand("other", "1"), "G0")
    found = finish(search)
    assert found is not None
    assert not {"q0", "q1"} & set(found.leave)
    with ledger.what_if():
        for uid in found.leave:
            ledger.release(uid)
        assert place_gang(LOCALITY, ledger, members, 4).whole
    assert len(found.leave) == 3


def test_nobody_is_looked_for_once_too_few_members_are_left() -> None:
    """Each member that cannot fit once cost a look at all GPUs."""
    asked: list[str] = []

    def counting(ledger: Ledger, demand: Demand) -> Decision:
        asked.append(demand.uid)
        return LOCALITY(ledger, demand)

    members = [a_demand(f"m{number}", "1", count=5) for number in range(50)]
    search = preempt_in_steps(
        counting,
        full(),
        members,
        needed=50,
        priority=5,
        preemptible=PREEMPTIBLE,
    )
    assert finish(search) is None
    assert len(asked) < 10


def one_look_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemption_search, "LOOKED_AT_ONCE", 1)


def test_a_change_lets_no_step_decide_all_members_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The member whose GPU was taken once made that step decide all after it."""
    one_look_a_step(monkeypatch)
    asked: list[str] = []

    def counting(ledger: Ledger, demand: Demand) -> Decision:
        asked.append(demand.uid)
        return LOCALITY(ledger, demand)

    ledger = full()
    members = [a_demand(f"m{number}", "1") for number in range(10)]
    search = preempt_in_steps(
        counting, ledger, members, needed=10, priority=5, preemptible=PREEMPTIBLE
    )
    next(search)
    of_one_member = len(asked)
    for _ in range(8):
        next(search)
    ledger.release("q0")  # it was to leave for the first member
    ledger.place(a_demand("other", "1"), "G0")
    most = 0
    for _ in range(9):
        asked.clear()
        next(search)
        most = max(most, len(asked))
    assert most <= 2 * of_one_member
    found = finish(search)
    assert found is not None
    assert len(found.leave) == 10
    assert "q0" not in found.leave


def test_a_search_that_never_settles_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    one_look_a_step(monkeypatch)
    ledger = full()
    members = [a_demand(f"m{number}", "0.4") for number in range(10)]
    search = preempt_in_steps(
        LOCALITY, ledger, members, needed=10, priority=5, preemptible=PREEMPTIBLE
    )

    def disturb() -> None:
        for number in range(10_000):
            next(search)
            for gpu in range(GPUS):
                ledger.set_device(a_device(f"G{gpu}", a_holder(f"q{gpu}", "1"), index=number))

    with pytest.raises(UnsettledError, match="changed during 32 steps"):
        disturb()


@pytest.mark.parametrize("label", ["affinity", "anti_affinity", "exclusion"])
def test_a_label_that_comes_between_two_steps_counts(
    label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_look_a_step(monkeypatch)
    monkeypatch.setattr(preemption_search, "DECIDED_AT_ONCE", 1)
    held = a_device("A", a_holder("qA", "1"))
    ledger = Ledger([a_node()], [held, a_device("B", a_holder("qB", "1")), a_device("C")])
    labelled: dict[str, Any] = {label: "x"}
    members = [a_demand("m0", "0.5", **labelled), a_demand("m1", "1")]
    lower = {"qA": 0, "qB": 0}
    search = preempt_in_steps(LOCALITY, ledger, members, needed=2, priority=1, preemptible=lower)
    next(search)  # m0 fits on C
    if label == "affinity":
        ledger.release("qA")
        ledger.place(a_demand("other", "0.3", affinity="x"), "A")
        lower.pop("qA")
    else:
        conflicting: dict[str, Any] = {label: "x"} if label == "anti_affinity" else {label: "y"}
        ledger.place(a_demand("other", "0.3", **conflicting), "C")
    found = finish(search)
    leave = () if found is None else found.leave
    with ledger.what_if():
        for uid in leave:
            ledger.release(uid)
        assert place_gang(LOCALITY, ledger, members, 2).whole
    assert leave == (() if label == "affinity" else ("qA", "qB"))


def test_who_is_necessary_by_arithmetic_is_not_tried() -> None:
    """Each holder that was to leave once cost a trial of the whole gang."""
    members = [a_demand(f"m{number}", "1") for number in range(GPUS)]
    search = preempt_in_steps(
        LOCALITY, full(), members, needed=GPUS, priority=5, preemptible=PREEMPTIBLE
    )
    answers: list[Preemption | None] = []

    def noting() -> Steps[None]:
        answers.append((yield from search))

    assert len(list(noting())) < GPUS
    [found] = answers
    assert found is not None
    assert set(found.leave) == set(PREEMPTIBLE)


def test_the_places_of_a_near_gang_are_tried_without_their_own_holders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each step once released those of the whole cluster."""
    released: list[str] = []
    release_all = Ledger.release_all

    def counting(ledger: Ledger, uids: Iterable[str]) -> None:
        released.extend(uids)
        release_all(ledger, uids)

    monkeypatch.setattr(Ledger, "release_all", counting)
    members = [a_demand(f"m{number}", "1") for number in range(4)]
    ledger = full()
    search = preempt_in_steps(
        LOCALITY,
        ledger,
        members,
        needed=4,
        priority=5,
        preemptible=PREEMPTIBLE,
        near=Nearness(near="node"),
    )
    next(search)
    for _ in range(GPUS // 4):
        released.clear()
        next(search)
        assert len(released) == 4
    found = finish(search)
    assert found is not None
    assert len(found.leave) == 4


def test_what_grew_meanwhile_lets_some_stay() -> None:
    ledger = full()
    members = [a_demand(f"m{number}", "1") for number in range(4)]
    leavers = {f"q{number}": number for number in range(4)}
    for number in range(3):
        ledger.add_device(a_device(f"N{number}", node="n0"))
    found = finish(fewest_in_steps(LOCALITY, ledger, members, needed=4, leavers=leavers))
    assert found is not None
    assert (found.leave, found.priority) == (("q0",), 0)
    ledger.release("q0")
    gone = fewest_in_steps(LOCALITY, ledger, members, needed=4, leavers={"q0": 0})
    assert finish(gone) is None


def members_start_without(
    ledger: Ledger, members: list[Demand], near: Nearness | None, lower: dict[str, int]
) -> tuple[str, ...]:
    """Whom the search evicts for all members; they start without these, and not with one less."""
    found = cheapest_for_gang(
        LOCALITY,
        ledger,
        members,
        needed=len(members),
        priority=5,
        preemptible=lower,
        near=near,
    )
    assert found is not None
    with ledger.what_if():
        ledger.release_all(found.leave)
        assert place_gang(LOCALITY, ledger, members, len(members), near).whole
    return found.leave


NEAR = [None, Nearness(near="node")]


@pytest.mark.parametrize("near", NEAR)
def test_who_leaves_suffices_although_members_are_placed_elsewhere_then(
    near: Nearness | None,
) -> None:
    """Beside q0, the first member is placed on B and C; once q0 has left, on A and C."""
    a = a_device("A", a_holder("q0"), a_holder("q1"))
    b, c = a_device("B", a_holder("q0")), a_device("C", a_holder("q2"))
    members = [a_demand(f"m{number}", "0.2", count=2) for number in range(3)]
    lower = {"q0": 1, "q1": 2, "q2": 1}
    leave = members_start_without(Ledger([a_node()], [a, b, c]), members, near, lower)
    assert leave == ("q0", "q2")


@pytest.mark.parametrize("near", NEAR)
def test_who_leaves_suffices_although_a_label_leaves_with_them(near: Nearness | None) -> None:
    """Without the one that has the label, its GPU is no place for the label: it is not idle."""
    holders = a_holder("q0", affinity="x"), a_holder("q1", "0.3")
    members = [a_demand(f"m{number}", "0.2", affinity="x") for number in range(2)]
    ledger = Ledger([a_node()], [a_device("A", *holders)])
    leave = members_start_without(ledger, members, near, {"q0": 0, "q1": 1})
    assert leave == ("q1",)


def devices_on(ledger: Ledger, node: str) -> list[Device]:
    return [each for each in ledger.devices.values() if each.node == node]


def test_no_set_is_chosen_with_which_the_gang_would_not_be_placed() -> None:
    """All orders of the members are tried in some places only, and not in the one of this set."""
    on_one = Nearness(near="node")
    nodes = [a_node(f"n{number}") for number in range(SCOPES + 1)]
    devices = [
        a_device("n0-0", node="n0"),
        a_device("n0-1", a_holder("q0", "1"), node="n0"),
        a_device("n0-2", a_holder("q1", "1"), node="n0"),
    ]
    lower = {"q0": 0, "q1": 1}
    for number in range(1, SCOPES + 1):
        name, uid = f"n{number}", f"other{number}"
        devices += [a_device(f"{name}-0", node=name)]
        devices += [a_device(f"{name}-1", a_holder(uid, "0.7"), node=name)]
        lower[uid] = 0
    members = [a_demand(f"m{number}", "0.3" if number < 2 else "0.7") for number in range(4)]
    ledger = Ledger(nodes, devices)
    with ledger.what_if():
        ledger.release("q0")  # in another order, all fit on n0 then
        assert place_gang(LOCALITY, Ledger([nodes[0]], devices_on(ledger, "n0")), members, 4).whole
        assert not place_gang(LOCALITY, ledger, members, 4, on_one).whole
    found = cheapest_for_gang(
        LOCALITY, ledger, members, needed=4, priority=5, preemptible=lower, near=on_one
    )
    assert found is None


def test_a_policy_that_answers_otherwise_when_asked_again_evicts_nobody() -> None:
    """It once ended the search with an error of the ledger."""
    bound: set[str] = set()

    def once(ledger: Ledger, demand: Demand) -> Decision:
        decision = LOCALITY(ledger, demand)
        if decision.outcome == "bound" and demand.uid in bound:
            return Decision(outcome="pending", reasons={})
        bound.update([demand.uid] if decision.outcome == "bound" else [])
        return decision

    ledger = full()
    before = dict(ledger.devices)
    members = [a_demand(f"m{number}", "1") for number in range(3)]
    search = preempt_in_steps(once, ledger, members, needed=3, priority=5, preemptible=PREEMPTIBLE)
    assert finish(search) is None
    assert bound
    assert dict(ledger.devices) == before


def a_gpu_of_two() -> tuple[Ledger, list[Demand], dict[str, int]]:
    """Both holders have to leave for two members that have to join each other."""
    ledger = Ledger(
        [a_node()], [a_device("A", a_holder("p0", "0.3", affinity="blue"), a_holder("p4", "0.3"))]
    )
    first = a_demand("m0", "0")  # fits beside the holders, and keeps the GPU from being idle
    red = [a_demand(f"red{number}", "0.2", affinity="red") for number in range(2)]
    return ledger, [first, *red], {"p0": 0, "p4": 2}


def test_a_member_that_fits_as_it_is_keeps_no_others_from_a_set() -> None:
    """The search once found none: a label opens an idle GPU, and that one had the first member."""
    ledger, members, lower = a_gpu_of_two()
    found = cheapest_for_gang(LOCALITY, ledger, members, needed=2, priority=5, preemptible=lower)
    assert found is not None
    assert found.leave == ("p0", "p4")
    with ledger.what_if():
        ledger.release_all(found.leave)
        assert place_gang(LOCALITY, ledger, members, 2).whole


@pytest.mark.parametrize("bound", ["TOGETHER", "MOST_TRIED"])
def test_of_many_holders_none_are_searched_together(
    bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, members, lower = a_gpu_of_two()
    monkeypatch.setattr(preemption_search, bound, 1)
    found = cheapest_for_gang(LOCALITY, ledger, members, needed=2, priority=5, preemptible=lower)
    assert found is None
