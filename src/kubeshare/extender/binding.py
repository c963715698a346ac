"""Binds pods: reserves a share on the node, writes the Binding.

The share is recorded first, as a holder without the uid of a pod, so nothing runs with it. The
Binding then sets the node and the annotations that name the GPU in one write, and the device
manager names the pod in the holder, as it does for every plain pod. A program that is killed in
between leaves a holder that the device manager removes after a while, unless a later bind of the
pod takes it back first.

The API server refuses a holder that a GPU has no room for, and a Binding of a pod that is bound. So
any number of replicas may bind at one time, beside KubeShare-Sched.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

import msgspec

from kubeshare.api import gpuid_list, pod_state
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.vgpu_store import holder_of
from kubeshare.api.types.constants import ANNOTATION_GPUIDS, ANNOTATION_NODE, GATE, LABEL_VGPU
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
from kubeshare.extender.reservation import (
    AlreadyBoundError,
    BindError,
    Reservations,
    UnknownPodError,
)
from kubeshare.extender.wire.arguments import BindArguments
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ApiError, ConflictError, NotFoundError, UnreachableError
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import PODS, Raw

NOT_HANDED_OVER: Final = (
    f"it has the scheduling gate {GATE}: KubeShare's scheduler places it, or removes the gate if "
    "the configuration says gpushare: {door: extender}"
)
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
        self._cluster_state = cluster_state
        self._pool = cluster_state.pool
        self._placement = placement
        self._reservations = Reservations(cluster_state.pool, placement)
        self._nodes = nodes
        self._wall_clock = wall_clock

    async def bind(self, wanted: BindArguments) -> None:
        """Bind a pod to the node that kube-scheduler has chosen.

        Raises:
            BindError: it cannot be bound; nothing is held for it, unless the answer of the API
                server to the Binding is not known.
            ApiError: the API server does not answer.
        """
        raw = await self._pod(wanted)
        if not self._nodes.exists(wanted.node):
            raise BindError(f'node "{wanted.node}" not found')
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
            vgpus = await self._reservations.reserve(
                demand, wanted.node, partial(self._check_unbound, wanted)
            )
        except AlreadyBoundError as bound:
            if bound.node == wanted.node:
                return
            raise
        try:
            await self._post(wanted, self._marks(raw, vgpus))
        except ApiError as error:
            await self._settle(wanted, vgpus, error)

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

    async def _check_unbound(self, wanted: BindArguments) -> None:
        """Raise if a live read finds the pod bound, for example by another replica."""
        pod = await self._live(wanted)
        if pod is not None and pod.spec.node_name:
            raise AlreadyBoundError(pod.spec.node_name)

    @staticmethod
    def _check_node(decided: Sequence[VGPU], node: str) -> None:
        chosen = decided[0].spec.node_name
        if chosen != node:
            raise BindError(CHOSEN_BY_SCHEDULER.format(chosen))

    async def _pod(self, wanted: BindArguments) -> Raw:
        """The pod of the call: from the watch, or else by a live read."""
        name, namespace = wanted.pod_name, wanted.pod_namespace
        known = self._cluster_state.pod(Key(namespace, name))
        if known is not None and known.metadata.uid == wanted.pod_uid:
            raw: Raw = msgspec.to_builtins(known)
            return raw
        try:
            live = await self._client.get(PODS, name, namespace)
        except NotFoundError:
            raise UnknownPodError(f'pods "{name}" not found') from None
        uid = live["metadata"]["uid"]
        if uid != wanted.pod_uid:
            raise UnknownPodError(
                f"The pod {name} in ns {namespace}'s uid is {uid}, "
                f"and it's not equal with expected {wanted.pod_uid}"
            )
        return live

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

    async def _settle(self, wanted: BindArguments, vgpus: Sequence[VGPU], error: ApiError) -> None:
        """Release the shares of a Binding that failed; return if the pod is bound all the same.

        A Binding whose answer is not known may take effect later. Then the shares are kept: a
        later bind takes them back, or the device manager removes them.

        Raises:
            BindError: the pod is not bound.
        """
        unknown = error.status >= 500 or (isinstance(error, UnreachableError) and error.sent)
        for _ in range(SETTLE_ATTEMPTS):
            pod = await self._live(wanted)
            if pod is not None and pod.spec.node_name:
                if all(pod_state.names(pod, vgpu) for vgpu in vgpus):
                    return
            elif pod is not None and unknown:
                break
            try:
                for vgpu in vgpus:
                    await self._pool.release(vgpu.metadata.name, wanted.pod_uid)
            except ConflictError:
                continue
            break
        raise BindError(error.message)

    async def _live(self, wanted: BindArguments) -> Pod | None:
        """The pod as a live read returns it; None if it is gone."""
        try:
            live = await self._client.get(PODS, wanted.pod_name, wanted.pod_namespace)
        except NotFoundError:
            return None
        return pod_state.view(live) if live["metadata"]["uid"] == wanted.pod_uid else None
