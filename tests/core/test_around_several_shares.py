"""What surrounds a policy understands demands of several different shares."""

import random
from itertools import combinations

import msgspec
import pytest

from core.builders import GPU_MEMORY, a_demand, a_device, a_holder, a_node
from core.clusters import POLICIES
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand, Memory, Share
from kubeshare.core.diagnosis.explain import shortest_change
from kubeshare.core.diagnosis.scale_up import new_node_helps
from kubeshare.core.gang import Gang, place_gang
from kubeshare.core.ledger.device import FreeGpu, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy
from kubeshare.core.preemption import cheapest_preemption
from kubeshare.core.quota.model import QuotaPolicy, fixed
from kubeshare.core.quota.namespace import NamespaceQuota, within_quotas
from kubeshare.core.quota.rows import Quota
from kubeshare.core.simulation import PlacementQueue
from kubeshare.core.units import MICROS

LOCALITY = policy("locality")
WHOLE = Share(name="whole", request_micros=MICROS, memory=Memory(micros=MICROS), count=2)
HALF = Share(name="half", request_micros=500_000, memory=Memory(micros=500_000))


def several(name: str = "p", *shares: Share, **fields: object) -> Demand:
    known = {"uid": name, "name": name, "shares": shares or (WHOLE, HALF)}
    return Demand(**(known | fields))  # type: ignore[arg-type]  # fields of Demand by name


def three_gpus() -> Ledger:
    return Ledger([Node("n1")], [a_device(each) for each in "ABC"])


@pytest.mark.parametrize(("gpus", "outcome"), [(2_500_000, "bound"), (2_499_999, "pending")])
def test_the_quota_of_a_namespace_counts_all_shares(gpus: int, outcome: str) -> None:
    quota = NamespaceQuota(name="q", micros=gpus)
    decision = within_quotas(LOCALITY, lambda _: [quota])(three_gpus(), several())
    assert decision.outcome == outcome
    memory = NamespaceQuota(name="q", memory_bytes=GPU_MEMORY * 5 // 2 - 1)
    decision = within_quotas(LOCALITY, lambda _: [memory])(three_gpus(), several())
    assert decision.field == "quota"


@pytest.mark.parametrize(("gpus", "outcome"), [(2_500_000, "bound"), (2_499_999, "rejected")])
def test_the_quota_of_a_model_counts_all_shares(gpus: int, outcome: str) -> None:
    decide = QuotaPolicy(LOCALITY, fixed([Quota(namespace="team", micros=gpus)]))
    decision = decide(three_gpus(), several(namespace="team"))
    assert decision.outcome == outcome


def test_the_demands_of_a_group_stay_on_the_model_of_its_first_share() -> None:
    devices = [a_device(each, model="V100") for each in "ABC"]
    devices += [a_device(each, model="A100") for each in "DEF"]
    ledger = Ledger([Node("n1")], devices)
    first = several(group="g", namespace="team", model="A100")
    decide = QuotaPolicy(LOCALITY, fixed([]))
    ledger.place(first, *decide(ledger, first).devices)
    second = several("q", HALF, group="g", namespace="team")
    assert ledger.devices[decide(ledger, second).devices[0]].model == "A100"


def test_a_queue_retries_a_demand_of_several_shares() -> None:
    ledger = three_gpus()
    queue = PlacementQueue(ledger, LOCALITY)
    assert queue.submit(several()).outcome == "bound"
    assert queue.submit(several("q")).outcome == "pending"
    ((demand, decision),) = queue.release("p")
    assert (demand.uid, decision.shares) == ("q", ("whole", "whole", "half"))
    assert [len(device.holders) for device in ledger.devices.values()] == [1, 1, 1]


def test_a_gang_places_its_largest_members_first() -> None:
    small = [a_demand(name, "0.5", share_of_memory="0.5") for name in ("a", "b")]
    ledger = Ledger([Node("n1")], [a_device(each) for each in "ABC"])
    third = several("c", WHOLE)
    placement = place_gang(LOCALITY, ledger, [*small, third], 3)
    assert placement.whole
    two = Ledger([Node("n1")], [a_device("A"), a_device("B")])
    refused = place_gang(LOCALITY, two, [*small, third], 3)
    assert Gang(name="g", min_available=3).no_room(3, refused) == (
        "room for 2 of the 3 members that it needs"
    )


def test_the_fewest_leave_a_node() -> None:
    devices = [
        a_device("A", a_holder("x", "0.6")),
        a_device("B", a_holder("y", "0.2"), a_holder("z", "0.2")),
        a_device("C"),
        a_device("D", a_holder("w", "0.4")),
    ]
    change = shortest_change(LOCALITY, Ledger([Node("n1")], devices), several())
    assert change is not None
    # Then C and D are idle, and B has room for the half.
    assert change.leave == ("w",)
    assert change.words == ("w leaves n1/D",)


@pytest.mark.parametrize("name", [name for name, _, _ in POLICIES])
@pytest.mark.parametrize("seed", range(8))
def test_no_fewer_would_do(name: str, seed: int) -> None:
    source = random.Random(seed)
    decide = policy(name)
    holders = [
        a_holder(f"h{number}", source.choice(["0.2", "0.5", "0.7"]), memory=100)
        for number in range(4)
    ]
    devices = [
        a_device(f"{number}", index=number, *([holders[number]] if number < 4 else []))  # noqa: B026
        for number in range(5)
    ]
    ledger = Ledger([Node("n1")], devices)
    demand = several()
    change = shortest_change(decide, ledger, demand)
    sizes = []
    for size in range(1, 5):
        for leavers in combinations(("h0", "h1", "h2", "h3"), size):
            with ledger.what_if():
                for uid in leavers:
                    ledger.release(uid)
                if decide(ledger, demand).outcome == "bound":
                    sizes.append(size)
    assert change is not None
    assert len(change.leave) == min(sizes)


def test_the_holders_of_lowest_priority_are_preempted() -> None:
    devices = [a_device(each, a_holder(f"on-{each}", "0.6")) for each in "ABC"]
    devices.append(a_device("D"))
    preemptible = {"on-A": 5, "on-B": 1, "on-C": 2}
    found = cheapest_preemption(
        LOCALITY, Ledger([Node("n1")], devices), several(), priority=10, preemptible=preemptible
    )
    assert found is not None
    assert (found.leave, found.priority) == (("on-B", "on-C"), 2)


def test_a_demand_that_holds_several_shares_leaves_with_all_of_them() -> None:
    ledger = three_gpus()
    held = several("q")
    ledger.place(held, "A", "B", "C")
    change = shortest_change(LOCALITY, ledger, a_demand("p", "0.6"))
    assert change is not None
    assert change.leave == ("q",)


def test_a_new_node_has_a_gpu_for_each_share() -> None:
    ledger = Ledger([a_node("n1", free=2)])
    demand = several()
    rejected: Decision = LOCALITY(ledger, demand)
    assert rejected.field == "shares"
    large = Ledger([Node("n1", kinds=frozenset([FreeGpu("", GPU_MEMORY)]), total=3)])
    assert new_node_helps(LOCALITY, large, msgspec.structs.replace(demand, nodes=frozenset()))
