"""Which nodes a pod may go to, and why not to the others.

Only what would make a GPU useless to it is looked at here: whether the node takes
pods, its taints, and the pod's node selector and affinity. All else is kube-scheduler's,
which has the last word on the pod.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, structs

from kubeshare.api.predicates import exclusions
from kubeshare.api.predicates.node_affinity import meets, required_terms
from kubeshare.api.types.core_v1 import Node, Taint
from kubeshare.api.types.v1 import ExcludedNode
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import DELETED, Change

MAX_CACHED: Final = 64
"""Kinds of pods for which the answers are kept; one more takes the oldest one's place."""

_KEEPS_OFF = frozenset({"NoSchedule", "NoExecute"})


class Eligible(Struct, frozen=True):
    """Where one pod may go.

    Attributes:
        nodes: the names of the nodes that take it.
        refusals: name of each other node -> why not.
        gpus: GPUID of each vGPU of these nodes that is not for it -> why not.
    """

    nodes: frozenset[str]
    refusals: Mapping[str, str]
    gpus: Mapping[str, str] = {}

    def excluding(self, refused: Mapping[str, str]) -> "Eligible":
        """The same without some nodes, by their names, and why not."""
        # Not by `-`: a frozenset less the keys of a mapping is no frozenset.
        return structs.replace(
            self, nodes=self.nodes.difference(refused), refusals={**self.refusals, **refused}
        )


class Eligibility:
    """Where pods may go, kept up to date by what the nodes' watch tells.

    Pods are alike in this where they have the same node selector, affinity and tolerations,
    so the answer to one is that to most. It is made anew when a node changes in something
    that counts, of which its signs of life are none.

    Args:
        nodes: watches the nodes.
    """

    def __init__(self, nodes: Reflector[Node]) -> None:
        self._nodes = nodes.store
        self._known: dict[str, Eligible] = {}
        nodes.subscribe(self._changed)

    def of(self, pod_spec: Mapping[str, Any]) -> Eligible:
        """Where a pod with this PodSpec, as a manifest has it, may go."""
        asked = [
            pod_spec.get("nodeSelector"),
            pod_spec.get("tolerations"),
            required_terms(pod_spec),
        ]
        kind = json.dumps(asked, sort_keys=True)
        known = self._known.get(kind)
        if known is None:
            if len(self._known) >= MAX_CACHED:
                del self._known[next(iter(self._known))]
            known = self._known[kind] = eligible(self._nodes.snapshot().values(), pod_spec)
        return known

    def _changed(self, change: Change[Node]) -> None:
        if (
            change.type == DELETED
            or change.old is None
            or _facts(change.old) != _facts(change.object)
        ):
            self._known.clear()


def eligible(nodes: Iterable[Node], pod_spec: Mapping[str, Any]) -> Eligible:
    """Where a pod may go.

    Args:
        nodes: all nodes.
        pod_spec: a PodSpec as a manifest has it.
    """
    said = {node.metadata.name: _refusal(node, pod_spec) for node in nodes}
    return Eligible(
        nodes=frozenset(name for name, refusal in said.items() if not refusal),
        refusals={name: refusal for name, refusal in said.items() if refusal},
    )


def without_excluded(where: Eligible, entries: Sequence[ExcludedNode]) -> Eligible:
    """Where a pod may go, but for nodes and vGPUs that are set aside for it."""
    if not entries:
        return where
    words = {entry: exclusions.describe(entry) for entry in entries if entry.node in where.nodes}
    refused = {entry.node: why for entry, why in words.items() if not entry.id}
    return structs.replace(
        where.excluding(refused),
        gpus={entry.id: why for entry, why in words.items() if entry.id},
    )


def _facts(node: Node) -> tuple[object, ...]:
    """All of a node that :func:`_refusal` looks at."""
    return node.ready, node.spec, node.metadata.labels


def _refusal(node: Node, pod_spec: Mapping[str, Any]) -> str:
    return _closed(node) or _unwanted(node, pod_spec)


def _closed(node: Node) -> str:
    """Why it takes no pods at all."""
    if not node.ready:
        return "not ready"
    if node.spec.unschedulable:
        return "cordoned"
    if node.driver_upgrade:
        return f"its GPU driver is being upgraded ({node.driver_upgrade})"
    return ""


def _unwanted(node: Node, pod_spec: Mapping[str, Any]) -> str:
    """Why it does not take this pod."""
    selector = pod_spec.get("nodeSelector") or {}
    missing = [
        f"{key}={value}"
        for key, value in selector.items()
        if node.metadata.labels.get(key) != value
    ]
    if missing:
        return f"without the label {', '.join(missing)} of its nodeSelector"
    if not meets(node, pod_spec):
        return "not one of those that its node affinity requires"
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
