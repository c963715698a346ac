"""Adds node names to the required node affinity of a pod."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def require_node(affinity: Mapping[str, Any], node: str) -> dict[str, Any]:
    """The affinity, also requiring the node of that name; its own requirements are kept."""
    return _require(affinity, [{"key": "metadata.name", "operator": "In", "values": [node]}])


def forbid_nodes(affinity: Mapping[str, Any], nodes: Iterable[str]) -> dict[str, Any]:
    """The affinity, also excluding the nodes of those names; its own requirements are kept."""
    # A field requirement takes exactly one value.
    excluded = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    return _require(affinity, excluded) if excluded else dict(affinity)


def _require(affinity: Mapping[str, Any], fields: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    of_nodes = dict(affinity.get("nodeAffinity") or {})
    required = dict(of_nodes.get("requiredDuringSchedulingIgnoredDuringExecution") or {})
    # Terms are alternatives, so the fields are added to each.
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [
        {**term, "matchFields": [*(term.get("matchFields") or ()), *fields]} for term in terms
    ]
    of_nodes["requiredDuringSchedulingIgnoredDuringExecution"] = required
    return {**affinity, "nodeAffinity": of_nodes}
