"""Whether one more GPU somewhere would let a demand in, which is what a cluster autoscaler adds."""

from typing import Final

import msgspec

from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis import feasibility
from kubeshare.core.ledger.device import FreeGpu, Node
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy

NEW_NODE: Final = "a new node"
"""A name that no node of a cluster has."""

_ANY_MEMORY: Final = 1 << 50


def new_node_helps(policy: Policy, ledger: Ledger, demand: Demand) -> bool:
    """Whether a demand that waits would go to a node that had as many idle GPUs as it asks for.

    These are of the kind that it names, or of the largest that the cluster knows.

    Args:
        policy: the placement policy.
        ledger: the cluster as it is now; it is the same afterwards.
        demand: who waits, for the nodes to which its pod may go; none where it named its node.
    """
    if policy(ledger, demand).node is not None:
        return False
    fitting = [kind for kind in feasibility.kinds(ledger) if demand.model in ("", kind.model)]
    largest = max(fitting, key=lambda kind: (kind.memory_bytes, kind.model), default=None)
    kind = largest or FreeGpu(demand.model, _ANY_MEMORY)
    there = None if demand.nodes is None else demand.nodes | {NEW_NODE}
    with ledger.what_if():
        ledger.add_node(Node(NEW_NODE, free=(kind,) * demand.count))
        return policy(ledger, msgspec.structs.replace(demand, nodes=there)).node == NEW_NODE
