"""Every policy opens a new vGPU on a node with a free GPU, and says why not on others."""

from typing import Any

import msgspec
import pytest

from core.builders import GPU_MEMORY, a_demand, a_device, a_holder
from kubeshare.core.decision import commit
from kubeshare.core.demand import Demand
from kubeshare.core.errors import LedgerError
from kubeshare.core.ledger.device import Device, FreeGpu, Node, SelectableGpu
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import BUILT_IN, opening, policy
from kubeshare.core.topology import read_notation

V100, SMALL = FreeGpu("V100", GPU_MEMORY), FreeGpu("V100", GPU_MEMORY // 2)
A100 = FreeGpu("A100", 2 * GPU_MEMORY)
FOUR = read_notation("SYS(PIX(0,1),PIX(2,3))", "four")


def selectable(name: str, *kinds: FreeGpu, links: bool = False) -> Node:
    """A node whose free GPUs 0, 1, … a policy can choose."""
    gpus = tuple(
        SelectableGpu(uuid=f"GPU-{name}-{row}", row=row, kind=kind)
        for row, kind in enumerate(kinds)
    )
    return Node(name, kinds, links=FOUR if links else (), selectable=gpus)


def whole(name: str, count: int = 1) -> Demand:
    return a_demand(name, "1", count=count)


def uuids(ledger: Ledger, name: str, demand: Demand) -> list[str]:
    return [device.uuid for device in policy(name)(ledger, demand).new]


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_cluster_with_one_free_gpu_and_no_vgpu_gets_one(name: str) -> None:
    ledger = Ledger([Node("n1", (V100,))])
    demand = a_demand("p", memory=300)
    decision = policy(name)(ledger, demand)
    assert (decision.outcome, decision.node, decision.created) == ("bound", "n1", True)
    assert decision.devices[0].startswith("vgpu-")
    commit(ledger, demand, decision)
    assert ledger.nodes["n1"].free == ()
    again = policy(name)(ledger, a_demand("q", memory=300))
    assert (again.devices, again.created) == (decision.devices, False)


@pytest.mark.parametrize("name", BUILT_IN)
def test_several_new_vgpus_are_opened_on_one_node(name: str) -> None:
    ledger = Ledger([Node("n1", (V100,)), Node("n2", (V100, V100, A100))])
    demand = whole("p", 2)
    decision = policy(name)(ledger, demand)
    assert decision.node == "n2"
    assert [device.model for device in decision.new] == ["V100", "V100"]
    commit(ledger, demand, decision)
    assert ledger.nodes["n2"].free == (A100,)


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_new_one_is_opened_beside_one_that_fits(name: str) -> None:
    ledger = Ledger([Node("n1", (V100,))], [a_device("A", model="V100")])
    decision = policy(name)(ledger, whole("p", 2))
    assert decision.devices[0] == "A"
    assert len(decision.new) == 1


@pytest.mark.parametrize("name", BUILT_IN)
def test_nothing_is_opened_while_a_vgpu_fits(name: str) -> None:
    ledger = Ledger([Node("n1", (SMALL,)), Node("n2")], [a_device("A", node="n2", model="V100")])
    assert policy(name)(ledger, a_demand("p", memory=100)).devices == ("A",)


NOTHING_FITS: dict[str, tuple[Node, dict[str, Any], str]] = {
    "no GPU is free": (Node("n1", total=2), {}, "no free GPU"),
    "no GPU of the model is free": (
        Node("n1", (V100,), kinds=frozenset([A100])),
        {"model": "A100"},
        "no free GPU of model A100, only of V100",
    ),
    "no free GPU is large enough": (
        Node("n1", (SMALL,), kinds=frozenset([V100])),
        {"memory": 600},
        "memory 500Mi on its largest free GPU, 600Mi asked",
    ),
}


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize(("node", "fields", "words"), NOTHING_FITS.values(), ids=NOTHING_FITS)
def test_a_pending_demand_is_told_why_nothing_is_opened(
    name: str, node: Node, fields: dict[str, Any], words: str
) -> None:
    decision = policy(name)(Ledger([node]), a_demand("p", **fields))
    assert decision.outcome == "pending"
    assert decision.reasons == {"n1": words}


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_node_with_too_few_free_gpus_says_how_many(name: str) -> None:
    node = Node("n1", (V100,), kinds=frozenset([V100]), total=2)
    decision = policy(name)(Ledger([node]), whole("p", 2))
    assert decision.reasons == {"n1": "1 suitable GPUs of one model, 2 asked"}


ELSEWHERE: list[tuple[str, Ledger, Demand, str, dict[str, str]]] = [
    (
        "binpack",
        Ledger([Node("n1", (V100,)), Node("n10", (SMALL,)), Node("n2", (SMALL, V100))]),
        a_demand("p", memory=1),
        "n2",
        {
            "n1": "its smallest suitable free GPU has 1000Mi, that of n2 500Mi",
            "n10": "a free GPU fits, but n2 has one as small and comes first by name",
        },
    ),
    (
        "binpack",
        Ledger([Node("n1", (V100, V100)), Node("n2", (SMALL, SMALL))]),
        a_demand("p", memory=1, count=2),
        "n2",
        {"n1": "those on n2 fit closer or come first"},
    ),
    (
        "topology",
        Ledger([Node("n1", (V100, V100)), Node("n2", (V100,))]),
        a_demand("p", memory=1),
        "n2",
        {"n1": "n2/vgpu-36992f5588 opens fewer vGPUs, is smaller, or is on a node with less left"},
    ),
    (
        "topology",
        Ledger([selectable("n1", V100), selectable("n2", V100, V100, V100, V100, links=True)]),
        whole("p"),
        "n1",
        {"n2": "access cost is PIX, of n1/vgpu-36992f5588 X"},
    ),
]


@pytest.mark.parametrize(("name", "ledger", "demand", "node", "expected"), ELSEWHERE)
def test_the_choice_of_the_node_follows_the_policy(
    name: str, ledger: Ledger, demand: Demand, node: str, expected: dict[str, str]
) -> None:
    decision = policy(name)(ledger, demand)
    assert decision.node == node
    assert dict(decision.reasons) == expected


@pytest.mark.parametrize("name", ["locality", "binpack"])
def test_a_new_vgpu_takes_the_first_gpu_of_the_smallest_kind_that_can_be_selected(
    name: str,
) -> None:
    ledger = Ledger([selectable("n1", V100, SMALL, SMALL)])
    demand = a_demand("p", memory=1)
    decision = policy(name)(ledger, demand)
    assert [(device.uuid, device.row) for device in decision.new] == [("GPU-n1-1", 1)]
    commit(ledger, demand, decision)
    assert [gpu.uuid for gpu in ledger.nodes["n1"].selectable] == ["GPU-n1-0", "GPU-n1-2"]
    assert uuids(ledger, name, a_demand("q", memory=400, count=2)) == ["GPU-n1-2"]
    assert uuids(ledger, name, a_demand("q", memory=600)) == ["GPU-n1-0"]


def test_topology_selects_the_closest_free_gpus() -> None:
    node = selectable("n1", V100, V100, V100, V100, links=True)
    ledger = Ledger([node])
    first = whole("p")
    commit(ledger, first, policy("topology")(ledger, first))
    assert [device.uuid for device in ledger.devices.values()] == ["GPU-n1-0"]
    assert uuids(ledger, "topology", whole("q", 2)) == ["GPU-n1-2", "GPU-n1-3"]
    # The sibling of a GPU in use goes first.
    assert uuids(ledger, "topology", whole("q")) == ["GPU-n1-1"]


def test_topology_joins_an_idle_vgpu_with_the_free_gpu_beside_it() -> None:
    node = selectable("n1", V100, V100, V100, V100, links=True)
    node = msgspec.structs.replace(
        node, free=(V100, V100), selectable=(node.selectable[1], node.selectable[3])
    )
    idle = Device(id="A", node="n1", row=2, model="V100", memory_bytes=GPU_MEMORY)
    busy = Device(
        id="B",
        node="n1",
        row=0,
        model="V100",
        memory_bytes=GPU_MEMORY,
        holders=(a_holder("b", "1"),),
    )
    decision = policy("topology")(Ledger([node], [idle, busy]), whole("p", 2))
    assert decision.devices[0] == "A"
    assert [device.uuid for device in decision.new] == ["GPU-n1-3"]


def test_topology_opens_no_gpu_twice_where_only_some_can_be_selected() -> None:
    node = selectable("n1", V100)
    ledger = Ledger([msgspec.structs.replace(node, free=(V100, V100))])
    assert uuids(ledger, "topology", whole("p", 2)) == ["GPU-n1-0", ""]


def test_topology_prefers_gpus_that_it_can_choose() -> None:
    ledger = Ledger([Node("n1", (V100,)), selectable("n2", V100, V100)])
    decision = policy("topology")(ledger, whole("p"))
    assert decision.node == "n2"
    why = "the device plugin chooses its free GPUs, and n2/vgpu-36992f5588 could be chosen"
    assert decision.reasons == {"n1": why}


@pytest.mark.parametrize("name", ["locality", "binpack"])
def test_an_unknown_id_is_the_id_of_a_new_vgpu(name: str) -> None:
    ledger = Ledger([Node("n1", (V100, V100))], [a_device("A")])
    decision = policy(name)(ledger, a_demand("p", device_id="mine"))
    assert (decision.devices, decision.created) == (("mine",), True)
    decision = policy(name)(ledger, a_demand("p", device_id="vgpu-mine"))
    assert (decision.outcome, decision.field) == ("rejected", "id")


@pytest.mark.parametrize("name", BUILT_IN)
def test_of_different_gpus_the_plugin_may_give_any_unless_a_model_is_asked_for(name: str) -> None:
    ledger = Ledger([Node("n1", (V100, A100))])
    demand = a_demand("p", memory=1)
    decision = policy(name)(ledger, demand)
    assert [device.model for device in decision.new] == [""]
    commit(ledger, demand, decision)
    assert ledger.nodes["n1"].free == (A100,)
    wanted = policy(name)(ledger, a_demand("q", model="A100"))
    assert [device.model for device in wanted.new] == ["A100"]


def test_a_gpu_that_is_not_free_is_not_opened() -> None:
    ledger = Ledger([selectable("n1", V100)])
    device = opening.new_device("A", "n1", V100, ledger.nodes["n1"].selectable)
    ledger.place(a_demand("p"), "A", new=[device])
    with pytest.raises(LedgerError, match="GPU GPU-n1-0 of node n1 is not free"):
        ledger.place(a_demand("q"), "B", new=[msgspec.structs.replace(device, id="B")])
    assert list(ledger.devices) == ["A"]


def test_of_fewer_free_gpus_fewer_can_be_selected() -> None:
    ledger = Ledger([selectable("n1", V100, SMALL, V100)])
    ledger.set_free("n1", (V100,))
    assert [gpu.uuid for gpu in ledger.nodes["n1"].selectable] == ["GPU-n1-0"]
    ledger.set_free("n1", (V100, V100))
    assert [gpu.uuid for gpu in ledger.nodes["n1"].selectable] == ["GPU-n1-0"]


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_opened_a_vgpu_undoes_it(name: str) -> None:
    ledger = Ledger([selectable("n1", V100, V100)])
    before = Ledger(ledger.nodes.values())
    with ledger.what_if():
        for number in range(2):
            demand = whole(f"p{number}")
            commit(ledger, demand, policy(name)(ledger, demand))
    assert ledger == before
    assert uuids(ledger, name, whole("p0")) == ["GPU-n1-0"]
