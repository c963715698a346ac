"""On a node that spreads, a share of one GPU goes to the emptiest one that fits."""

from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.binpack.policy import decide
from kubeshare.core.units import GI, MICROS, Memory


def a_ledger(*left: int, spread: bool = True) -> Ledger:
    """A node whose GPUs have so many GiB left of 16."""
    ledger = Ledger()
    ledger.add_node(Node("n1", spread=spread))
    for index, free in enumerate(left):
        ledger.add_device(Device(id=f"g{index}", node="n1", index=index, memory_bytes=16 * GI))
        if free < 16:
            ledger.place(demand(f"used{index}", 16 - free), f"g{index}")
    return ledger


def demand(name: str, memory: int, *, count: int = 1, affinity: str = "") -> Demand:
    return Demand(
        uid=name,
        name=name,
        request_micros=memory * MICROS // 16,
        memory=Memory(bytes=memory * GI),
        count=count,
        affinity=affinity,
    )


def test_it_is_the_emptiest_and_of_equal_ones_the_first() -> None:
    assert decide(a_ledger(4, 16, 9), demand("p", 2)).devices == ("g1",)
    assert decide(a_ledger(9, 9, 4), demand("p", 2)).devices == ("g0",)
    assert decide(a_ledger(9, 9, 4, spread=False), demand("p", 2)).devices == ("g2",)


def test_the_reasons_name_it_for_all_that_fit() -> None:
    decision = decide(a_ledger(4, 16, 9, 1), demand("p", 2))
    assert decision.reasons.keys() == {"n1/0", "n1/2", "n1/3"}
    assert all(decision.reasons[f"n1/{index}"].startswith("fits, but n1/1") for index in (0, 2))
    assert "left" in decision.reasons["n1/3"]
    assert not decision.reasons["n1/3"].startswith("fits")


def test_a_label_of_affinity_binds_here_too() -> None:
    ledger = a_ledger(16, 16)
    ledger.place(demand("red", 8, affinity="red"), "g1")
    assert decide(ledger, demand("p", 2, affinity="red")).devices == ("g1",)


def test_several_gpus_and_what_does_not_fit_are_decided_as_elsewhere() -> None:
    for count, memory in ((2, 4), (1, 16)):
        asked = demand("p", memory, count=count)
        here, elsewhere = (a_ledger(4, 15, 9, spread=spread) for spread in (True, False))
        first, second = decide(here, asked), decide(elsewhere, asked)
        assert (first.outcome, first.devices) == (second.outcome, second.devices)
