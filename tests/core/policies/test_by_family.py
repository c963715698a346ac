"""A demand of a family is placed by that family's policy, others by the cluster's."""

import msgspec
import pytest

from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand, Memory
from kubeshare.core.ledger.device import Device, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies.by_family import FAMILY_POLICIES, by_family
from kubeshare.core.units import GI

DEMAND = Demand(uid="a", name="a", memory=Memory(bytes=GI))


def refuse(_ledger: Ledger, _demand: Demand) -> Decision:
    """A policy that places nothing."""
    return Decision(outcome="rejected", reasons={"cluster": "refused"})


@pytest.fixture
def ledger() -> Ledger:
    """A node with one idle GPU."""
    gpu = Device(id="x", node="n1", memory_bytes=16 * GI)
    return Ledger([Node(name="n1")], [gpu])


@pytest.mark.parametrize("family", FAMILY_POLICIES)
def test_a_family_has_its_own_policy(ledger: Ledger, family: str) -> None:
    decision = by_family(refuse)(ledger, msgspec.structs.replace(DEMAND, family=family))
    assert decision.devices == ("x",)


@pytest.mark.parametrize("family", ["", "another"])
def test_other_demands_are_placed_by_the_policy_of_the_cluster(ledger: Ledger, family: str) -> None:
    decision = by_family(refuse)(ledger, msgspec.structs.replace(DEMAND, family=family))
    assert dict(decision.reasons) == {"cluster": "refused"}
