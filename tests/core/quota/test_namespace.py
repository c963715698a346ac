"""A namespace holds no more of GPUs than its quotas allow."""

from collections.abc import Sequence
from typing import Any

from core.builders import GPU_MEMORY, a_demand, a_device, a_holder, a_node
from kubeshare.core.decision import Decision, commit
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.locality import policy
from kubeshare.core.quota.namespace import HeldIndex, NamespaceQuota, within_quotas
from kubeshare.core.units import MI

HALF = NamespaceQuota(name="half", micros=500_000)
MEMORY = NamespaceQuota(name="memory", memory_bytes=600 * MI)


def decided(
    ledger: Ledger, *quotas: NamespaceQuota, namespace: str = "team", **demand: object
) -> Decision:
    """What locality says within quotas of namespace ``team``."""

    def of(asked: str) -> Sequence[NamespaceQuota]:
        return quotas if asked == "team" else ()

    wanted: dict[str, object] = {"name": "p", "namespace": namespace, **demand}
    return within_quotas(policy.decide, of)(ledger, a_demand(**wanted))  # type: ignore[arg-type]


def test_up_to_the_quota_and_no_further() -> None:
    ledger = Ledger([a_node(free=2)])
    assert decided(ledger, HALF, request="0.5").outcome == "bound"
    refused = decided(ledger, HALF, request="0.500001")
    assert (refused.outcome, refused.field) == ("pending", "quota")
    assert dict(refused.reasons) == {
        "quota": "half allows 0.5 GPUs: 0 held, 0.500001 asked",
    }


def test_what_the_namespace_holds_counts_and_what_others_hold_does_not() -> None:
    mine = a_holder("a", "0.3", memory=100, namespace="team")
    other = a_holder("b", "0.6", memory=100, namespace="other")
    ledger = Ledger([a_node(free=1)])
    ledger.set_device(a_device("A", mine))
    ledger.set_device(a_device("B", other))
    assert decided(ledger, HALF, request="0.2").outcome == "bound"
    assert "0.3 held, 0.21 asked" in decided(ledger, HALF, request="0.21").reasons["quota"]
    assert decided(ledger, HALF, request="0.6", namespace="other").outcome == "bound"


def test_memory_that_the_namespace_holds_counts_too() -> None:
    ledger = Ledger([a_node(free=1)], [a_device("A", a_holder("a", memory=100, namespace="team"))])
    assert decided(ledger, MEMORY, memory=500).outcome == "bound"
    refused = decided(ledger, MEMORY, memory=501)
    assert refused.reasons["quota"] == "memory allows 600Mi of GPU memory: 100Mi held, 501Mi asked"


def test_a_share_of_memory_is_what_it_comes_to_on_the_gpu() -> None:
    ledger = Ledger([a_node(free=1)])
    assert decided(ledger, MEMORY, share_of_memory="0.6").outcome == "bound"
    refused = decided(ledger, MEMORY, share_of_memory="0.7")
    assert refused.reasons["quota"] == ("memory allows 600Mi of GPU memory: 0 held, 700Mi asked")
    assert GPU_MEMORY == 1000 * MI


def test_compute_that_follows_memory_is_what_it_comes_to_on_the_gpu() -> None:
    ledger = Ledger([a_node(free=1)])
    pod: dict[str, Any] = {"request": "0", "proportional": True}
    assert decided(ledger, HALF, memory=500, **pod).outcome == "bound"
    assert "0.501 asked" in decided(ledger, HALF, memory=501, **pod).reasons["quota"]


def test_several_gpus_count_each() -> None:
    ledger = Ledger([a_node(free=2)])
    assert decided(ledger, HALF, request="0.25", count=2).outcome == "bound"
    assert decided(ledger, HALF, request="0.26", count=2).outcome == "pending"


def test_of_several_quotas_all_hold() -> None:
    ledger = Ledger([a_node(free=1)])
    assert decided(ledger, HALF, MEMORY, request="0.5", memory=600).outcome == "bound"
    assert decided(ledger, HALF, MEMORY, request="0.5", memory=601).outcome == "pending"
    assert decided(ledger, HALF, MEMORY, request="0.6", memory=600).outcome == "pending"


def test_where_there_is_no_room_that_is_the_reason() -> None:
    assert decided(Ledger([a_node()]), HALF, request="0.9").field != "quota"


def test_the_index_follows_the_ledger() -> None:
    ledger = Ledger([a_node(free=1)])
    index = ledger.index(HeldIndex)
    asked = a_demand("p", "0.4", memory=300, namespace="team")
    commit(ledger, asked, policy.decide(ledger, asked))
    assert (index.of("team").micros, index.of("team").memory_bytes) == (400_000, 300 * MI)
    ledger.release("p")
    assert (index.of("team").micros, index.of("team").memory_bytes) == (0, 0)
    assert index.of("nobody").micros == 0
