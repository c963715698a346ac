"""On a large cluster a message is made from some nodes only, and says the same as before."""

from collections.abc import Mapping

import pytest
from msgspec import structs

from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.core.demand import Demand, Memory
from kubeshare.core.diagnosis.messages import explain
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.holder import Holder
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy
from kubeshare.core.reasons import NOT_ASKED
from kubeshare.scheduler import scheduling
from kubeshare.scheduler.scheduling import decide, explain_pending, helpful_change

NODES = [f"n{number}" for number in range(40)]


def full(models: Mapping[str, str] | None = None) -> Ledger:
    ledger = Ledger([Node(name) for name in NODES])
    for name in NODES:
        held = Holder(demand=f"u-{name}", name=f"p-{name}", request_micros=900_000, memory_bytes=1)
        model = (models or {}).get(name, "V100")
        ledger.set_device(
            Device(id=f"g-{name}", node=name, model=model, memory_bytes=16, holders=(held,))
        )
    return ledger


def asks(model: str = "") -> Demand:
    memory = Memory(bytes=1)
    return Demand(uid="w", name="w", request_micros=500_000, memory=memory, model=model)


@pytest.mark.parametrize("name", ["locality", "binpack", "topology"])
def test_the_message_has_what_the_whole_one_begins_with_and_counts_all(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, demand, eligible = full(), asks(), Eligible(frozenset(NODES), {})
    decision = decide(policy(name), ledger, demand, eligible)
    whole = explain(ledger, demand, decision)
    assert explain_pending(policy(name), ledger, demand, eligible, decision) == whole
    monkeypatch.setattr(scheduling, "LARGE_CLUSTER", 10)
    few = explain_pending(policy(name), ledger, demand, eligible, decision)
    assert few.startswith(whole[:300])
    assert few.count("; ") == 32, "sixteen GPUs and their nodes, and how many more"
    assert few.endswith(f"and {2 * len(NODES) - 32} more")
    assert NOT_ASKED not in few


def test_the_nodes_are_some_that_could_serve_the_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "LARGE_CLUSTER", 10)
    ledger, demand = full({"n39": "A100", "n38": "A100"}), asks("A100")
    eligible = Eligible(frozenset(NODES) - {"n38"}, {"n38": "cordoned"})
    decision = decide(policy("locality"), ledger, demand, eligible)
    message = explain_pending(policy("locality"), ledger, demand, eligible, decision)
    assert message.startswith("n39/g-n39: compute 0.1 left, 0.5 asked")
    change = helpful_change(policy("locality"), ledger, demand, eligible)
    assert change is not None
    assert change.leave == ("u-n39",)


@pytest.mark.parametrize("more", [{"device_id": "g-n39"}, {"affinity": "red"}])
def test_all_is_explained_of_what_may_be_on_any_node(
    more: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, eligible = full(), Eligible(frozenset(NODES), {})
    demand = structs.replace(asks(), **more)
    decision = decide(policy("locality"), ledger, demand, eligible)
    monkeypatch.setattr(scheduling, "LARGE_CLUSTER", 10)
    message = explain_pending(policy("locality"), ledger, demand, eligible, decision)
    assert message == explain(ledger, demand, decision)


def test_a_cluster_is_large_beyond_a_number_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, demand, eligible = full(), asks(), Eligible(frozenset(NODES), {})
    decision = decide(policy("locality"), ledger, demand, eligible)
    for limit, is_large in ((len(NODES), False), (len(NODES) - 1, True)):
        monkeypatch.setattr(scheduling, "LARGE_CLUSTER", limit)
        message = explain_pending(policy("locality"), ledger, demand, eligible, decision)
        assert (message != explain(ledger, demand, decision)) is is_large
