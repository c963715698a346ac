"""Finds the nodes that accept a pod, with reasons for others.

Checked are whether the node accepts pods, its taints, and the pod's node selector and affinity:
what would make a GPU there useless for the pod. kube-scheduler checks everything again. For pods
that share GPUs it is also checked whether the node is dedicated to another manifest family.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec import Struct, structs

from kubeshare.api.configuration import DynamicConfiguration, OwnedConfiguration
from kubeshare.api.owned_nodes import keeps_off
from kubeshare.api.predicates import exclusions
from kubeshare.api.predicates.node_affinity import meets, required_terms
from kubeshare.api.types.core_v1 import Node, Taint
from kubeshare.api.types.v1 import ExcludedNode
from kubeshare.core.decision import LazyReasons
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import DELETED, Change

MAX_CACHED: Final = 10_000
"""Kinds of pods whose eligible nodes are cached; the oldest entry is dropped first."""
MAX_CACHED_NAMES: Final = 500_000
"""Names of nodes in these entries together, about 30 MB; kinds with the same nodes share them."""
_LABEL: Final = "label"

_KEEPS_OFF = frozenset({"NoSchedule", "NoExecute"})


class Eligible(Struct, frozen=True):
    """The nodes that a pod may run on.

    Attributes:
        nodes: the names of the nodes.
        refusals: name of each other node -> why not.
        gpus: node and GPUID of each excluded vGPU on these nodes -> why not.
        outdated: the other nodes that are refused until an upgrade is complete.
    """

    nodes: frozenset[str]
    refusals: Mapping[str, str]
    gpus: Mapping[tuple[str, str], str] = {}
    outdated: frozenset[str] = frozenset()

    def excluding(self, refused: Mapping[str, str]) -> "Eligible":
        """The same without these nodes; ``refused`` maps their names to the reason."""
        # A frozenset minus the keys of a mapping would be a plain set.
        reasons = LazyReasons(lambda: {**self.refusals, **refused})
        return structs.replace(self, nodes=self.nodes.difference(refused), refusals=reasons)


class Eligibility:
    """The eligible nodes of pods, cached until a node changes.

    Pods with the same node selector, affinity and tolerations have the same eligible nodes, so
    few answers serve most pods. Heartbeats of nodes do not invalidate them. Reasons for other nodes
    are computed when they are read. A node selector is looked up in an index of labels.

    Args:
        nodes: watches the nodes.
        configuration: which nodes are dedicated; None for pods that share no GPU.
    """

    def __init__(
        self, nodes: Reflector[Node], configuration: DynamicConfiguration | None = None
    ) -> None:
        self._nodes = nodes.store
        self._configuration = configuration
        self._known: dict[str, frozenset[str]] = {}
        # Each set of nodes as it is kept, and how many kinds have it.
        self._sets: dict[frozenset[str], frozenset[str]] = {}
        self._kinds: Counter[frozenset[str]] = Counter()
        self._names = 0
        self._nodes.add_index(_LABEL, _labels)
        nodes.subscribe(self._changed)
        if configuration is not None:
            configuration.subscribe(self._clear)

    def of(self, pod_spec: Mapping[str, Any], family: str = "") -> Eligible:
        """The nodes that accept a pod with this PodSpec, of this manifest family."""
        fields = [
            family,
            pod_spec.get("nodeSelector"),
            pod_spec.get("tolerations"),
            required_terms(pod_spec),
        ]
        kind = json.dumps(fields, sort_keys=True)
        known = self._known.get(kind)
        if known is None:
            owned = self._configuration.now().owned if self._configuration else None
            found = eligible(self._candidates(pod_spec), pod_spec, owned, family).nodes
            known = self._sets.get(found, found)
            self._remember(kind, known)
        return Eligible(
            nodes=known, refusals=LazyReasons(partial(self._refusals, pod_spec, family))
        )

    def _candidates(self, pod_spec: Mapping[str, Any]) -> Iterable[Node]:
        """All nodes, or those with the labels that few nodes have."""
        selector = pod_spec.get("nodeSelector") or {}
        found = [self._nodes.keys_by_index(_LABEL, f"{key}={selector[key]}") for key in selector]
        if not found:
            return self._nodes.snapshot().values()
        nodes = (self._nodes.by_key(key) for key in min(found, key=len))
        return [node for node in nodes if node is not None]

    def _refusals(self, pod_spec: Mapping[str, Any], family: str) -> Mapping[str, str]:
        owned = self._configuration.now().owned if self._configuration else None
        return eligible(self._nodes.snapshot().values(), pod_spec, owned, family).refusals

    def _remember(self, kind: str, nodes: frozenset[str]) -> None:
        self._known[kind] = nodes
        self._kinds[nodes] += 1
        if self._kinds[nodes] == 1:
            self._sets[nodes] = nodes
            self._names += len(nodes)
        while len(self._known) > MAX_CACHED or (
            self._names > MAX_CACHED_NAMES and len(self._known) > 1
        ):
            self._drop(next(iter(self._known)))

    def _drop(self, kind: str) -> None:
        nodes = self._known.pop(kind)
        self._kinds[nodes] -= 1
        if not self._kinds[nodes]:
            del self._kinds[nodes], self._sets[nodes]
            self._names -= len(nodes)

    def _clear(self) -> None:
        self._known.clear()
        self._sets.clear()
        self._kinds.clear()
        self._names = 0

    def _changed(self, change: Change[Node]) -> None:
        if (
            change.type == DELETED
            or change.old is None
            or _facts(change.old) != _facts(change.object)
        ):
            self._clear()


def _labels(node: Node) -> list[str]:
    return [f"{key}={value}" for key, value in node.metadata.labels.items()]


def eligible(
    nodes: Iterable[Node],
    pod_spec: Mapping[str, Any],
    owned: OwnedConfiguration | None = None,
    family: str = "",
) -> Eligible:
    """The nodes that accept a pod.

    Args:
        nodes: all nodes.
        pod_spec: the PodSpec of the manifest.
        owned: which nodes are dedicated; None for a pod that shares no GPU.
        family: the manifest family of the pod; ``""`` for KubeShare's own.
    """
    refusals = {
        node.metadata.name: (keeps_off(node, family, owned) if owned is not None else "")
        or _refusal(node, pod_spec)
        for node in nodes
    }
    return Eligible(
        nodes=frozenset(name for name, refusal in refusals.items() if not refusal),
        refusals={name: refusal for name, refusal in refusals.items() if refusal},
    )


def without_excluded(eligible_nodes: Eligible, entries: Sequence[ExcludedNode]) -> Eligible:
    """The eligible nodes without those that are excluded, and with the excluded vGPUs."""
    if not entries:
        return eligible_nodes
    words = {
        entry: exclusions.describe(entry) for entry in entries if entry.node in eligible_nodes.nodes
    }
    refused = {entry.node: why for entry, why in words.items() if not entry.id}
    return structs.replace(
        eligible_nodes.excluding(refused),
        gpus={(entry.node, entry.id): why for entry, why in words.items() if entry.id},
    )


def _facts(node: Node) -> tuple[object, ...]:
    """The fields of a node that its refusals depend on."""
    return node.ready, node.spec, node.metadata.labels


def _refusal(node: Node, pod_spec: Mapping[str, Any]) -> str:
    return _closed(node) or _mismatch(node, pod_spec)


def _closed(node: Node) -> str:
    """Why a node accepts no pods at all."""
    if not node.ready:
        return "not ready"
    if node.spec.unschedulable:
        return "cordoned"
    if node.driver_upgrade:
        return f"its GPU driver is being upgraded ({node.driver_upgrade})"
    return ""


def _mismatch(node: Node, pod_spec: Mapping[str, Any]) -> str:
    """Why a node does not accept this pod."""
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
    """As in Kubernetes: an empty key with ``Exists`` and an empty effect match everything."""
    if toleration.get("effect") not in (None, "", taint.effect):
        return False
    key, operator = toleration.get("key") or "", toleration.get("operator") or "Equal"
    if key not in ("", taint.key):
        return False
    if operator == "Exists":
        return True
    return key == taint.key and (toleration.get("value") or "") == taint.value
