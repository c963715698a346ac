"""Holders keep what they say on their way from the ledger to the VGPU and back."""

from typing import Any

import msgspec
import pytest

from kubeshare.api.holder_codec import (
    are_shares_of,
    decode,
    decode_all,
    encode,
    encode_share,
    is_stored,
)
from kubeshare.api.types import v1
from kubeshare.core.demand import Demand, Memory, Share
from kubeshare.core.ledger.holder import Holder
from kubeshare.kube.meta import ObjectMeta

GIB = 1 << 30
TOTAL = 16 * GIB


def a_demand(**fields: Any) -> Demand:
    given: dict[str, Any] = {
        "uid": "u",
        "name": "p",
        "namespace": "d",
        "request_micros": 300_000,
        "limit_micros": 600_000,
        "memory": Memory(bytes=GIB),
        "affinity": "a",
        "anti_affinity": "b",
        "exclusion": "c",
    }
    return Demand(**given | fields)


def encode_demand(demand: Demand, total: int, attempt: int) -> v1.Holder:
    (share, *_) = demand.per_gpu()
    return encode_share(demand, share, total, attempt)


def test_a_holder_comes_back_as_it_was() -> None:
    holder = Holder.of(a_demand(), TOTAL)
    entry = encode(holder, attempt=3, holders=2)
    assert (entry.attempt, entry.parts, entry.pod_uid) == (3, 2, "")
    assert decode(entry) == holder


def test_every_field_of_the_ledger_is_stored() -> None:
    different = a_demand(group="g", uid="v", name="q", namespace="e", limit_alone_micros=900_000)
    different = msgspec.structs.replace(different, latency_sensitive=True)
    assert decode(encode_demand(different, TOTAL, 1)) == Holder.of(different, TOTAL)


def test_each_share_has_an_entry_of_its_own() -> None:
    shares = (
        Share(name="a", request_micros=500_000, memory=Memory(bytes=GIB), count=2),
        Share(name="b", limit_micros=100_000, limit_alone_micros=200_000, latency_sensitive=True),
    )
    demand = Demand(uid="u", name="p", shares=shares)
    entries = [encode_share(demand, share, TOTAL, 1) for share in demand.per_gpu()]
    assert [(each.share, each.parts, each.request_micros) for each in entries] == [
        ("a", 3, 500_000),
        ("a", 3, 500_000),
        ("b", 3, 0),
    ]
    assert entries[2].limit_alone_micros == 200_000
    assert [each.latency_sensitive for each in entries] == [False, False, True]
    assert [holder.share for holder in decode_all([entries[2], entries[0]])] == ["a", "b"]
    assert all(is_stored(entry, demand, TOTAL) for entry in entries)
    assert not is_stored(msgspec.structs.replace(entries[0], share="b"), demand, TOTAL)
    assert not is_stored(msgspec.structs.replace(entries[0], share="c"), demand, TOTAL)


def test_an_entry_of_an_earlier_version_is_what_is_stored_now() -> None:
    # It has no share and no limit while alone, and the container that was always empty.
    old = {
        "demand": "u",
        "attempt": 1,
        "namespace": "d",
        "name": "p",
        "container": "",
        "requestMicros": 300_000,
        "limitMicros": 600_000,
        "memoryBytes": GIB,
        "affinity": "a",
        "antiAffinity": "b",
        "exclusion": "c",
        "parts": 1,
    }
    entry = msgspec.convert(old, v1.Holder)
    assert is_stored(entry, a_demand(), TOTAL)
    assert decode(entry) == Holder.of(a_demand(), TOTAL)
    same = a_demand(limit_alone_micros=600_000)
    assert is_stored(entry, same, TOTAL)


def test_a_limit_of_nothing_is_stored_as_the_smallest_limit() -> None:
    entry = encode_demand(a_demand(request_micros=0, limit_micros=0), TOTAL, 1)
    assert entry.limit_micros == 1


def test_holders_of_a_ledger_are_sorted() -> None:
    entries = [v1.Holder(demand=uid) for uid in "cab"]
    assert [holder.demand for holder in decode_all(entries)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "changed",
    [
        {"request_micros": 299_999},
        {"limit_micros": 700_000},
        {"memory": Memory(bytes=GIB + 1)},
        {"anti_affinity": ""},
        {"exclusion": "other"},
        {"latency_sensitive": True},
        {"attempt": 1},
    ],
)
def test_a_demand_that_was_edited_is_not_what_is_stored(changed: dict[str, Any]) -> None:
    demand = a_demand()
    entry = encode_demand(demand, TOTAL, 1)
    assert is_stored(entry, demand, TOTAL)
    edited = msgspec.structs.replace(demand, **changed)
    assert not is_stored(entry, edited, TOTAL)


def test_the_name_of_the_pod_is_no_difference() -> None:
    demand = a_demand()
    named = msgspec.structs.replace(encode_demand(demand, TOTAL, 1), pod_uid="pod")
    assert is_stored(named, demand, TOTAL)


def test_a_request_that_follows_the_memory_is_compared_as_it_was_stored() -> None:
    demand = a_demand(
        request_micros=0, limit_micros=1_000_000, memory=Memory(bytes=4 * GIB), proportional=True
    )
    entry = encode_demand(demand, TOTAL, 1)
    assert entry.request_micros == 250_000
    assert is_stored(entry, demand, TOTAL)


@pytest.mark.parametrize("memory", [Memory(micros=500_000), Memory(bytes=4 * GIB)])
def test_amounts_are_those_of_the_expected_or_of_the_real_gpu(memory: Memory) -> None:
    demand = a_demand(request_micros=0, limit_micros=1_000_000, memory=memory, proportional=True)

    def held(total: int, expected: int = 0) -> v1.VGPU:
        return v1.VGPU(
            metadata=ObjectMeta(name="x"),
            spec=v1.VGPUSpec(node_name="n", memory_bytes=2 * TOTAL, expected_memory_bytes=expected),
            status=v1.VGPUStatus(holders=(encode_demand(demand, total, 1),)),
        )

    assert are_shares_of([held(2 * TOTAL)], demand)
    assert are_shares_of([held(TOTAL, expected=TOTAL)], demand)
    assert not are_shares_of([held(TOTAL)], demand)
    assert not are_shares_of([held(TOTAL // 2, expected=TOTAL)], demand)
    edited = msgspec.structs.replace(demand, memory=Memory(micros=600_000))
    assert not are_shares_of([held(TOTAL, expected=TOTAL)], edited)
