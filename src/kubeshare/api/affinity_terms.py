"""Node affinity that leaves kube-scheduler some nodes, and everything else to check."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def require_node(affinity: Mapping[str, Any], node: str) -> dict[str, Any]:
    """An affinity that also requires a node, by its name.

    Args:
        affinity: a pod's own; what it requires is kept.
        node: the name of the node.
    """
    return _require(affinity, [{"key": "metadata.name", "operator": "In", "values": [node]}])


def forbid_nodes(affinity: Mapping[str, Any], nodes: Iterable[str]) -> dict[str, Any]:
    """An affinity that also keeps off some nodes, by their names.

    Args:
        affinity: a pod's own; what it requires is kept.
        nodes: the names of the nodes.
    """
    # A field is compared with one value each time.
    there = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    return _require(affinity, there) if there else dict(affinity)


def _require(affinity: Mapping[str, Any], fields: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    of_nodes = dict(affinity.get("nodeAffinity") or {})
    required = dict(of_nodes.get("requiredDuringSchedulingIgnoredDuringExecution") or {})
    # One term must hold: so they go into each of them.
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [
        {**term, "matchFields": [*(term.get("matchFields") or ()), *fields]} for term in terms
    ]
    of_nodes["requiredDuringSchedulingIgnoredDuringExecution"] = required
    return {**affinity, "nodeAffinity": of_nodes}
