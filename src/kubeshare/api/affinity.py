"""Node affinity that leaves kube-scheduler one node, and everything else to check."""

from collections.abc import Mapping
from typing import Any


def on_node(affinity: Mapping[str, Any], node: str) -> dict[str, Any]:
    """An affinity that also requires a node, by its name.

    Args:
        affinity: a pod's own; what it requires is kept.
        node: the name of the node.
    """
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    of_nodes = dict(affinity.get("nodeAffinity") or {})
    required = dict(of_nodes.get("requiredDuringSchedulingIgnoredDuringExecution") or {})
    # One term must hold: so the node goes into each of them.
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [
        {**term, "matchFields": [*(term.get("matchFields") or ()), here]} for term in terms
    ]
    of_nodes["requiredDuringSchedulingIgnoredDuringExecution"] = required
    return {**affinity, "nodeAffinity": of_nodes}
