"""Tracks the grants of running pods that lack a holder.

The record of the API server can be older than what runs, for example after etcd was restored from
a snapshot. Such a pod keeps its grant, because its processes use the GPU whatever the record says.
The GPUNode names it, so that nothing else is placed on its GPUs until it has ended or is in the
record again.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from typing import Final

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubeshare.api.types.core_v1 import NODES, Node
from kubeshare.api.types.v1 import MAX_UNRECORDED_PODS
from kubeshare.kube.controller.events import NORMAL, WARNING, EventRecorder, reference
from kubeshare.node.dra.grants import Grants, PodGrant

EVERY_GPU: Final = "*"
"""Among the GPUs of a grant: it may use any of the node, also one that is not discovered yet."""

log = structlog.get_logger(__name__)


class UnrecordedGrants(Collector):
    """The unrecorded grants of one node.

    Args:
        grants: the grants on disk; one that is removed is none of these any more.
        events: records changes on the Node.
        node: the Node object; None while it is unknown.
        on_change: called when a grant is added or discarded.
    """

    def __init__(
        self,
        grants: Grants,
        events: EventRecorder,
        node: Callable[[], Node | None],
        on_change: Callable[[], None],
    ) -> None:
        self._grants = grants
        self._events = events
        self._node = node
        self._on_change = on_change
        self._gpus: dict[str, frozenset[str]] = {}  # claim -> UUIDs
        self._pods: dict[str, str] = {}  # claim -> namespace/name
        self._every: Collection[str] = ()
        self._reported: dict[str, tuple[str, ...]] = {}

    def __contains__(self, claim: str) -> bool:
        return claim in self._gpus

    def add(self, grant: PodGrant, gpus: Collection[str]) -> None:
        """Add a claim that has grants, but no holders, on these GPUs (UUIDs, or `EVERY_GPU`)."""
        found = frozenset(gpus)
        pod = f"{grant.pod_namespace}/{grant.pod_name}"
        if self._gpus.get(grant.claim) == found and self._pods[grant.claim] == pod:
            return
        self._gpus[grant.claim], self._pods[grant.claim] = found, pod
        log.warning(
            "a pod runs without a holder: it keeps its grant",
            pod=pod,
            claim_uid=grant.claim,
            gpus=sorted(found),
        )
        self._on_change()

    def discard(self, claim: str) -> None:
        """Remove a claim that has all of its holders, or no grant any more."""
        if self._gpus.pop(claim, None) is not None:
            self._on_change()

    def pods(self) -> dict[str, tuple[str, ...]]:
        """UUID → the pods (``namespace/name``) that run without a holder, sorted and bounded.

        The GPUs of the node are those of the last report.
        """
        found: defaultdict[str, set[str]] = defaultdict(set)
        for claim, gpus in tuple(self._gpus.items()):
            if claim not in self._grants:
                del self._gpus[claim]
                continue
            for uuid in {*gpus, *self._every} - {EVERY_GPU} if EVERY_GPU in gpus else gpus:
                found[uuid].add(self._pods[claim])
        return {uuid: tuple(sorted(pods)[:MAX_UNRECORDED_PODS]) for uuid, pods in found.items()}

    def report(self, gpus: Collection[str]) -> dict[str, tuple[str, ...]]:
        """As :meth:`pods`; an event on the Node says what has changed since the last report.

        Args:
            gpus: the UUIDs of the node's GPUs.
        """
        self._every = gpus
        now, node = self.pods(), self._node()
        if node is not None and now.keys() != self._reported.keys():
            about = reference(NODES, node)
            for uuid in sorted(now.keys() - self._reported.keys()):
                note = (
                    f"pods use GPU {uuid} by grants for which no vGPU has a holder, as after etcd "
                    "was restored from an older snapshot: it gives no more shares until they have "
                    f"ended; `kubectl describe gpunode {node.metadata.name}` names them"
                )
                self._events.emit(about, "UnrecordedPods", "Fencing", note, type=WARNING)
            for uuid in sorted(self._reported.keys() - now.keys()):
                note = f"all pods that use GPU {uuid} have holders: it gives shares again"
                self._events.emit(about, "Recorded", "Recovering", note, type=NORMAL)
            self._reported = now
        return now

    def register(self, registry: CollectorRegistry) -> None:
        """Register the metric for collection."""
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """The number of such pods of each GPU that has some."""
        now = GaugeMetricFamily(
            "kubeshare_node_unrecorded_pods",
            "Pods that run on a GPU without a holder, as far as the GPUNode names them",
            labels=["gpu"],
        )
        for uuid, pods in self.pods().items():
            now.add_metric([uuid], len(pods))
        yield now
