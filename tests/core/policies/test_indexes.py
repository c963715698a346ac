"""Whatever happens to a ledger, its indexes answer as those that are made anew."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from core.builders import GPU_MEMORY, a_demand, a_device, a_holder, a_node
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand, Share
from kubeshare.core.ledger.device import FreeGpu, Node
from kubeshare.core.ledger.holder import MAX_HOLDERS
from kubeshare.core.ledger.index.gpu_kinds import GpuKinds
from kubeshare.core.ledger.index.node_ranking import NodeRankings
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.ledger.tables import Index
from kubeshare.core.policies import policy
from kubeshare.core.policies.binpack.index import BinpackIndex
from kubeshare.core.policies.indexes import attach_indexes
from kubeshare.core.policies.locality.index import LocalityIndex
from kubeshare.core.policies.scoring import scorer
from kubeshare.core.policies.topology.index import TopologyIndex
from kubeshare.core.quota.charge import ExclusiveDevices
from kubeshare.core.quota.index import QuotaIndex
from kubeshare.core.quota.namespace import HeldIndex

V100, A100, LARGE = (
    FreeGpu("V100", GPU_MEMORY),
    FreeGpu("A100", GPU_MEMORY),
    FreeGpu("V100", 4 * GPU_MEMORY),
)
MANY_NODES = frozenset(f"n{number}" for number in range(2, 20))

FOLLOWING_MEMORY: list[dict[str, Any]] = [
    {},
    {"nodes": frozenset(["n1"])},
    {"nodes": MANY_NODES},
    {"model": "A100"},
]
ASKING_COMPUTE: list[dict[str, Any]] = [
    {"memory": 10},
    {"memory": 3000},
    {"affinity": "red"},
    {"model": "A100"},
    {"nodes": MANY_NODES},
    {"nodes": frozenset(["n1", "n2"])},
    {"count": 2},
]
DEMANDS = [
    a_demand("p", "0", share_of_memory=memory, proportional=True, **fields)
    for fields in FOLLOWING_MEMORY
    for memory in ("0.1", "0.9")
] + [a_demand("p", request, **fields) for fields in ASKING_COMPUTE for request in ("0", "0.5", "1")]
SHARES = (
    Share(name="large", request_micros=700_000, containers=("main",)),
    Share(name="small", request_micros=200_000, count=2, containers=("sidecar",)),
)
DEMANDS += [Demand(uid="p", name="p", shares=SHARES, nodes=nodes) for nodes in (None, MANY_NODES)]


def a_ledger() -> Ledger:
    """n1 has GPUs A (in use), B, C; n2 has D and E (in use); n3 has one free GPU."""
    return Ledger(
        [Node("n1"), Node("n2"), Node("n3", (V100,))],
        [
            a_device("A", a_holder("a", "0.3", memory=300, affinity="red"), model="V100"),
            a_device("B", model="V100"),
            a_device("C", model="A100"),
            a_device("D", model="V100", node="n2"),
            a_device("E", a_holder("e", "0.6", memory=100), model="V100", node="n2"),
        ],
    )


def changed(ledger: Ledger, device_id: str, **fields: Any) -> None:
    ledger.set_device(msgspec.structs.replace(ledger.devices[device_id], **fields))


CHANGES: dict[str, tuple[Callable[[Ledger], object], ...]] = {
    "a GPU is of another model": (lambda ledger: changed(ledger, "B", model="A100"),),
    "a GPU is larger": (lambda ledger: changed(ledger, "B", memory_bytes=4 * GPU_MEMORY),),
    "a GPU is elsewhere": (lambda ledger: changed(ledger, "B", node="n2"),),
    "a GPU is elsewhere and nobody's": (
        lambda ledger: changed(ledger, "A", node="n2", holders=(), memory_bytes=2 * GPU_MEMORY),
    ),
    "a GPU is elsewhere and has a label": (
        lambda ledger: changed(
            ledger, "B", node="n2", holders=(a_holder("b", "0.2", affinity="red"),)
        ),
    ),
    "a label goes": (lambda ledger: ledger.release("a"),),
    "a GPU fails": (lambda ledger: ledger.mark("D", healthy=False),),
    "a failed GPU is fenced and then whole": (
        lambda ledger: ledger.mark("A", healthy=False),
        lambda ledger: ledger.mark("A", fenced=True),
        lambda ledger: ledger.release("a"),
        lambda ledger: ledger.mark("A", healthy=True, fenced=False),
    ),
    "a fenced GPU loses its holder": (
        lambda ledger: ledger.mark("E", fenced=True),
        lambda ledger: ledger.release("e"),
    ),
    "a GPU goes": (lambda ledger: ledger.remove_device("C"),),
    "all GPUs of a node go": (
        lambda ledger: ledger.remove_device("D"),
        lambda ledger: ledger.release("e"),
        lambda ledger: ledger.remove_device("E"),
    ),
    "a GPU is full of holders": (
        lambda ledger: changed(
            ledger, "B", holders=tuple(a_holder(f"b{number}", "0") for number in range(MAX_HOLDERS))
        ),
    ),
    "a GPU is nearly full of holders": (
        lambda ledger: changed(
            ledger,
            "B",
            holders=tuple(a_holder(f"b{number}", "0") for number in range(MAX_HOLDERS - 1)),
        ),
        lambda ledger: ledger.place(a_demand("last", "0"), "B"),
        lambda ledger: ledger.place(a_demand("first", "0.1"), "D"),
    ),
    "a node goes": (lambda ledger: ledger.remove_node("n1"),),
    "a node goes and comes": (
        lambda ledger: ledger.remove_node("n2"),
        lambda ledger: ledger.mark("D", healthy=False),
        lambda ledger: ledger.add_node(Node("n2")),
    ),
    "a node comes": (lambda ledger: ledger.add_node(Node("n4", (LARGE, A100))),),
    "a node is known to have more": (
        lambda ledger: ledger.set_node(
            Node("n3", (V100,), kinds=frozenset([V100, LARGE]), total=3)
        ),
    ),
    "a node is known to have less": (lambda ledger: ledger.set_node(Node("n3")),),
}


@pytest.mark.parametrize("name", ["locality", "binpack", "topology"])
@pytest.mark.parametrize("steps", CHANGES.values(), ids=CHANGES)
def test_what_has_changed_is_answered_as_if_it_had_always_been_so(
    name: str, steps: tuple[Callable[[Ledger], object], ...]
) -> None:
    decide, score = policy(name), scorer(name)
    ledger = a_ledger()
    before = [dict(decide(ledger, demand).reasons) for demand in DEMANDS]
    with ledger.what_if():
        for step in steps:
            step(ledger)
        anew = Ledger(ledger.nodes.values(), ledger.devices.values())
        for demand in DEMANDS:
            assert decide(ledger, demand) == decide(anew, demand)
            assert score(ledger, demand, ledger.nodes) == score(anew, demand, ledger.nodes)
    assert [dict(decide(ledger, demand).reasons) for demand in DEMANDS] == before


@pytest.mark.parametrize("name", ["locality", "binpack", "topology"])
def test_an_index_that_nobody_has_asked_follows_too(name: str) -> None:
    ledger = Ledger([Node("n1")])
    for kind in (LocalityIndex, BinpackIndex, TopologyIndex, GpuKinds):
        ledger.index(kind)
    ledger.add_device(a_device("A"))
    assert policy(name)(ledger, a_demand("p")).devices == ("A",)


def test_of_many_kinds_of_demands_only_some_are_remembered() -> None:
    decide = policy("topology")
    ledger = Ledger([Node("n1")], [a_device("A", model="m1"), a_device("B", a_holder("b", "0.1"))])
    index = ledger.index(NodeRankings)
    for _ in range(2):
        for number in range(70):
            demand = a_demand("p", "0.5", model=f"m{number}")
            assert decide(ledger, demand).devices == (("A",) if number == 1 else ())
            assert len(index) <= 64
    assert len(index) == 64


def test_of_many_sizes_of_gpus_only_some_are_counted_once() -> None:
    ledger = Ledger([Node("n1")], [a_device("A", model="V100"), a_device("B", model="V100")])
    index = ledger.index(GpuKinds)
    for size in (*range(1, 70), 1):
        demand = a_demand("p", "1", memory=size, count=3)
        assert policy("locality")(ledger, demand).field == "count"
        assert 0 < len(index._most) <= 64
    ledger.add_device(a_device("C", model="V100"))
    assert policy("locality")(ledger, a_demand("p", "1", memory=1, count=3)).outcome == "bound"
    ledger.mark("C", fenced=True)
    assert policy("locality")(ledger, a_demand("p", "1", memory=1, count=3)).outcome == "pending"
    ledger.remove_device("C")
    assert policy("locality")(ledger, a_demand("p", "1", memory=1, count=3)).field == "count"


@pytest.mark.parametrize("name", ["locality", "binpack", "topology"])
def test_the_kinds_of_gpus_a_node_may_have_tell_never_from_not_now(name: str) -> None:
    decide = policy(name)
    demand = a_demand("p", "0", share_of_memory="0.5", proportional=True, model="A100")
    node = Node("n1", kinds=frozenset([A100]))
    ledger = Ledger([node], [a_device("A", model="V100")])
    assert decide(ledger, demand).outcome == "pending"
    ledger.set_node(Node("n1"))
    assert decide(ledger, demand).outcome == "rejected"
    ledger.set_node(node)
    assert decide(ledger, demand).outcome == "pending"


@pytest.mark.parametrize("number", [1, 7, 8, 9, 10])
@pytest.mark.parametrize("name", ["locality", "binpack", "topology"])
def test_few_nodes_and_many_are_kept_to_alike(name: str, number: int) -> None:
    names = [f"n{place}" for place in range(12)]
    devices = [
        a_device(f"gpu-{node}", a_holder(f"on-{node}", "0.5", memory=500 - place), node=node)
        for place, node in enumerate(names)
    ]
    ledger = Ledger([Node(node) for node in names], devices)
    asked = frozenset(names[-number:])
    demand = a_demand("p", "0", share_of_memory="0.4", proportional=True, nodes=asked)
    assert policy(name)(ledger, demand).node == names[-number]


@pytest.mark.parametrize("name", ["locality", "binpack", "topology"])
def test_a_gpu_with_as_many_holders_as_may_be_takes_nobody(name: str) -> None:
    holders = tuple(a_holder(f"q{number}", "0") for number in range(MAX_HOLDERS))
    ledger = Ledger([Node("n1")], [a_device("A", *holders)])
    demand = a_demand("p", "0", share_of_memory="0.1", proportional=True)
    assert policy(name)(ledger, demand).outcome == "pending"
    ledger.release("q7")
    assert policy(name)(ledger, demand).devices == ("A",)


def test_the_id_of_a_new_vgpu_follows_from_who_asks() -> None:
    ledger = Ledger([Node("n1", (V100, V100))])
    ids = {name: policy("locality")(ledger, a_demand(name)).devices for name in ("p", "q")}
    assert ids == {"p": ("vgpu-36992f5588",), "q": ("vgpu-56207d70c7",)}
    ids = {name: policy("locality")(ledger, a_demand(name, attempt=1)).devices for name in "p"}
    assert ids == {"p": ("vgpu-ee7060da1a",)}


@pytest.mark.parametrize("name", ["locality", "binpack", "topology"])
def test_indexes_that_grow_with_a_ledger_decide_as_those_built_at_once(name: str) -> None:
    grown, whole = Ledger([a_node("n1")]), Ledger([a_node("n1")], [a_device("A"), a_device("B")])
    attach_indexes(policy(name), grown)
    for device in ("A", "B"):
        grown.set_device(a_device(device))
    demand = a_demand("d", "0.5")
    assert policy(name)(grown, demand) == policy(name)(whole, demand)


def test_a_policy_that_fails_at_an_empty_ledger_is_left_alone() -> None:
    def fails(ledger: Ledger, demand: Demand) -> Decision:
        raise IndexError

    attach_indexes(fails, Ledger())


@pytest.mark.parametrize("kind", [QuotaIndex, HeldIndex, ExclusiveDevices])
def test_what_a_quota_needs_is_counted_before_there_is_one(
    kind: type[Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, built = Ledger([a_node("n1")]), list[Ledger]()
    attach_indexes(policy("locality"), ledger)
    monkeypatch.setattr(kind, "__init__", lambda _self, of: built.append(of))
    ledger.index(kind)
    assert not built, "at once, from a full ledger"
