"""Finds demands that a new node of a cluster autoscaler would fit."""

import math
from typing import Final

import msgspec

from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import FreeGpu, Node
from kubeshare.core.ledger.index.gpu_kinds import GpuKinds
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy
from kubeshare.core.units import MICROS

NEW_NODE: Final = "a new node"
"""A name that no node of a cluster has."""

_ANY_MEMORY: Final = 1 << 50


def new_node_helps(policy: Policy, ledger: Ledger, demand: Demand) -> bool:
    """Whether a pending demand would fit on a new node with as many idle GPUs as it asks for.

    The GPUs are of the model that it requests, of the largest size that the cluster knows.

    Args:
        policy: the placement policy.
        ledger: unchanged afterwards.
        demand: the pending demand, restricted to the nodes that its pod may use.
    """
    if policy(ledger, demand).node is not None:
        return False
    known = ledger.index(GpuKinds).kinds
    fitting = [kind for kind in known if demand.model in ("", kind.model)]
    largest = max(fitting, key=lambda kind: (kind.memory_bytes, kind.model), default=None)
    kind = largest or FreeGpu(demand.model, _ANY_MEMORY)
    nodes = None if demand.nodes is None else demand.nodes | {NEW_NODE}
    with ledger.what_if():
        ledger.add_node(Node(NEW_NODE, free=(kind,) * len(demand.per_gpu())))
        return policy(ledger, msgspec.structs.replace(demand, nodes=nodes)).node == NEW_NODE


def gpus_needed(demand: Demand) -> int:
    """The least number of idle GPUs that a demand could fit on."""
    requested = sum(share.request_micros for share in demand.per_gpu())
    return max(demand.different_gpus(), math.ceil(requested / MICROS))
