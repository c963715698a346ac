"""Demands reject impossible values."""

from typing import Any

import pytest

from core.builders import a_demand, share
from kubeshare.core.demand import Demand, Memory, Share, are_apart
from kubeshare.core.errors import InvalidValueError


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"limit_micros": share("0.4")}, "request: 0.5 is more than the limit 0.4"),
        ({"limit_micros": -1}, "limit: -1 millionths is not from 0 to 1000000"),
        ({"limit_micros": 1_000_001}, "limit: 1000001 millionths is not from 0 to 1000000"),
        ({"count": 0}, "count: 0 is less than one GPU"),
    ],
)
def test_a_demand_that_cannot_be_is_refused_by_its_field(
    fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        a_demand("p", "0.5", **fields)
    assert str(caught.value) == words


@pytest.mark.parametrize("text", ["0", "1"])
def test_a_demand_may_ask_for_nothing_and_for_all(text: str) -> None:
    demand = a_demand("p", text, limit_micros=share(text))
    assert demand.request_micros == demand.limit_micros == share(text)


def test_a_negative_request_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="request: -1 millionths is negative"):
        Demand(uid="p", name="p", request_micros=-1, memory=Memory(bytes=0))


SHARES = (Share(name="a", count=2), Share(name="b", containers=("x",)))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"shares": (Share(), Share(name="b"))}, "shares: each share needs a name of its own"),
        ({"shares": (*SHARES, SHARES[0])}, "shares: each share needs a name of its own"),
        ({"request_micros": 1}, "shares: each share has amounts of its own, and so has the demand"),
        ({"count": 2}, "shares: each share has amounts of its own, and so has the demand"),
        ({"device_id": "A"}, "id: a demand of several shares cannot ask for one vGPU"),
    ],
)
def test_different_shares_exclude_the_short_form(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        Demand(**({"uid": "p", "name": "p", "shares": SHARES} | fields))
    assert str(caught.value) == words


@pytest.mark.parametrize("alone", ["0.4", "1"])
def test_the_limit_while_alone_is_at_least_the_limit(alone: str) -> None:
    fields: dict[str, Any] = {"limit_micros": share("0.5"), "limit_alone_micros": share(alone)}
    if alone == "1":
        assert a_demand("p", "0.5", **fields).limit_alone_micros == share("1")
        return
    with pytest.raises(InvalidValueError, match=r"limitAlone: 0.4 is not from the limit 0.5 to 1"):
        a_demand("p", "0.5", **fields)


def test_a_demand_has_one_share_for_each_gpu() -> None:
    demand = Demand(uid="p", name="p", shares=SHARES)
    assert [each.name for each in demand.per_gpu()] == ["a", "a", "b"]
    (only, again) = a_demand("p", "0.5", count=2).per_gpu()
    assert only == again
    assert (only.name, only.request_micros, only.count) == ("", 500_000, 2)


def test_a_demand_reduced_to_a_share_has_the_short_form() -> None:
    demand = Demand(uid="p", name="p", shares=SHARES, affinity="red", model="V100")
    first, second = demand.reduced()
    assert (first.count, first.shares, first.affinity, first.model) == (2, (), "red", "V100")
    assert second.count == 1
    short = a_demand("p", "0.5")
    assert short.reduced() == (short,)


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [((), (), True), ((), ("x",), True), (("x",), ("x", "y"), True), (("x",), ("y",), False)],
)
def test_shares_of_a_common_container_are_apart(
    one: tuple[str, ...], other: tuple[str, ...], *, apart: bool
) -> None:
    shares = Share(name="a", containers=one), Share(name="b", containers=other)
    assert are_apart(*shares) is apart
    assert are_apart(shares[0], shares[0])
    demand = Demand(uid="p", name="p", shares=shares)
    assert demand.different_gpus() == (2 if apart else 1)
