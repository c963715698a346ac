"""Finds the nodes with enough CPU, memory and pods left.

A gated pod can be rescheduled, a pod whose gate is removed cannot. So the node's allocatable
resources are checked before: less what its pods request, less what pods request that have a
share of one of its GPUs and are not bound yet.
"""

from collections import Counter, defaultdict
from typing import Final, NamedTuple

from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.api.predicates.pod_requests import PODS, amounts, needs
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
    total: Counter[str]


class Mates:
    """What pods that are placed together request of each node, before anything is written.

    What is found for one of them holds for the others that request the same, until another one is
    placed on the node.

    Attributes:
        requests: by node.
    """

    def __init__(self) -> None:
        self.requests: dict[str, Counter[str]] = {}
        self._placed: dict[str, tuple[str, Counter[str]]] = {}
        self._refusals: dict[frozenset[tuple[str, int]], dict[str, str]] = {}

    def place(self, node: str, pod: Pod) -> None:
        """Add a pod to those of a node."""
        requests = needs(pod)
        self._placed[pod.metadata.uid] = node, requests
        self.requests.setdefault(node, Counter()).update(requests)
        self._forget_refusals(node)

    def remove(self, uid: str) -> None:
        """Remove the pod of this uid; nothing happens if it was not placed."""
        if uid not in self._placed:
            return
        node, requests = self._placed.pop(uid)
        self.requests[node].subtract(requests)
        if not self.requests[node][PODS]:
            del self.requests[node]
        self._forget_refusals(node)

    def refusals(self, requests: Counter[str]) -> dict[str, str]:
        """By node, why it is refused to pods with these requests; ``""`` if it is not."""
        return self._refusals.setdefault(frozenset(requests.items()), {})

    def forget_refusals(self) -> None:
        """Drop what was found: the nodes may have changed."""
        self._refusals.clear()

    def _forget_refusals(self, node: str) -> None:
        for known in self._refusals.values():
            known.pop(node, None)


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
        mates: Mates | None = None,
    ) -> Eligible:
        """The eligible nodes with enough resources for a pod.

        Args:
            eligible: the nodes that accept the pod otherwise.
            pod: the pod.
            ignoring: a resource that is not checked.
            mates: the pods that are bound together with it; then their nodes alone are checked.
        """
        requests = needs(pod)
        requests.pop(ignoring, None)
        known = mates.refusals(requests) if mates else {}
        refused = {}
        for name in eligible.nodes & mates.requests.keys() if mates else eligible.nodes:
            holds = self._holds(name, pod)
            refusal = None if holds else known.get(name)
            if refusal is None:
                taken = mates.requests[name] if mates else Counter[str]()
                refusal = self._refusal(name, pod, requests, taken)
                if not holds:
                    known[name] = refusal
            if refusal:
                refused[name] = refusal
        if not refused:
            return eligible
        return eligible.excluding(refused)

    def _refusal(self, name: str, pod: Pod, requests: Counter[str], taken: Counter[str]) -> str:
        node = self._nodes.get(name)
        if node is None:
            return "there is no such node"
        has = amounts(node.status.allocatable)
        used, unbound = self._used_on(name), self._unbound_on(name)
        own = unbound.requests.get(pod.metadata.uid, Counter())
        for resource in sorted(requests):
            # The node may serve unlisted resources in other ways: kube-scheduler checks them. The
            # node agent alone offers those of families: a node that does not list one has none.
            listed = resource in has or resource in families.RESOURCES
            reserved = unbound.total[resource] - own[resource]
            free = has[resource] - used[resource] - reserved - taken[resource]
            if listed and requests[resource] > free:
                left = _text(resource, max(0, free))
                return f"{resource} {left} left, {_text(resource, requests[resource])} asked"
        return ""

    def _holds(self, node: str, pod: Pod) -> bool:
        """Whether a pod's own requests count on the node already."""
        return pod.metadata.uid in self._unbound_on(node).requests

    def _used_on(self, node: str) -> Counter[str]:
        used = self._used.get(node)
        if used is None:
            used = Counter()
            for pod in self._pods.by_index(_BY_NODE, node):
                used.update(needs(pod))
            self._used[node] = used
        return used

    def _unbound_on(self, node: str) -> _Unbound:
        """The requests of pods that hold a share on the node and are not bound to it yet."""
        unbound = self._unbound.get(node)
        if unbound is None:
            unbound = self._unbound[node] = _Unbound(set(), {}, Counter())
            for vgpu in self._cluster_state.pool.on_node(node):
                for holder in vgpu.status.holders:
                    unbound.keys.add(Key(holder.namespace, holder.name))
            for key in unbound.keys:
                self._nodes_of[key].add(node)
                pod = self._cluster_state.pod(key)
                if pod is not None and not pod.spec.node_name and not pod.terminal:
                    unbound.requests[pod.metadata.uid] = needs(pod)
            for requests in unbound.requests.values():
                unbound.total.update(requests)
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
