"""Finds the nodes with enough CPU, memory and pods left.

A gated pod can be rescheduled, a pod whose gate is removed cannot. So the node's allocatable
resources are checked before: less what its pods request, less what pods request that have a
share of one of its GPUs and are not bound yet.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.api.predicates.pod_requests import amounts, needs
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.core_v1 import Node, Pod
from kubeshare.core.units import format_memory
from kubeshare.dialects import families
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.meta import Key

_BY_NODE: Final = "requests on"


class _Unbound(NamedTuple):
    """Names in the holders of a node, and by uid what pods of these names request unbound."""

    keys: set[Key]
    requests: dict[str, Counter[str]]


class NodeResources:
    """The resources that nodes have left.

    Args:
        nodes: watches the nodes.
        pods: watches all pods.
        cluster_state: the vGPUs with their holders.
    """

    def __init__(
        self, nodes: Reflector[Node], pods: Reflector[Pod], cluster_state: ClusterState
    ) -> None:
        self._nodes = nodes.store
        self._pods = pods.store
        self._cluster_state = cluster_state
        self._used: dict[str, Counter[str]] = {}
        self._unbound: dict[str, _Unbound] = {}
        self._nodes_of: defaultdict[Key, set[str]] = defaultdict(set)  # those of `_unbound`
        self._pods.add_index(_BY_NODE, _on)
        pods.subscribe(self._on_pod)
        nodes.subscribe(self._on_node)
        cluster_state.pool.subscribe(self._on_vgpu)
        cluster_state.subscribe_to_pods(self._on_latest_pod)

    def filter(
        self,
        eligible: Eligible,
        pod: Pod,
        *,
        ignoring: str = "",
        alongside: Iterable[tuple[str, Pod]] = (),
    ) -> Eligible:
        """The eligible nodes with enough resources for a pod.

        Args:
            eligible: the nodes that accept the pod otherwise.
            pod: the pod.
            ignoring: a resource that is not checked.
            alongside: node and pod of other pods that are bound together with it; then their
                nodes alone are checked.
        """
        requests = needs(pod)
        requests.pop(ignoring, None)
        extra: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for name, other in alongside:
            extra[name].update(needs(other))
        refused = {}
        for name in eligible.nodes & extra.keys() if extra else eligible.nodes:
            node = self._nodes.get(name)
            taken = extra.get(name, Counter())
            refusal = self._refusal(node, pod, requests, taken) if node else "there is no such node"
            if refusal:
                refused[name] = refusal
        if not refused:
            return eligible
        return eligible.excluding(refused)

    def _refusal(self, node: Node, pod: Pod, requests: Counter[str], taken: Counter[str]) -> str:
        name = node.metadata.name
        has = amounts(node.status.allocatable)
        used = self._used_on(name) + self._reserved(name, pod) + taken
        for resource in sorted(requests):
            # The node may serve unlisted resources in other ways: kube-scheduler checks them. The
            # node agent alone offers those of families: a node that does not list one has none.
            listed = resource in has or resource in families.RESOURCES
            if listed and requests[resource] > has[resource] - used[resource]:
                left = _text(resource, max(0, has[resource] - used[resource]))
                return f"{resource} {left} left, {_text(resource, requests[resource])} asked"
        return ""

    def _used_on(self, node: str) -> Counter[str]:
        used = self._used.get(node)
        if used is None:
            used = Counter()
            for pod in self._pods.by_index(_BY_NODE, node):
                used.update(needs(pod))
            self._used[node] = used
        return used

    def _reserved(self, node: str, excluded: Pod) -> Counter[str]:
        """The requests of pods that hold a share on the node and are not bound to it yet."""
        reserved: Counter[str] = Counter()
        for uid, requests in self._unbound_on(node).requests.items():
            if uid != excluded.metadata.uid:
                reserved.update(requests)
        return reserved

    def _unbound_on(self, node: str) -> "_Unbound":
        unbound = self._unbound.get(node)
        if unbound is None:
            unbound = self._unbound[node] = _Unbound(set(), {})
            for vgpu in self._cluster_state.pool.on_node(node):
                for holder in vgpu.status.holders:
                    unbound.keys.add(Key(holder.namespace, holder.name))
            for key in unbound.keys:
                self._nodes_of[key].add(node)
                pod = self._cluster_state.pod(key)
                if pod is not None and not pod.spec.node_name and not pod.terminal:
                    unbound.requests[pod.metadata.uid] = needs(pod)
        return unbound

    def _forget_unbound(self, node: str) -> None:
        unbound = self._unbound.pop(node, None)
        for key in unbound.keys if unbound is not None else ():
            self._nodes_of[key].discard(node)
            if not self._nodes_of[key]:
                del self._nodes_of[key]

    def _on_vgpu(self, name: str) -> None:
        vgpu = self._cluster_state.pool.get(name)
        # Of one that is gone the node is not known.
        for node in tuple(self._unbound) if vgpu is None else (vgpu.spec.node_name,):
            self._forget_unbound(node)

    def _on_latest_pod(self, key: Key) -> None:
        for node in tuple(self._nodes_of.get(key, ())):
            self._forget_unbound(node)

    def _on_node(self, change: Change[Node]) -> None:
        if change.type == DELETED:
            self._used.pop(change.key.name, None)

    def _on_pod(self, change: Change[Pod]) -> None:
        for pod in (change.old, change.object):
            if pod is not None:
                self._used.pop(pod.spec.node_name, None)


def _on(pod: Pod) -> list[str]:
    return [pod.spec.node_name] if pod.spec.node_name and not pod.terminal else []


def _text(resource: str, amount: int) -> str:
    if resource in {"memory", "ephemeral-storage"}:
        return format_memory(amount // 1000)
    return f"{amount / 1000:g}"
