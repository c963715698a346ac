"""Queues unschedulable requesters again when something may let them in.

A requester without room is queued when a GPU may fit it that did not before
(:mod:`kubeshare.core.ledger.growth`), when its nodes, quotas or the configuration change, and when
there is one more pod to preempt; one whose vGPUs are not ready, when these or their placeholders
change. What only takes room, and a node's heartbeat, queues nobody. All are queued every
:data:`RESYNC_SECONDS`, whatever a filter has missed.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final

from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.unschedulable import UnschedulableQueue
from kubeshare.api.types.core_v1 import Node, Pod
from kubeshare.api.types.v1 import VGPU, GPUNode
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.controller.workqueue import WorkQueue
from kubeshare.kube.meta import Key
from kubeshare.scheduler.requesters.base import RequesterKey

RESYNC_SECONDS: Final = 600.0
"""Seconds between two times that all unschedulable requesters are queued."""


class Wakeups:
    """Queues unschedulable requesters.

    Args:
        queue: the queue of the scheduler.
        unschedulable: the requesters.
        cluster_state: the GPUs; it says when there is more room.
        kinds: the names of the kinds of requesters.
    """

    def __init__(
        self,
        queue: WorkQueue[RequesterKey],
        unschedulable: UnschedulableQueue[RequesterKey],
        cluster_state: ClusterState,
        kinds: Iterable[str],
    ) -> None:
        self._queue = queue
        self._unschedulable = unschedulable
        self._cluster_state = cluster_state
        self._kinds = tuple(kinds)
        self._all_due = False
        cluster_state.subscribe_to_growth(self.queue_all)

    def queue_all(self) -> None:
        """Queue all, the oldest first, once for all events that are handled in a row."""
        if not self._all_due:
            self._all_due = True
            asyncio.get_running_loop().call_soon(self._queue_all)

    def _queue_all(self) -> None:
        self._all_due = False
        for key in self._unschedulable.oldest_first():
            self._queue.add(key)

    def all(self, _: object) -> tuple[()]:
        """Queue all; for ``Controller.watch``."""
        self.queue_all()
        return ()

    def update_ledger(self, _: object) -> tuple[()]:
        """Update the ledger, if anybody waits; all are queued if there may be more room."""
        if self._unschedulable:
            self._cluster_state.ledger()
        return ()

    def of_vgpu(self, vgpu: VGPU) -> Iterator[RequesterKey]:
        """Those with a share of this vGPU that wait until it is ready."""
        for holder in vgpu.status.holders:
            for kind in self._kinds:
                key = RequesterKey(kind, Key(holder.namespace, holder.name))
                if self._unschedulable.is_blocked(key):
                    yield key

    def of_placeholder(self, pod: Pod) -> Iterator[RequesterKey]:
        """Those with a share of the vGPU whose placeholder this pod is."""
        vgpu = self._cluster_state.pool.get(pod.placeholder_of) if pod.placeholder_of else None
        if vgpu is not None:
            yield from self.of_vgpu(vgpu)

    async def resync(self) -> None:
        """Queue all from time to time, until cancelled."""
        while True:
            await asyncio.sleep(RESYNC_SECONDS)
            self.queue_all()


def node_changed(change: Change[Node]) -> bool:
    """Whether pods may be accepted or refused for another reason, or have other resources."""
    old, new = change.old, change.object
    return change.type == DELETED or old is None or _facts(old) != _facts(new)


def gpunode_changed(change: Change[GPUNode]) -> bool:
    """Whether a node agent or the device manager reported something else about a node."""
    old, new = change.old, change.object
    return change.type == DELETED or old is None or (old.spec, old.status) != (new.spec, new.status)


def _facts(node: Node) -> tuple[object, ...]:
    return node.ready, node.metadata.labels, node.spec, node.status.allocatable
