"""Whether a node has room for a pod besides its GPU, as kube-scheduler will see it.

A gated pod can be decided about again, one whose gate is gone cannot. So what can be known
beforehand is looked at here: the node's CPU, memory and number of pods, less what its pods
need, less what those need that have a part of one of its GPUs and are not bound yet.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.api.predicates.pod_requests import amounts, needs
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.core_v1 import Node, Pod
from kubeshare.core.units import format_memory
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.meta import Key

_BY_NODE: Final = "needs room on"


class NodeResources:
    """What nodes have left.

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
        self._pods.add_index(_BY_NODE, _on)
        pods.subscribe(self._changed)
        nodes.subscribe(self._gone)

    def filter(
        self,
        where: Eligible,
        pod: Pod,
        *,
        ignoring: str = "",
        alongside: Iterable[tuple[str, Pod]] = (),
    ) -> Eligible:
        """Where a pod may go, but for nodes without room for it.

        Args:
            where: the nodes that take it otherwise.
            pod: who asks.
            ignoring: a resource that is not checked.
            alongside: pods that are to come with it and hold nothing yet, each with its node.
        """
        asked = needs(pod)
        asked.pop(ignoring, None)
        coming: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for name, other in alongside:
            coming[name].update(needs(other))
        refused = {}
        for name in where.nodes:
            node = self._nodes.get(name)
            taken = coming.get(name, Counter())
            refusal = self._refusal(node, pod, asked, taken) if node else "there is no such node"
            if refusal:
                refused[name] = refusal
        if not refused:
            return where
        return where.excluding(refused)

    def _refusal(self, node: Node, pod: Pod, asked: Counter[str], taken: Counter[str]) -> str:
        name = node.metadata.name
        has = amounts(node.status.allocatable)
        used = self._used_on(name) + self._promised(name, pod) + taken
        for resource in sorted(asked):
            # What a node does not list may be served in other ways: kube-scheduler knows.
            if resource in has and asked[resource] > has[resource] - used[resource]:
                left = _text(resource, max(0, has[resource] - used[resource]))
                return f"{resource} {left} left, {_text(resource, asked[resource])} asked"
        return ""

    def _used_on(self, node: str) -> Counter[str]:
        used = self._used.get(node)
        if used is None:
            used = Counter()
            for pod in self._pods.by_index(_BY_NODE, node):
                used.update(needs(pod))
            self._used[node] = used
        return used

    def _promised(self, node: str, but: Pod) -> Counter[str]:
        """What those need that have a part of a GPU there and are on their way."""
        coming: dict[str, Pod] = {}
        for vgpu in self._cluster_state.pool.on_node(node):
            for holder in vgpu.status.holders:
                pod = self._cluster_state.pod(Key(holder.namespace, holder.name))
                if pod is not None and not pod.spec.node_name and not pod.terminal:
                    coming[pod.metadata.uid] = pod
        coming.pop(but.metadata.uid, None)
        promised: Counter[str] = Counter()
        for pod in coming.values():
            promised.update(needs(pod))
        return promised

    def _gone(self, change: Change[Node]) -> None:
        if change.type == DELETED:
            self._used.pop(change.key.name, None)

    def _changed(self, change: Change[Pod]) -> None:
        for pod in (change.old, change.object):
            if pod is not None:
                self._used.pop(pod.spec.node_name, None)


def _on(pod: Pod) -> list[str]:
    return [pod.spec.node_name] if pod.spec.node_name and not pod.terminal else []


def _text(resource: str, amount: int) -> str:
    if resource in {"memory", "ephemeral-storage"}:
        return format_memory(amount // 1000)
    return f"{amount / 1000:g}"
