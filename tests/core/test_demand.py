"""Demands reject impossible values."""

from typing import Any

import pytest

from core.builders import a_demand, share
from kubeshare.core.demand import Demand, Memory, Share, groups_of
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
    ("containers", "groups", "different"),
    [
        ({"b": (), "a": ()}, {"a": "a", "b": "a"}, 2),
        ({"a": (), "b": ("x",)}, {"a": "a", "b": "a"}, 2),
        ({"b": ("x",), "a": ("x", "y")}, {"a": "a", "b": "a"}, 2),
        ({"a": ("x",), "b": ("y",)}, {"a": "a", "b": "b"}, 1),
        # Through another share, which comes first, last, or between them.
        ({"c": ("x", "y"), "b": ("x",), "a": ("y",)}, {"a": "a", "b": "a", "c": "a"}, 3),
        ({"b": ("x",), "a": ("y",), "c": ("x", "y")}, {"a": "a", "b": "a", "c": "a"}, 3),
        ({"b": ("x",), "a": ("y",), "c": ()}, {"a": "a", "b": "a", "c": "a"}, 3),
        ({"b": ("x",), "a": ("y",), "c": ("y", "z")}, {"a": "a", "b": "b", "c": "a"}, 2),
    ],
)
def test_shares_that_a_container_joins_are_one_group(
    containers: dict[str, tuple[str, ...]], groups: dict[str, str], different: int
) -> None:
    shares = tuple(Share(name=name, containers=used) for name, used in containers.items())
    assert groups_of(shares) == groups
    assert Demand(uid="p", name="p", shares=shares).different_gpus() == different


def test_the_gpus_of_a_count_are_different() -> None:
    shares = Share(name="a", count=3, containers=("x",)), Share(name="b", containers=("y",))
    assert Demand(uid="p", name="p", shares=shares).different_gpus() == 3
    assert groups_of(()) == {}
