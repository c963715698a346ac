"""Which vGPUs the author of a demand may name, by configuration."""

import pytest

from core.builders import a_demand, a_device, a_holder, a_node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.binpack.policy import decide as binpack
from kubeshare.core.policies.gpuid_scope import GpuidScope, within_gpuid_scope
from kubeshare.core.policies.locality.policy import decide as locality


def ledger() -> Ledger:
    of_a = a_holder("p", "0.1", namespace="a")
    of_b = a_holder("q", "0.5", namespace="b")
    devices = [a_device("gpu0", of_b), a_device("vgpu-1", of_a, node="n2", gpuid="gpu0")]
    return Ledger([a_node("n1"), a_node("n2"), a_node("n3", free=1)], devices)


@pytest.mark.parametrize("policy", [locality, binpack], ids=["locality", "binpack"])
@pytest.mark.parametrize(
    ("scope", "namespace", "devices"),
    [
        ("cluster", "a", ("gpu0",)),
        ("namespace", "a", ("vgpu-1",)),
        ("namespace", "b", ("gpu0",)),
        ("namespace", "c", ()),
        ("none", "a", ()),
    ],
)
def test_a_gpuid_is_limited_to_a_namespace(
    policy: object, scope: GpuidScope, namespace: str, devices: tuple[str, ...]
) -> None:
    limited = within_gpuid_scope(policy, lambda: scope)  # type: ignore[arg-type]
    known = ledger()
    asks = a_demand("r", "0.1", device_id="gpu0", namespace=namespace)
    assert limited(known, asks).devices == devices
    assert known == ledger()
    assert limited(known, a_demand("s", "0.1", namespace=namespace)).outcome == "bound"


def test_why_a_vgpu_of_another_namespace_is_refused() -> None:
    limited = within_gpuid_scope(locality, lambda: "namespace")
    decision = limited(ledger(), a_demand("r", "0.1", device_id="gpu0", namespace="c"))
    assert decision.outcome == "pending"
    assert decision.reasons["n1/gpu0"] == "held by 1 other namespace, and gpuidScope: namespace"
    assert decision.reasons["n2/gpu0"] == "held by 1 other namespace, and gpuidScope: namespace"
    assert decision.reasons["n3"] == "vGPU gpu0 is asked for"


def test_a_forbidden_gpuid_is_rejected_by_its_field() -> None:
    limited = within_gpuid_scope(locality, lambda: "none")
    decision = limited(ledger(), a_demand("r", "0.1", device_id="gpu0"))
    assert (decision.outcome, decision.field) == ("rejected", "id")
    assert "gpuidScope: none" in decision.reasons["id"]
