"""Places the demands of a manifest family by its system's policy.

Pods of several families share a cluster, each on its own nodes, and each family means a way to
place: gpushare packs by memory, Gaia goes by the topology. The cluster's policy decides about
all other demands.
"""

from collections.abc import Mapping
from typing import Final

from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy, policy

FAMILY_POLICIES: Final[Mapping[str, str]] = {"gpushare": "binpack", "vcuda": "topology"}
"""Family of a demand → the policy that places it."""


def by_family(default: Policy) -> Policy:
    """Wrap the policy of a cluster: demands of a family are placed by that family's.

    Args:
        default: places demands of no family.
    """

    def decide(ledger: Ledger, demand: Demand) -> Decision:
        name = FAMILY_POLICIES.get(demand.family)
        return (policy(name) if name else default)(ledger, demand)

    return decide
