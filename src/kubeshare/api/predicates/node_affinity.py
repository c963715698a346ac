"""Evaluates required node affinity as kube-scheduler does."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kubeshare.api.types.core_v1 import Node


def required_terms(pod_spec: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
    """The terms of which a node has to meet one; None if the pod has no required affinity."""
    affinity = pod_spec.get("affinity") or {}
    of_nodes = affinity.get("nodeAffinity") or {}
    required = of_nodes.get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else required.get("nodeSelectorTerms") or ()


def meets(node: Node, pod_spec: Mapping[str, Any]) -> bool:
    """Whether a node meets the required node affinity of a PodSpec."""
    terms = required_terms(pod_spec)
    return terms is None or any(_meets_term(node, term) for term in terms)


def _meets_term(node: Node, term: Mapping[str, Any]) -> bool:
    """Whether all requirements hold; an empty term matches no node."""
    labels, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    own = {"metadata.name": node.metadata.name}
    return (
        bool(labels or fields)
        and all(holds(node.metadata.labels, each) for each in labels)
        and all(holds(own, each) for each in fields)
    )


def holds(values: Mapping[str, str], requirement: Mapping[str, Any]) -> bool:
    """Whether labels meet a requirement, of a node selector or of a label selector."""
    operator = _OPERATORS.get(requirement.get("operator", ""))
    wanted = requirement.get("values") or ()
    return operator is not None and operator(values.get(requirement["key"]), wanted)


def _compare(value: str | None, wanted: Sequence[str], sign: int) -> bool:
    """Compare as integers; False if one of the two is no integer."""
    try:
        return value is not None and sign * int(value) > sign * int(wanted[0])
    except (ValueError, IndexError):
        return False


_OPERATORS: Final[Mapping[str, Callable[[str | None, Sequence[str]], bool]]] = {
    "In": lambda value, wanted: value in wanted,
    "NotIn": lambda value, wanted: value not in wanted,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, wanted: _compare(value, wanted, 1),
    "Lt": lambda value, wanted: _compare(value, wanted, -1),
}
