"""Garbage-collects holders whose SharePod or pod no longer wants them.

A holder without a pod uid stands for a pod that was never bound, so nothing of it has run.
It is removed once live reads confirm that its SharePod or pod is gone or has another GPU. A
holder with a pod uid is the node's to remove, when the containers have stopped.

A scheduler extender adds the holder before it binds the pod, and nothing in the pod says so. Such a
holder is removed if the Binding can no longer take effect, since the pod has another version than
the holder; and if the pod is still not bound after a while: the extender was killed in between.
Where an extender decides in its filter, kube-scheduler's Binding is for any version of the pod, so
only the time counts; the holders on the bound pod's node are named in it (:mod:`..pod.naming`).
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from kubeshare.api import pod_state, sharepods
from kubeshare.api.holders import one_of_each_demand
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.pod_bindings import void_bindings
from kubeshare.api.types.constants import MANAGER_DEVICES
from kubeshare.api.types.core_v1 import PODS, Pod
from kubeshare.api.types.v1 import SHAREPODS, VGPU, Holder
from kubeshare.device_manager.metrics import Metrics
from kubeshare.kube.cache.store import Store
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.controller.pending import PendingSince
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import Raw

BIND_SECONDS: Final = 60.0
"""Seconds after which a bind is not under way any more; an extender gives up much earlier."""

TOGETHER: Final = 16
"""Holders of a vGPU that are checked before those of them that are orphans leave in one write.

Each write of a vGPU makes concurrent ones of its node fail, so one for each holder could keep a
node from releasing any while many SharePods are deleted.
"""


class OrphanedHolders:
    """Removes orphaned holders from vGPUs.

    Args:
        client: for live reads.
        cluster_state: the GPUs and pods of the cluster.
        sharepod_store: the SharePods.
        metrics: counts removed holders.
    """

    def __init__(
        self,
        client: Client,
        cluster_state: ClusterState,
        sharepod_store: Store[Raw],
        metrics: Metrics,
    ) -> None:
        self._client = client
        self._pool = cluster_state.pool
        self._cluster_state = cluster_state
        self._sharepod_store = sharepod_store
        self._metrics = metrics
        self._binding: PendingSince[_Binding] = PendingSince()

    async def collect(self, vgpu: VGPU) -> tuple[VGPU | None, RequeueAfter | None]:
        """Remove the orphaned holders of a vGPU.

        Returns:
            the vGPU as it is afterwards, and when to look again.
        """
        name, holders = vgpu.metadata.name, vgpu.status.holders
        known = {_Binding(name, each.demand, each.attempt) for each in holders if not each.pod_uid}
        self._retain(name, known)
        current: VGPU | None = vgpu
        unused = [each for each in one_of_each_demand(vgpu) if not each.pod_uid]
        for at in range(0, len(unused), TOGETHER):
            some = unused[at : at + TOGETHER]
            orphans = {
                each.demand: each.attempt for each in some if await self._is_orphan(vgpu, each)
            }
            if orphans:
                current = await self._pool.release_all(name, orphans)
                self._metrics.released.inc(len(orphans))
        waits = [self._binding.remaining(each, BIND_SECONDS) for each in known & {*self._binding}]
        left = min((seconds for seconds in waits if seconds), default=None)
        return current, None if left is None else RequeueAfter(left)

    def forget(self, name: str) -> None:
        """Drop what is known about a vGPU that is gone."""
        self._retain(name, frozenset())

    def _retain(self, name: str, known: Collection["_Binding"]) -> None:
        for ended in [each for each in self._binding if each.vgpu == name and each not in known]:
            self._binding.forget(ended)

    async def _is_orphan(self, vgpu: VGPU, holder: Holder) -> bool:
        key = Key(holder.namespace, holder.name)
        pod = self._cluster_state.pod(key)
        if pod is not None and self._may_need(pod, vgpu, holder):
            return False
        if wanted(self._sharepod_store.by_key(key), vgpu, holder):
            return False
        live_pod = await self._live_pod(key)
        if live_pod is not None and self._is_wanted_by_pod(live_pod, vgpu, holder):
            return False
        try:
            live = await self._client.get(SHAREPODS, holder.name, holder.namespace)
        except NotFoundError:
            live = None
        if wanted(live, vgpu, holder):
            return False
        if live_pod is not None and live_pod.metadata.uid == holder.demand:
            await self._void_binding(live_pod, holder)
        return True

    async def _live_pod(self, key: Key) -> Pod | None:
        try:
            return await self._client.get(PODS, key.name, key.namespace)
        except NotFoundError:
            return None

    async def _void_binding(self, pod: Pod, holder: Holder) -> None:
        """Let no Binding with the share of this holder take effect, however late it arrives.

        Raises:
            ConflictError: the pod has changed; it may be bound.
        """
        if pod_state.may_be_binding(pod) and pod.metadata.deletion_timestamp is None:
            attempts = {holder.attempt}
            await void_bindings(self._client, pod.metadata, attempts, manager=MANAGER_DEVICES)

    def _may_need(self, pod: Pod, vgpu: VGPU, holder: Holder) -> bool:
        """It is the SharePod's pod and may still be bound, or a plain pod that wants the holder."""
        bindable = not pod.terminal and _owner(pod) == holder.demand
        return bindable or self._is_wanted_by_pod(pod, vgpu, holder)

    def _is_wanted_by_pod(self, pod: Pod, vgpu: VGPU, holder: Holder) -> bool:
        """It is the plain pod of the holder's demand, and wants this share."""
        if pod.metadata.uid != holder.demand or pod.terminal:
            return False
        if pod.spec.node_name:
            unnamed = not pod.gpuids and pod_state.is_bound_with_cores(pod)
            here = vgpu.spec.node_name == pod.spec.node_name
            return here and (unnamed or pod_state.names(pod, vgpu))
        if pod.metadata.deletion_timestamp is not None:
            return False
        # Sched adds the holder while the pod is gated, and then writes the GPUIDs.
        return pod.gated or pod_state.names(pod, vgpu) or self._is_binding(pod, vgpu, holder)

    def _is_binding(self, pod: Pod, vgpu: VGPU, holder: Holder) -> bool:
        """Whether the pod may be about to be bound, by an extender or after its filter."""
        version = pod.metadata.resource_version
        by_extender = pod_state.may_be_binding(pod) and version == str(holder.attempt)
        if not by_extender and not pod_state.may_have_passed_filter(pod):
            return False
        binding = _Binding(vgpu.metadata.name, holder.demand, holder.attempt)
        return self._binding.remaining(binding, BIND_SECONDS) > 0


class _Binding(NamedTuple):
    """A share that may be about to be bound: the vGPU, the demand, the number of the decision."""

    vgpu: str
    demand: str
    attempt: int


def wanted(raw: Raw | None, vgpu: VGPU, holder: Holder) -> bool:
    """Whether a SharePod still wants its share of a vGPU; False for None."""
    if raw is None:
        return False
    sharepod = sharepods.view(raw)
    over = sharepods.is_deleting(sharepod) or sharepods.finished(sharepod)
    if over or sharepod.metadata.uid != holder.demand:
        return False
    # Sched adds the holder before it writes the decision.
    return not sharepods.decided(sharepod) or sharepods.names(sharepod, vgpu)


def _owner(pod: Pod) -> str:
    controller = pod.metadata.controller
    return controller.uid if controller else ""
