"""Different shares of one demand: all or none, on one node, each where its policy puts it."""

from typing import Any

import pytest

from core.builders import GPU_MEMORY, a_demand, a_device, a_holder, a_node
from kubeshare.core.decision import Decision, commit
from kubeshare.core.demand import Demand, Memory, Share
from kubeshare.core.errors import LedgerError
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy
from kubeshare.core.policies.several_shares import search
from kubeshare.core.topology import read_notation
from kubeshare.core.units import MI, MICROS, parse_share

WHOLE = Share(name="whole", request_micros=MICROS, memory=Memory(micros=MICROS), count=2)
HALF = Share(name="half", request_micros=500_000, memory=Memory(micros=500_000))
POLICIES = ("locality", "binpack", "topology")


def a_share(name: str, request: str, memory: int = 0, **fields: Any) -> Share:
    amounts = {"request_micros": parse_share(request, "share"), "memory": Memory(memory * MI)}
    known: dict[str, Any] = amounts | fields
    return Share(name=name, **known)


def several(*shares: Share, **fields: Any) -> Demand:
    return Demand(uid="p", name="p", shares=shares, **fields)


def gpus(*indexes: int, node: str = "n1", **fields: Any) -> list[Device]:
    return [
        Device(id=f"{node}/{at}", node=node, index=at, memory_bytes=GPU_MEMORY, **fields)
        for at in indexes
    ]


def where(decision: Decision) -> dict[str, set[str]]:
    placed: dict[str, set[str]] = {}
    for name, device in zip(decision.shares, decision.devices, strict=True):
        placed.setdefault(name, set()).add(device)
    return placed


@pytest.mark.parametrize("name", POLICIES)
def test_two_and_a_half_gpus_are_three(name: str) -> None:
    ledger = Ledger([Node("n1")], gpus(0, 1, 2))
    demand = several(WHOLE, HALF)
    decision = policy(name)(ledger, demand)
    assert decision.shares == ("whole", "whole", "half")
    assert len(set(decision.devices)) == 3
    commit(ledger, demand, decision)
    left = sorted(device.compute_left for device in ledger.devices.values())
    assert left == [0, 0, 500_000]
    assert ledger.release("p") == set(decision.devices)
    assert all(device.idle for device in ledger.devices.values())


@pytest.mark.parametrize("name", POLICIES)
def test_all_shares_are_placed_or_none(name: str) -> None:
    decision = policy(name)(
        Ledger([Node("n1")], [*gpus(0, 1), a_device("busy", a_holder("q", "0.6"))]),
        several(WHOLE, HALF),
    )
    assert decision.outcome == "pending"
    assert decision.reasons["n1/busy"] == (
        "share whole: compute 0.4 left, 1 asked; share half: compute 0.4 left, 0.5 asked"
    )
    assert decision.reasons["n1/0"].startswith("fits share")


@pytest.mark.parametrize("name", POLICIES)
def test_the_node_is_one_on_which_all_fit(name: str) -> None:
    # By the whole GPUs alone n1 would be as good, and comes first.
    nodes = [Node("n1"), Node("n2")]
    ledger = Ledger(nodes, [*gpus(0, 1), *gpus(0, 1, 2, node="n2")])
    decision = policy(name)(ledger, several(WHOLE, HALF))
    assert decision.node == "n2"


@pytest.mark.parametrize("name", POLICIES)
def test_shares_of_different_containers_may_be_on_one_gpu(name: str) -> None:
    ledger = Ledger([Node("n1")], gpus(0))
    apart = several(a_share("a", "0.5", containers=("x",)), a_share("b", "0.3", containers=("y",)))
    assert policy(name)(ledger, apart).devices == ("n1/0", "n1/0")
    commit(ledger, apart, policy(name)(ledger, apart))
    holders = ledger.devices["n1/0"].holders
    assert [(holder.demand, holder.share) for holder in holders] == [("p", "a"), ("p", "b")]
    assert ledger.devices["n1/0"].compute_left == 200_000


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("containers", [(("x",), ("x", "y")), ((), ("x",)), ((), ())])
def test_shares_of_one_container_are_on_different_gpus(
    name: str, containers: tuple[tuple[str, ...], tuple[str, ...]]
) -> None:
    one, other = containers
    demand = several(a_share("a", "0.1", containers=one), a_share("b", "0.1", containers=other))
    decision = policy(name)(Ledger([Node("n1")], gpus(0)), demand)
    assert (decision.outcome, decision.field) == ("rejected", "shares")
    assert len(set(policy(name)(Ledger([Node("n1")], gpus(0, 1)), demand).devices)) == 2


