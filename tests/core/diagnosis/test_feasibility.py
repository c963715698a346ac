"""The most GPUs of one model that any node may ever have for a demand."""

import pytest

from core.builders import a_demand, a_device
from kubeshare.core.demand import NOTHING, Demand
from kubeshare.core.diagnosis import feasibility
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.index.gpu_kinds import GpuKinds
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.units import MI

SMALL, LARGE = FreeGpu("V100", 500 * MI), FreeGpu("V100", 1000 * MI)
OTHER = FreeGpu("A100", 1000 * MI)


def gpus(*models: str, node: str = "n1") -> list[Device]:
    return [
        a_device(f"{node}/{number}", node=node, model=model) for number, model in enumerate(models)
    ]


@pytest.mark.parametrize(
    ("node", "devices", "demand", "most"),
    [
        pytest.param(Node("n1"), [], a_demand("p"), 0, id="an empty node"),
        pytest.param(
            Node("n1", free=(LARGE,)), gpus("V100", "V100"), a_demand("p"), 3, id="all are known"
        ),
        pytest.param(
            Node("n1", free=(LARGE, OTHER)),
            gpus("V100", "V100"),
            a_demand("p", model="V100"),
            3,
            id="only of the model",
        ),
        pytest.param(
            Node("n1", free=(LARGE, OTHER)), gpus("A100"), a_demand("p"), 2, id="of one model only"
        ),
        pytest.param(
            Node("n1", free=(SMALL, LARGE)),
            [],
            a_demand("p", memory=501),
            1,
            id="only those that are large enough",
        ),
        pytest.param(
            Node("n1", free=(LARGE,), kinds=frozenset([LARGE]), total=6),
            gpus("V100", "V100"),
            a_demand("p"),
            6,
            id="the others of a node may come back",
        ),
        pytest.param(
            Node("n1", free=(SMALL, SMALL), kinds=frozenset([SMALL, LARGE]), total=6),
            gpus("V100", "V100"),
            a_demand("p", memory=501),
            4,
            id="whatever others are known",
        ),
        pytest.param(
            Node("n1", kinds=frozenset([LARGE]), total=0), [], a_demand("p"), 1, id="a kind is one"
        ),
        pytest.param(
            Node("n1", free=(LARGE,), total=3),
            [],
            a_demand("p"),
            1,
            id="others of no known kind do not count",
        ),
    ],
)
def test_the_most_a_node_may_have(
    node: Node, devices: list[Device], demand: Demand, most: int
) -> None:
    ledger = Ledger([node], devices)
    assert ledger.index(GpuKinds).most_on_a_node(demand.model, demand.memory) == most


def test_the_best_node_counts() -> None:
    devices = gpus("V100") + gpus("V100", "V100", node="n2")
    ledger = Ledger([Node("n1"), Node("n2")], devices)
    assert ledger.index(GpuKinds).most_on_a_node("", NOTHING) == 2
    assert feasibility.infeasible(ledger, a_demand("p", count=2)) is None
    assert feasibility.infeasible(ledger, a_demand("p", count=3)) == (
        "count",
        "3 GPUs asked, and no node has more than 2 that do",
    )


def test_a_cluster_that_is_not_known_yet_says_nothing_about_ever() -> None:
    assert (
        feasibility.infeasible(Ledger([Node("n1")]), a_demand("p", count=9, model="V100")) is None
    )
