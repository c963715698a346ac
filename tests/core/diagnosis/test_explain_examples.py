"""Who would have to leave, by example: labels, full lists of holders, words."""

import pytest

from core.builders import GPU_MEMORY, a_demand, a_device, a_holder, a_node
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.explain import shortest_change
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.holder import MAX_HOLDERS
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy

LOCALITY = policy("locality")


@pytest.mark.parametrize(
    ("devices", "demand", "leave"),
    [
        pytest.param(
            [a_device("A", a_holder("red", "0.4", affinity="red"), a_holder("x", "0.6"))],
            a_demand("p", "0.4", affinity="red"),
            ("x",),
            id="who has the label stays",
        ),
        pytest.param(
            [
                a_device(
                    "A",
                    a_holder("g", "0.2", anti_affinity="g"),
                    *(a_holder(name, size) for name, size in (("x", "0.6"), ("y", "0.2"))),
                )
            ],
            a_demand("p", "0.5", anti_affinity="g"),
            ("g", "x"),
            id="who repels leaves and besides who is in the way",
        ),
        pytest.param(
            [a_device("A", *(a_holder(f"h{number}", "0.001") for number in range(MAX_HOLDERS)))],
            a_demand("p", "0.1"),
            ("h0",),
            id="one of a full list",
        ),
        pytest.param(
            [
                a_device(
                    "A",
                    a_holder("g", "0.001", anti_affinity="g"),
                    *(a_holder(f"h{number}", "0.001") for number in range(MAX_HOLDERS - 1)),
                )
            ],
            a_demand("p", "0.1", anti_affinity="g"),
            ("g",),
            id="who repels makes room in a full list",
        ),
        pytest.param(
            [
                a_device("A", a_holder("a", "0.9")),
                a_device("B", a_holder("b", "0.3")),
                a_device("C", a_holder("c", "0.4")),
            ],
            a_demand("p", "0.8", count=2),
            ("b", "c"),
            id="the smallest of several GPUs",
        ),
        pytest.param(
            [
                a_device(
                    "A",
                    a_holder("r", "0.2", affinity="red"),
                    a_holder("s", "0.5", affinity="red"),
                    a_holder("x", "0.3"),
                ),
                a_device("B", a_holder("t", "0.6", affinity="red"), a_holder("y", "0.4")),
            ],
            a_demand("p", "0.4", affinity="red", count=2),
            ("s", "y"),
            id="several GPUs with several of the label",
        ),
        pytest.param(
            [a_device("A", a_holder("r", "0.7", affinity="red"))],
            a_demand("p", "0.5", affinity="red"),
            ("r",),
            id="the only one of the label",
        ),
    ],
)
def test_the_fewest_leave(devices: list[Device], demand: Demand, leave: tuple[str, ...]) -> None:
    change = shortest_change(LOCALITY, Ledger([a_node()], devices), demand)
    assert change is not None
    assert change.leave == leave


def test_gpus_are_named_in_their_natural_order() -> None:
    devices = [a_device(name, a_holder("q", "1")) for name in ("10", "9")]
    change = shortest_change(LOCALITY, Ledger([a_node()], devices), a_demand("p", "1", count=2))
    assert str(change) == "it fits when q leaves n1/9, n1/10"


def test_the_gpu_to_be_repaired_is_the_first_in_natural_order() -> None:
    places = [("n10", "1"), ("n9", "10"), ("n9", "9")]
    devices = [a_device(f"{node}-{name}", node=node, healthy=False) for node, name in places]
    ledger = Ledger([a_node("n9"), a_node("n10")], devices)
    change = shortest_change(LOCALITY, ledger, a_demand("p"))
    assert str(change) == "it fits when n9/n9-9 is healthy again"


def test_one_more_free_gpu_is_of_a_kind_that_the_node_is_known_to_have() -> None:
    ledger = Ledger([a_node(free=1, model="V100")])
    change = shortest_change(LOCALITY, ledger, a_demand("p", count=2))
    assert str(change) == "it fits when n1 has one more free GPU of model V100 with 1000Mi"


def test_the_free_gpu_is_one_of_the_first_node_in_natural_order() -> None:
    kinds = frozenset([FreeGpu("", GPU_MEMORY)])
    ledger = Ledger([Node("n10", kinds=kinds), Node("n9", kinds=kinds)])
    change = shortest_change(LOCALITY, ledger, a_demand("p"))
    assert str(change) == "it fits when n9 has one more free GPU with 1000Mi"
