"""The core's values: they never change, and what is left out of them means nothing special."""

import pytest
from msgspec import Struct

from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand, Memory, Share
from kubeshare.core.diagnosis.explain import Change
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.holder import Holder
from kubeshare.core.ledger.totals import Totals
from kubeshare.core.policies.rules import Choice
from kubeshare.core.quota.rows import Quota
from kubeshare.core.token import Close, Extend, Open, Shut, Watch
from kubeshare.core.token.member import MemberView
from kubeshare.core.token.share_spec import ShareSpec
from kubeshare.core.units import MICROS

VALUES = (
    *(
        Change,
        Choice,
        Decision,
        Demand,
        Device,
        FreeGpu,
        Holder,
        Memory,
        Node,
        Quota,
        Share,
        Totals,
    ),
    *(ShareSpec, Close, Extend, MemberView, Open, Shut, Watch),
)


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
def test_a_value_never_changes(kind: type[Struct]) -> None:
    assert kind.__struct_config__.frozen


@pytest.mark.parametrize("kind", [FreeGpu, Holder, Node, Totals], ids=lambda kind: kind.__name__)
def test_the_garbage_collector_passes_over_what_there_is_by_the_thousand(
    kind: type[Struct],
) -> None:
    assert not kind.__struct_config__.gc


NOTHING = Memory(bytes=0)


@pytest.mark.parametrize(
    ("left_out", "spelt_out"),
    [
        (
            Demand(uid="u", name="n", request_micros=0, memory=NOTHING),
            Demand(
                uid="u",
                name="n",
                namespace="",
                request_micros=0,
                limit_micros=MICROS,
                limit_alone_micros=None,
                memory=NOTHING,
                affinity="",
                anti_affinity="",
                exclusion="",
                device_id="",
                count=1,
                shares=(),
                model="",
                nodes=None,
                attempt=0,
                group="",
                proportional=False,
            ),
        ),
        (
            Holder(demand="u", name="n", request_micros=0, memory_bytes=0),
            Holder(
                demand="u",
                name="n",
                share="",
                request_micros=0,
                limit_micros=MICROS,
                limit_alone_micros=None,
                memory_bytes=0,
                affinity="",
                anti_affinity="",
                exclusion="",
                namespace="",
                group="",
            ),
        ),
        (
            Share(),
            Share(
                name="",
                request_micros=0,
                limit_micros=MICROS,
                limit_alone_micros=None,
                memory=NOTHING,
                count=1,
                containers=(),
                proportional=False,
            ),
        ),
        (
            Device(id="A", node="n1", memory_bytes=1),
            Device(
                id="A",
                node="n1",
                index=None,
                row=None,
                model="",
                memory_bytes=1,
                holders=(),
                healthy=True,
                fenced=False,
            ),
        ),
        (Node("n1"), Node("n1", free=(), kinds=frozenset(), total=0, pool="", links=())),
        (
            Decision(outcome="pending", reasons={}),
            Decision(
                outcome="pending",
                node=None,
                devices=(),
                shares=(),
                new=(),
                reasons={},
                field=None,
            ),
        ),
        (Quota(namespace="a"), Quota(namespace="a", pools=frozenset(), model="", micros=0)),
        (Change(words=()), Change(leave=(), words=())),
        (Totals(), Totals(0, 0, frozenset(), frozenset(), frozenset())),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_left_out_is_none_of_it(left_out: Struct, spelt_out: Struct) -> None:
    assert left_out == spelt_out
    assert repr(left_out) == repr(spelt_out)


def test_a_gpu_is_numbered_by_its_row_and_named_by_its_index() -> None:
    device = Device(id="A", node="n1", index=3, row=5, memory_bytes=1)
    assert (device.number, device.name, device.path) == (5, "3", "n1/3")
    assert Device(id="A", node="n1", index=3, memory_bytes=1).number == 3
    assert Device(id="A", node="n1", memory_bytes=1).name == "A"
