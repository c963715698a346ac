"""Binds pods: reserves a share on the node, writes the Binding.

The share is recorded first, as a holder without the uid of a pod, so nothing runs with it. The
Binding then sets the node and the annotations that name the GPU in one write, and the device
manager names the pod in the holder, as it does for every plain pod. A program that is killed in
between leaves a holder that the device manager removes after a while, unless a later bind of the
pod takes it back first.

The API server refuses a holder that a GPU has no room for, a Binding of a pod that is bound, and
one for another version of the pod than the present one. Before a share is released, the version
changes (:mod:`kubeshare.api.state.pod_bindings`). So any number of replicas may bind one pod at one
time, beside KubeShare-Sched, and none takes back what the Binding of another has made the pod's.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from kubeshare.api import gpuid_list, pod_state
from kubeshare.api.holders import holder_of
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.pod_bindings import void_bindings
from kubeshare.api.types.constants import (
    ANNOTATION_GPUIDS,
    ANNOTATION_NODE,
    GATE,
    LABEL_VGPU,
    MANAGER_EXTENDER,
)
from kubeshare.api.types.core_v1 import Pod
from kubeshare.api.types.v1 import VGPU
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects import gpushare
from kubeshare.dialects.write_back import PlacedGpu, gpushare_placement
from kubeshare.extender.nodes import FamilyNodes
from kubeshare.extender.placement import (
    CHOSEN_BY_SCHEDULER,
    OF_NO_GPUSHARE,
    Placement,
    is_of_sharepod,
)
from kubeshare.extender.pod_lookup import PodLookup
from kubeshare.extender.reservation import (
    AlreadyBoundError,
    BindError,
    PodChangedError,
    Reservation,
    Reservations,
)
from kubeshare.extender.wire.arguments import BindArguments
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ApiError, ConflictError
from kubeshare.kube.resources import PODS, Raw

NOT_HANDED_OVER: Final = (
    f"it has the scheduling gate {GATE}: KubeShare's scheduler places it, or removes the gate if "
    "the configuration hands the pods of its family over (door: extender)"
)
MAX_VERSIONS: Final = 5
"""Versions of a pod that one call tries to bind while others change the pod."""
SETTLE_ATTEMPTS: Final = 5
"""Attempts to take a reservation back while others change its vGPU."""


class Binder:
    """Binds pods to nodes.

    Args:
        client: the API server.
        cluster_state: the vGPUs and pods.
        placement: chooses the GPU.
        nodes: the GPUs of the nodes.
        wall_clock: gives the time in annotations, aware.
    """

    def __init__(
        self,
        client: Client,
        cluster_state: ClusterState,
        placement: Placement,
        nodes: FamilyNodes,
        wall_clock: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._pods = PodLookup(client, cluster_state)
        self._pool = cluster_state.pool
        self._placement = placement
        self._reservations = Reservations(cluster_state.pool, placement)
        self._nodes = nodes
        self._wall_clock = wall_clock

    async def bind(self, wanted: BindArguments) -> None:
        """Bind a pod to the node that kube-scheduler has chosen.

        Raises:
            BindError: it cannot be bound, and nothing is held for it.
            ApiError: the API server does not answer; shares may be held, which a later bind takes
                back, or else the device manager.
        """
        raw = await self._pods.find(wanted.pod, wanted.pod_uid)
        if not self._nodes.exists(wanted.node):
            raise BindError(f'node "{wanted.node}" not found')
        for _ in range(MAX_VERSIONS):
            try:
                return await self._bind_version(wanted, raw)
            except PodChangedError:
                raw = await self._pods.read(wanted.pod, wanted.pod_uid)
        raise BindError(f"others changed the pod {MAX_VERSIONS} times while it was being bound")

    async def _bind_version(self, wanted: BindArguments, raw: Raw) -> None:
        """Bind a pod if its version is still the present one.

        Raises:
            PodChangedError: it has another version, and nothing is held for it.
            BindError, ApiError: as :meth:`bind`.
        """
        pod = pod_state.view(raw)
        if pod.spec.node_name == wanted.node:
            return  # by an earlier call whose answer was lost
        if pod.gated:
            raise BindError(NOT_HANDED_OVER)
        demand = self._demand(raw)
        if demand is None:
            self._check_node(self._of_sharepod(pod), wanted.node)
            await self._post(wanted, {})
            return
        if decided := self._placement.decided_by_scheduler(raw, demand.uid):
            self._check_node(decided, wanted.node)
            await self._post(wanted, {})
            return
        if wanted.node not in self._nodes:
            raise BindError(OF_NO_GPUSHARE.format(wanted.node))
        try:
            reserved = await self._reservations.reserve(
                demand,
                wanted.node,
                int(pod.metadata.resource_version),
                partial(self._void_bindings, wanted),
            )
        except AlreadyBoundError as bound:
            if bound.node == wanted.node:
                return
            raise
        marks = self._marks(raw, reserved.vgpus) | {"resourceVersion": str(reserved.version)}
        try:
            await self._post(wanted, marks)
        except ApiError as error:
            await self._settle(wanted, reserved, error)

    def _demand(self, pod: Raw) -> Demand | None:
        """What a pod asks for; None if its SharePod has its share.

        Raises:
            BindError: a value is not acceptable, or it asks for nothing.
        """
        try:
            demand = self._placement.demand(pod)
        except InvalidValueError as error:
            raise BindError(str(error)) from None
        if demand is None and not (is_of_sharepod(pod) and gpushare.requests(pod["spec"])):
            raise BindError(f"it asks for no {gpushare.GPU_MEMORY}: kube-scheduler binds it itself")
        return demand

    def _of_sharepod(self, pod: Pod) -> list[VGPU]:
        """The vGPU for which the device manager has created the pod of a SharePod.

        Raises:
            BindError: it is gone.
        """
        name = pod.metadata.labels.get(LABEL_VGPU, "")
        vgpu = self._pool.get(name)
        if vgpu is None:
            raise BindError(f"the vGPU {name or 'of its SharePod'} is gone")
        return [vgpu]

    async def _void_bindings(
        self, wanted: BindArguments, version: int, attempts: Collection[int]
    ) -> int:
        """Void what binds of these versions have sent; returns the version of the pod.

        Raises:
            AlreadyBoundError: one of them has succeeded, which the watch may not have delivered.
            PodChangedError: the pod has another version than the given one.
        """
        live = pod_state.view(await self._pods.read(wanted.pod, wanted.pod_uid))
        if live.spec.node_name:
            raise AlreadyBoundError(live.spec.node_name)
        if live.metadata.resource_version != str(version):
            raise PodChangedError
        return await self._void(live, attempts)

    async def _void(self, pod: Pod, attempts: Collection[int]) -> int:
        return await void_bindings(
            self._client,
            pod.metadata,
            attempts,
            manager=MANAGER_EXTENDER,
            subresource="status",  # so that the extender needs no right to change containers
        )

    @staticmethod
    def _check_node(decided: Sequence[VGPU], node: str) -> None:
        chosen = decided[0].spec.node_name
        if chosen != node:
            raise BindError(CHOSEN_BY_SCHEDULER.format(chosen))

    async def _post(self, wanted: BindArguments, marks: dict[str, Any]) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": wanted.pod_name,
                "namespace": wanted.pod_namespace,
                "uid": wanted.pod_uid,
                **marks,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": wanted.node},
        }
        await self._client.post(PODS, wanted.pod_name, "binding", body, wanted.pod_namespace)

    def _marks(self, pod: Raw, vgpus: Sequence[VGPU]) -> dict[str, Any]:
        """The annotations and labels that the Binding adds to the pod."""
        first, uid = vgpus[0], pod["metadata"]["uid"]
        node = self._nodes.gpus(first.spec.node_name)
        indices = {gpu.uuid: gpu.index for gpu in node.spec.devices} if node else {}
        gpus = [
            PlacedGpu(
                uuid=vgpu.spec.uuid,
                model=vgpu.spec.model,
                memory_bytes=holder.memory_bytes,
                index=indices.get(vgpu.spec.uuid),
                total_bytes=vgpu.spec.memory_bytes,
            )
            for vgpu in vgpus
            if (holder := holder_of(vgpu, uid)) is not None
        ]
        unit = self._placement.unit_bytes
        published = gpushare_placement(pod["spec"], gpus, unit, self._wall_clock())
        decided = {
            ANNOTATION_GPUIDS: gpuid_list.format_list([vgpu.gpuid for vgpu in vgpus]),
            ANNOTATION_NODE: first.spec.node_name,
        }
        # A GPUID may be no valid value of a label: the label has the name of the object.
        return {"annotations": published | decided, "labels": {LABEL_VGPU: first.metadata.name}}

    async def _settle(self, wanted: BindArguments, reserved: Reservation, error: ApiError) -> None:
        """Release the shares of a Binding that failed; return if the pod is bound all the same.

        The Binding is voided first: its answer may not be known, or another replica may have
        reserved the same GPU since.

        Raises:
            PodChangedError: the Binding was for a version that the pod no longer had.
            BindError: the pod is not bound.
        """
        for _ in range(SETTLE_ATTEMPTS):
            pod = await self._pods.live(wanted.pod, wanted.pod_uid)
            is_bound = pod is not None and bool(pod.spec.node_name)
            if pod is not None and is_bound and _names_all(pod, reserved.vgpus):
                return
            try:
                if pod is not None and not is_bound:
                    await self._void(pod, {reserved.version})
                for vgpu in reserved.vgpus:
                    name = vgpu.metadata.name
                    await self._pool.release(name, wanted.pod_uid, reserved.version)
            except ConflictError:
                continue
            changed = pod is not None and pod.metadata.resource_version != str(reserved.version)
            if isinstance(error, ConflictError) and changed and not is_bound:
                raise PodChangedError
            break
        raise BindError(error.message)


def _names_all(pod: Pod, vgpus: Sequence[VGPU]) -> bool:
    return all(pod_state.names(pod, vgpu) for vgpu in vgpus)
