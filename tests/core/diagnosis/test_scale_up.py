"""What an autoscaler could help with, and what it could not."""

from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.scale_up import new_node_helps
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.holder import Holder
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy
from kubeshare.core.units import MICROS, Memory

GIB = 1 << 30
LOCALITY = policy("locality")
KIND = FreeGpu("V100", 16 * GIB)


def full(*labels: str) -> Ledger:
    """One node whose only GPU is fully used."""
    holder = Holder(
        demand="x", name="x", request_micros=MICROS, memory_bytes=GIB, affinity="".join(labels)
    )
    device = Device(id="a", node="n", model="V100", memory_bytes=16 * GIB, holders=(holder,))
    return Ledger([Node("n", kinds=frozenset([KIND]), total=1)], [device])


def demand(**more: object) -> Demand:
    fields = {"uid": "d", "name": "d", "request_micros": MICROS // 2, "memory": Memory(GIB)} | more
    return Demand(**fields)  # type: ignore[arg-type]


def test_where_all_gpus_are_full_a_new_node_helps() -> None:
    assert new_node_helps(LOCALITY, full(), demand())
    assert new_node_helps(LOCALITY, full(), demand(count=2))
    assert new_node_helps(LOCALITY, full(), demand(nodes=frozenset(["n"])))


def test_from_no_node_at_all_it_helps_too_however_large_its_gpus_have_to_be() -> None:
    assert new_node_helps(LOCALITY, Ledger(), demand(model="A100", memory=Memory(80 * GIB)))


def test_a_new_node_has_the_largest_gpus_of_the_model_that_is_asked_for() -> None:
    kinds = frozenset([KIND, FreeGpu("V100", 32 * GIB), FreeGpu("A100", 80 * GIB)])
    ledger = full()
    ledger.add_node(Node("m", kinds=kinds))
    helped = {
        (model, size): new_node_helps(
            LOCALITY, ledger, demand(model=model, memory=Memory(size * GIB))
        )
        for model in ("", "V100")
        for size in (32, 80, 81)
    }
    assert helped == {
        ("", 32): True,
        ("", 80): True,
        ("", 81): False,
        ("V100", 32): True,
        ("V100", 80): False,
        ("V100", 81): False,
    }


def test_room_on_nodes_to_which_it_may_not_go_is_no_help_and_a_new_node_is() -> None:
    ledger = full()
    ledger.add_node(Node("m", free=(KIND,), kinds=frozenset([KIND]), total=1))
    assert new_node_helps(LOCALITY, ledger, demand(nodes=frozenset(["n"])))


def test_who_has_to_be_beside_somebody_is_not_helped() -> None:
    assert not new_node_helps(LOCALITY, full("red"), demand(affinity="red"))


def test_who_could_go_somewhere_now_needs_none() -> None:
    ledger = full()
    ledger.add_node(Node("m", free=(KIND,), kinds=frozenset([KIND]), total=1))
    assert not new_node_helps(LOCALITY, ledger, demand())


def test_who_asks_for_more_memory_than_any_known_gpu_has_is_not_helped() -> None:
    assert not new_node_helps(LOCALITY, full(), demand(memory=Memory(17 * GIB)))


def test_the_ledger_is_as_it_was() -> None:
    ledger = full()
    new_node_helps(LOCALITY, ledger, demand())
    assert ledger == full()
