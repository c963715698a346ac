"""A ledger that is replaced is freed at once, without a collection of garbage."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from core.builders import a_demand, a_device, a_holder, a_node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy
from kubeshare.core.policies.indexes import attach_indexes
from kubeshare.core.quota.index import QuotaIndex


@pytest.fixture(autouse=True)
def nothing_is_collected() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("name", ["locality", "binpack", "topology"])
def test_neither_a_ledger_nor_an_index_refers_to_itself(name: str) -> None:
    decide = policy(name)
    ledger = Ledger([a_node(free=1)], [a_device("A", a_holder("q")), a_device("B", index=1)])
    attach_indexes(decide, ledger)
    ledger.index(QuotaIndex)
    decide(ledger, a_demand("p", "0.5"))
    indexes = ledger._tables.indexes.values()
    freed: list[weakref.ref[Any]] = [weakref.ref(each) for each in (ledger, *indexes)]
    assert len(freed) > 3
    del ledger, indexes
    assert not [one() for one in freed if one() is not None]
