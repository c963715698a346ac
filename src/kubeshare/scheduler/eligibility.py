"""Which nodes a SharePod may go to, and why not to the others.

Only what would make a GPU useless to it is looked at here: whether the node takes
pods, its taints, and the SharePod's node selector. All else is kube-scheduler's,
which has the last word on the pod.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kubeshare.api.cluster import Node, Taint

_KEEPS_OFF = frozenset({"NoSchedule", "NoExecute"})


def refusals(nodes: Iterable[Node], pod_spec: Mapping[str, Any]) -> dict[str, str]:
    """Every node's name -> why the pod cannot go there; ``""`` where it can.

    Args:
        nodes: all nodes.
        pod_spec: a PodSpec as a manifest has it.
    """
    return {node.metadata.name: _refusal(node, pod_spec) for node in nodes}


def _refusal(node: Node, pod_spec: Mapping[str, Any]) -> str:
    if not node.ready:
        return "not ready"
    if node.spec.unschedulable:
        return "cordoned"
    selector = pod_spec.get("nodeSelector") or {}
    missing = [
        f"{key}={value}"
        for key, value in selector.items()
        if node.metadata.labels.get(key) != value
    ]
    if missing:
        return f"without the label {', '.join(missing)} of its nodeSelector"
    tolerations = pod_spec.get("tolerations") or ()
    for taint in node.spec.taints:
        if taint.effect in _KEEPS_OFF and not _tolerated(taint, tolerations):
            return f"taint {taint.key}{f'={taint.value}' if taint.value else ''} is not tolerated"
    return ""


def _tolerated(taint: Taint, tolerations: Sequence[Mapping[str, Any]]) -> bool:
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    """Kubernetes' own rule; an empty key with ``Exists`` and an empty effect match all."""
    if toleration.get("effect") not in (None, "", taint.effect):
        return False
    key, operator = toleration.get("key") or "", toleration.get("operator") or "Equal"
    if key not in ("", taint.key):
        return False
    if operator == "Exists":
        return True
    return key == taint.key and (toleration.get("value") or "") == taint.value
