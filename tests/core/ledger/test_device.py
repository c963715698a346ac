"""Demands check themselves; devices derive what is left and their labels."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.builders import a_demand, a_device, a_holder, share
from kubeshare.core.demand import Demand, Memory
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.natural_sort import natural
from kubeshare.core.units import MI


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


def test_an_idle_device_has_everything_left_and_no_labels() -> None:
    device = a_device("A")
    assert device.idle
    assert (device.compute_left, device.memory_left) == (1_000_000, 1000 * MI)
    assert device.affinities | device.anti_affinities | device.exclusions == frozenset()


def test_what_is_left_and_the_labels_follow_from_the_holders() -> None:
    device = a_device(
        "A",
        a_holder("p", "0.3", memory=100, affinity="red", exclusion="e"),
        a_holder("q", "0", memory=0, anti_affinity="red"),
    )
    assert not device.idle
    assert device.path == "n1/A"
    assert (device.compute_left, device.memory_left) == (700_000, 900 * MI)
    assert device.affinities == device.anti_affinities == {"red"}
    assert device.exclusions == {"e", ""}


def test_ids_sort_naturally() -> None:
    ids = ["n10", "n2", "b", "10", "2", "02", "n", "a1b", "a01b", ""]
    expected = ["", "02", "2", "10", "a01b", "a1b", "b", "n", "n2", "n10"]
    assert sorted(ids, key=natural) == expected


def by_parts(text: str) -> list[tuple[bool, int, str]]:
    """The same order, said part by part."""
    parts = re.findall("[0-9]+|[^0-9]+", text)
    return [
        (part[0] not in "0123456789", int(part) if part[0] in "0123456789" else 0, part)
        for part in parts
    ]


@settings(deadline=None)
@given(*[st.text(st.sampled_from("019aZ-\0\1\2\x7fé²٣"), max_size=6)] * 2)
def test_ids_sort_as_their_parts_do(one: str, other: str) -> None:
    assert (natural(one) < natural(other)) == (by_parts(one) < by_parts(other))
    assert (natural(one) == natural(other)) == (one == other)


@settings(deadline=None)
@given(st.integers(0, 300), st.integers(0, 300))
def test_long_numbers_sort_by_their_length(one: int, other: int) -> None:
    shorter, longer = sorted((one, other))
    assert natural("x" + "9" * shorter) < natural("x1" + "0" * longer)


def test_very_long_numbers_sort_too() -> None:
    assert natural("x" + "9" * 9999) < natural("x1" + "0" * 9999)


def test_numbers_sort_by_their_length_however_long() -> None:
    texts = ["1" + "0" * zeros for zeros in range(400)]
    listed = texts[::-1]
    assert sorted(listed, key=natural) == texts


def test_what_keeps_numbers_apart_sorts_by_itself_too() -> None:
    texts = ["\0", "\0\0", "\1", "\1\0", "\1\2", "\2", " ", "a"]
    listed = texts[::-1]
    assert sorted(listed, key=natural) == texts
