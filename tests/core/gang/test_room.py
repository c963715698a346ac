"""The bound of how many members fit: never too small, and exact for alike ones."""

import random

import msgspec
import pytest

from core.builders import a_demand, a_device, a_holder, a_node
from core.clusters import POLICIES, Asker, Cluster
from core.gang.clusters import a_cluster, in_order, some_members
from kubeshare.core.demand import Demand, Share
from kubeshare.core.gang.room import Room, necessary
from kubeshare.core.gang.scopes import Scope
from kubeshare.core.ledger.holder import MAX_HOLDERS
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy
from kubeshare.core.units import MI, Memory


@pytest.mark.parametrize(("name", "cluster", "demand"), POLICIES)
def test_no_policy_places_more(name: str, cluster: Cluster, demand: Asker) -> None:
    source, reached = random.Random(21), 0
    for _ in range(60):
        ledger = cluster(source)
        members = [demand(source, number) for number in range(source.randint(1, 5))]
        room = Room(ledger, members)
        for node in ledger.nodes:
            scope = Scope(frozenset([node]))
            placed = in_order(policy(name), ledger, members, scope).room_for
            assert placed <= room.on_node(node)
            reached += placed == min(room.on_node(node), len(members)) > 0
    assert reached > 10


def test_of_alike_members_it_is_what_fits() -> None:
    source = random.Random(22)
    for _ in range(40):
        ledger, (member, *_) = a_cluster(source), some_members(source, 1)
        alike = [msgspec.structs.replace(member, uid=f"x{number}") for number in range(16)]
        for node in ledger.nodes:
            fit = in_order(policy("locality"), ledger, alike, Scope(frozenset([node]))).room_for
            assert fit == min(16, Room(ledger, alike).on_node(node))


def test_what_takes_no_holder_has_no_room() -> None:
    devices = [
        a_device("unhealthy", healthy=False),
        a_device("fenced", fenced=True),
        a_device("full", a_holder("q", "0.9")),
        a_device("small", memory_bytes=100 * MI),
        a_device("other", model="A100"),
    ]
    ledger = Ledger([a_node()], devices)
    assert Room(ledger, [a_demand("a", "0.2", memory=200, model="V100")]).on_node("n1") == 0
    assert Room(ledger, [a_demand("a", "0.2", memory=200)]).on_node("n1") == 5
    assert Room(ledger, [a_demand("a", "0.2", memory=200)]).on_node("gone") == 0


def test_free_gpus_count_and_a_gpu_has_a_bounded_number_of_holders() -> None:
    ledger = Ledger([a_node("n1", 2)], [a_device("A", a_holder("q", "0"))])
    nothing = Room(ledger, [a_demand("a", "0")])
    assert nothing.on_node("n1") == 3 * MAX_HOLDERS - 1
    assert Room(ledger, [a_demand("a", "0.3", memory=400)]).on_node("n1") == 6


def test_a_member_with_several_shares_takes_one_holder_for_each() -> None:
    ledger = Ledger([a_node("n1", 3)])
    shares = tuple(
        Share(name=name, request_micros=micros, memory=Memory(bytes=MI))
        for name, micros in (("a", 600_000), ("b", 400_000))
    )
    member = a_demand("m", "0", shares=shares, memory=0)
    assert Room(ledger, [member]).on_node("n1") == 3
    assert Room(ledger, [a_demand("m", "0.5", count=3)]).on_node("n1") == 2


def test_without_who_is_necessary_too_few_fit() -> None:
    source, found = random.Random(23), 0
    for _ in range(60):
        ledger, (member, *_) = a_cluster(source), some_members(source, 1)
        alike = [msgspec.structs.replace(member, uid=f"x{number}") for number in range(32)]
        holders = {each.demand for device in ledger.devices.values() for each in device.holders}
        leavers = {uid for uid in holders if source.random() < 0.7}

        def fit(leaving: set[str], ledger: Ledger = ledger, alike: list[Demand] = alike) -> int:
            with ledger.what_if():
                for uid in leaving:
                    ledger.release(uid)
                return in_order(policy("locality"), ledger, alike).room_for

        needed, before = fit(leavers), ledger.snapshot().devices
        chosen = necessary(ledger, alike, needed, leavers)
        assert ledger.devices == before
        assert not any(fit(leavers - {uid}) >= needed for uid in chosen)
        found += len(chosen)
    assert found > 10
