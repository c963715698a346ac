"""Preemption for a gang goes in steps, between which others read and change the ledger."""

import pytest

from core.builders import a_demand, a_device, a_holder, a_node
from kubeshare.core import gang_preemption
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.gang import Nearness, place_gang
from kubeshare.core.gang_preemption import cheapest_for_gang, finish, preempt_in_steps
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy

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
    monkeypatch.setattr(gang_preemption, "LOOKED_AT_ONCE", 1)
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
    monkeypatch.setattr(gang_preemption, "LOOKED_AT_ONCE", 1)
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