@pytest.mark.parametrize("name", POLICIES)
def test_shares_that_a_third_joins_are_on_different_gpus(name: str) -> None:
    demand = several(
        a_share("x", "0.1", containers=("a", "b")),
        a_share("y", "0.1", containers=("b", "c")),
        a_share("z", "0.1", containers=("c",)),
    )
    assert policy(name)(Ledger([Node("n1")], gpus(0, 1)), demand).field == "shares"
    ledger = Ledger([Node("n1")], gpus(0, 1, 2))
    decision = policy(name)(ledger, demand)
    assert len(set(decision.devices)) == 3
    with pytest.raises(LedgerError, match="shares x and z cannot be on one vGPU"):
        ledger.place(demand, "n1/0", "n1/1", "n1/0")


def test_a_small_share_leaves_the_gpu_that_another_needs() -> None:
    # Best fit would put the half onto B, and then 0.6 would fit nowhere.
    devices = [
        a_device("A", a_holder("q", "0.1", memory=900)),
        a_device("B", a_holder("r", "0.4", memory=300)),
    ]
    large = a_share("large", "0.5", 50, containers=("x",))
    other = a_share("other", "0.5", 400, containers=("y",))
    decision = policy("locality")(Ledger([Node("n1")], devices), several(large, other))
    assert where(decision) == {"large": {"A"}, "other": {"B"}}


def test_the_search_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "STEPS", 2)
    ledger = Ledger([Node("n1")], gpus(*range(4)))
    assert policy("locality")(ledger, several(WHOLE, HALF)).outcome == "bound"
    three = (a_share(name, "0.5") for name in "abc")
    assert policy("locality")(ledger, several(*three)).outcome == "pending"


def test_free_gpus_become_vgpus() -> None:
    ledger = Ledger([a_node("n1", free=2)], gpus(0))
    demand = several(WHOLE, HALF)
    decision = policy("locality")(ledger, demand)
    assert len(decision.new) == 2
    assert len(set(decision.devices)) == 3
    commit(ledger, demand, decision)
    assert not ledger.nodes["n1"].free


def test_labels_bind_with_regard_to_others_only() -> None:
    shares = a_share("a", "0.5", containers=("x",)), a_share("b", "0.3", containers=("y",))
    demand = several(*shares, anti_affinity="g", affinity="red")
    guarded = a_device("A", a_holder("q", "0.1", anti_affinity="g", affinity="red"))
    decide = policy("locality")
    assert decide(Ledger([Node("n1")], [guarded]), demand).outcome == "pending"
    assert decide(Ledger([Node("n1")], [a_device("A")]), demand).devices == ("A", "A")


def test_the_gpus_of_one_demand_are_of_one_model() -> None:
    devices = [*gpus(0, 1, model="V100"), *gpus(2, 3, 4, model="A100"), *gpus(5, model="V100")]
    devices.pop()
    decision = policy("binpack")(Ledger([Node("n1")], devices), several(WHOLE, HALF))
    assert set(decision.devices) == {"n1/2", "n1/3", "n1/4"}


def test_the_whole_gpus_are_the_closest_and_the_share_is_beside_them() -> None:
    links = read_notation("SYS(PHB(PIX(0,1),PIX(2,3)),PIX(4,5))", "links")
    devices = gpus(*range(6))
    devices[5] = devices[5].with_holder(a_holder("q", "0.5"))
    devices[1] = devices[1].with_holder(a_holder("r", "0.4"))
    decision = policy("topology")(Ledger([Node("n1", links=links)], devices), several(WHOLE, HALF))
    # GPU 5 would be a closer fit of the half, and is across the sockets.
    assert where(decision) == {"whole": {"n1/2", "n1/3"}, "half": {"n1/1"}}


def test_a_closest_set_that_leaves_no_room_is_not_taken() -> None:
    links = read_notation("SYS(PIX(0,1),2)", "links")
    large = Device(id="n1/0", node="n1", index=0, memory_bytes=2 * GPU_MEMORY)
    ledger = Ledger([Node("n1", links=links)], [large, *gpus(1, 2)])
    needs_large = a_share("large", "0.9", 1500)
    decision = policy("topology")(ledger, several(WHOLE, needs_large))
    assert where(decision) == {"whole": {"n1/1", "n1/2"}, "large": {"n1/0"}}


@pytest.mark.parametrize("name", POLICIES)
def test_a_share_that_no_gpu_could_take_is_named(name: str) -> None:
    demand = several(HALF, a_share("large", "0.1", 2000))
    decision = policy(name)(Ledger([Node("n1")], gpus(0, 1, 2)), demand)
    assert (decision.outcome, decision.field) == ("rejected", "shares.large.memory")


def test_a_demand_of_one_named_share_is_placed_as_in_the_short_form() -> None:
    ledger = Ledger([Node("n1")], [*gpus(0, 1), a_device("A", a_holder("q", "0.5"))])
    short = policy("locality")(ledger, a_demand("p", "0.5"))
    named = policy("locality")(ledger, several(a_share("only", "0.5")))
    assert (named.node, named.devices) == (short.node, short.devices) == ("n1", ("A",))
    assert named.shares == ("only",)
