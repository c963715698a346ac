"""Whoever is not woken by a change would have been refused again."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeshare.core.demand import Demand, Memory
from kubeshare.core.errors import LedgerError
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.growth import device_grew, node_grew
from kubeshare.core.ledger.holder import Holder
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy

GPU = FreeGpu("V100", 16)
OTHER = FreeGpu("A100", 16)
EMPTY = Device(id="A", node="n1", model="V100", memory_bytes=16)
LABELS = st.sampled_from(["", "", "red", "blue"])
AMOUNTS = st.sampled_from([0, 300_000, 500_000, 1_000_000])


def asks(uid: st.SearchStrategy[str], **more: Any) -> st.SearchStrategy[Demand]:
    return uid.flatmap(
        lambda name: st.builds(
            Demand,
            uid=st.just(name),
            name=st.just(name),
            request_micros=AMOUNTS,
            memory=st.sampled_from([0, 8, 16]).map(lambda size: Memory(bytes=size)),
            affinity=LABELS,
            anti_affinity=LABELS,
            exclusion=LABELS,
            **more,
        )
    )


HOLDERS = st.lists(
    asks(st.sampled_from("abc")).map(lambda demand: Holder.of(demand, 16)),
    max_size=2,
    unique_by=lambda holder: holder.demand,
).map(tuple)


def devices(name: str) -> st.SearchStrategy[Device | None]:
    return st.one_of(
        st.none(),
        *[
            st.builds(
                Device,
                id=st.just(name),
                node=st.just("n1"),
                model=st.sampled_from(["V100", "V100", "A100"]),
                memory_bytes=st.just(16),
                holders=HOLDERS.map(
                    lambda held: tuple(
                        msgspec.structs.replace(each, demand=each.demand + name) for each in held
                    )
                ),
                healthy=st.sampled_from([True, True, False]),
                fenced=st.sampled_from([False, False, True]),
            )
        ]
        * 3,
    )


NODES = st.one_of(
    st.none(),
    *[
        st.builds(
            Node,
            st.just("n1"),
            st.lists(st.sampled_from([GPU, OTHER]), max_size=2).map(tuple),
            st.just(frozenset([GPU, OTHER])),
        )
    ]
    * 4,
)
ENTRIES = st.fixed_dictionaries({"n1": NODES, "A": devices("A"), "B": devices("B")})
DEMANDS = asks(
    st.just("waits"),
    device_id=st.sampled_from(["", "", "", "A"]),
    count=st.sampled_from([1, 1, 1, 2]),
    model=st.sampled_from(["", "", "V100"]),
)


@settings(max_examples=200, deadline=None)
@given(ENTRIES, ENTRIES, st.sampled_from(["n1", "A", "B"]), DEMANDS)
@pytest.mark.parametrize("name", ["locality", "binpack", "topology"])
def test_a_change_that_is_no_growth_lets_nobody_in(
    name: str, before: dict[str, Any], drawn: dict[str, Any], changed: str, demand: Demand
) -> None:
    after = before | {changed: drawn[changed]}
    if _bound(name, before, demand) is False and _bound(name, after, demand):
        grew = node_grew if changed == "n1" else device_grew
        assert grew(before[changed], after[changed])


def _bound(name: str, entries: dict[str, Any], demand: Demand) -> bool | None:
    """Whether a demand fits; None for a cluster that no ledger can hold."""
    try:
        found = Ledger(
            [entry for entry in entries.values() if isinstance(entry, Node)],
            [entry for entry in entries.values() if isinstance(entry, Device)],
        )
    except LedgerError:
        return None
    return policy(name)(found, demand).outcome == "bound"


def test_what_only_takes_room_is_no_growth() -> None:
    demand = Demand(uid="a", name="a", request_micros=100_000, memory=Memory(bytes=1))
    held = EMPTY.with_holder(Holder.of(demand, 16))
    assert not device_grew(EMPTY, held), "a holder came"
    assert device_grew(held, EMPTY), "a holder left"
    assert not device_grew(held, msgspec.structs.replace(held, fenced=True))
    assert not device_grew(held, msgspec.structs.replace(held, healthy=False))
    assert not device_grew(held, held)
    assert not node_grew(Node("n1", (GPU, GPU)), Node("n1", (GPU,)))
    assert node_grew(Node("n1", (GPU,)), Node("n1", (GPU, GPU)))
    assert not node_grew(None, None)


def test_a_label_that_comes_to_a_gpu_opens_it_for_this_label() -> None:
    demand = Demand(uid="a", name="a", request_micros=100_000, memory=Memory(bytes=1))
    red = msgspec.structs.replace(demand, uid="b", affinity="red")
    before = EMPTY.with_holder(Holder.of(demand, 16))
    after = before.with_holder(Holder.of(red, 16))
    third = msgspec.structs.replace(red, uid="c")
    decide = policy("locality")
    assert decide(Ledger([Node("n1")], [before]), third).outcome == "pending"
    assert decide(Ledger([Node("n1")], [after]), third).outcome == "bound"
    assert device_grew(before, after)


def test_a_holder_under_an_exclusion_label_may_open_its_gpu_for_its_mates() -> None:
    """The GPU is charged to the namespace once: the next one costs no quota."""
    demand = Demand(uid="a", name="a", request_micros=100_000, memory=Memory(bytes=1))
    mate = msgspec.structs.replace(demand, uid="b", exclusion="x")
    before = EMPTY.with_holder(Holder.of(msgspec.structs.replace(demand, exclusion="x"), 16))
    assert device_grew(before, before.with_holder(Holder.of(mate, 16)))
