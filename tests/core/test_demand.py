"""Demands reject impossible values."""

from typing import Any

import pytest

from core.builders import a_demand, share
from kubeshare.core.demand import Demand, Memory
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
