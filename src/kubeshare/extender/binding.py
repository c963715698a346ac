"""Binds pods: reserves a share on the node, writes the Binding.

The share is recorded first, as a holder without the uid of a pod, so nothing runs with it. The
Binding then sets the node and the annotations that name the GPU in one write, and the device
manager names the pod in the holder, as it does for every plain pod. A program that is killed in
between leaves a holder that the device manager removes after a while, unless a later bind of the
pod takes it back first.

The API server refuses a holder that a GPU has no room for, and a Binding of a pod that is bound. So
any number of replicas may bind at one time, beside KubeShare-Sched.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from kubeshare.api import gpuid_list, pods
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.vgpu_store import StaleDecisionError, holder_of
from kubeshare.api.types.constants import ANNOTATION_GPUIDS, ANNOTATION_NODE, LABEL_VGPU
from kubeshare.api.types.core_v1 import Pod
from kubeshare.api.types.v1 import VGPU
from kubeshare.api.vgpu_readiness import blocker
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects.write_back import gpushare_annotations
from kubeshare.extender.nodes import GpushareNodes
from kubeshare.extender.placement import Placement
from kubeshare.extender.wire.arguments import BindArguments
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ApiError, ConflictError, NotFoundError, UnreachableError
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import PODS, Raw

MAX_ATTEMPTS: Final = 10
"""Decisions for one bind while others change the GPUs of the node."""
SETTLE_ATTEMPTS: Final = 5
"""Attempts to take a reservation back while others change its vGPU."""


class BindError(Exception):
    """A pod cannot be bound; the text says why."""


class Binder:
    """Binds pods to nodes.

    Args:
        client: the API server.
        cluster_state: the vGPUs and pods.
        placement: chooses the GPU.
        nodes: the GPUs of the nodes.
        clock: returns the wall clock in nanoseconds since 1970.
    """

    def __init__(
        self,
        client: Client,
        cluster_state: ClusterState,
        placement: Placement,
        nodes: GpushareNodes,
        clock: Callable[[], int],
    ) -> None:
        self._client = client
        self._cluster_state = cluster_state
        self._pool = cluster_state.pool
        self._placement = placement
        self._nodes = nodes
        self._clock = clock
        self._deciding: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

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
        pod = pods.view(raw)
        if pod.spec.node_name == wanted.node:
            return  # by an earlier call whose answer was lost
        try:
            demand = self._placement.demand(raw)
        except InvalidValueError as error:
            raise BindError(str(error)) from None
        if demand is None or self._placement.decided_by_scheduler(raw, demand.uid):
            await self._post(wanted, {})
            return
        vgpu = await self._reserve(demand, wanted)
        try:
            await self._post(wanted, self._marks(vgpu, demand))
        except ApiError as error:
            await self._settle(wanted, vgpu, error)

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
            raise BindError(f'pods "{name}" not found') from None
        uid = live["metadata"]["uid"]
        if uid != wanted.pod_uid:
            raise BindError(
                f"The pod {name} in ns {namespace}'s uid is {uid}, "
                f"and it's not equal with expected {wanted.pod_uid}"
            )
        return live

    async def _reserve(self, demand: Demand, wanted: BindArguments) -> VGPU:
        """Reserve a share of a GPU of the node.

        Decisions about one node are made one after the other, so the binds of one replica never
        refuse each other's writes.

        Raises:
            BindError: no GPU of the node fits, or others have changed them again and again.
        """
        lock = self._deciding.setdefault(wanted.node, asyncio.Lock())
        async with lock:
            for _ in range(MAX_ATTEMPTS):
                await self._pool.settle()
                try:
                    attempt = await self._take_back(demand.uid)
                    return await self._reserve_once(demand, wanted, attempt + 1)
                except ConflictError:  # a StaleDecisionError is one
                    continue
        raise BindError(f"others changed the GPUs of node {wanted.node} {MAX_ATTEMPTS} times")

    async def _take_back(self, uid: str) -> int:
        """Release what an earlier bind has reserved; returns the number of its last decision."""
        attempt = 0
        for vgpu in self._pool.held_by(uid):
            holder = holder_of(vgpu, uid)
            attempt = max(attempt, holder.attempt if holder else 0)
            left = await self._pool.release(vgpu.metadata.name, uid)
            if left is not None and holder_of(left, uid):
                raise BindError(f"its share of {left.gpuid} on {left.spec.node_name} is in use")
        return attempt

    async def _reserve_once(self, demand: Demand, wanted: BindArguments, attempt: int) -> VGPU:
        decision = self._placement.decide(demand, wanted.node)
        if decision.outcome != "bound" or decision.new or len(decision.devices) != 1:
            reasons = "; ".join(f"{place}: {why}" for place, why in decision.reasons.items())
            raise BindError(
                f"The node {wanted.node} can't place the pod {wanted.pod_name} "
                f"in ns {wanted.pod_namespace}: {reasons}"
            )
        [name] = decision.devices
        vgpu = self._pool.get(name)
        if vgpu is None:
            raise StaleDecisionError(f"vGPU {name} is gone")
        blocked = blocker(vgpu, None)
        if blocked is not None:
            raise BindError(blocked.message)
        await self._pool.reserve(demand, decision, attempt)
        return self._pool.get(name) or vgpu

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

    def _marks(self, vgpu: VGPU, demand: Demand) -> dict[str, Any]:
        """The annotations and labels that the Binding adds to the pod."""
        holder = holder_of(vgpu, demand.uid)
        node = self._nodes.gpus(vgpu.spec.node_name)
        indices = {gpu.uuid: gpu.index for gpu in node.spec.devices} if node else {}
        unit = self._placement.unit_bytes
        published = gpushare_annotations(
            index=indices.get(vgpu.spec.uuid, -1),
            units=(holder.memory_bytes if holder else 0) // unit,
            gpu_units=vgpu.spec.memory_bytes // unit,
            time_ns=self._clock(),
        )
        decided = {
            ANNOTATION_GPUIDS: gpuid_list.format_list([vgpu.gpuid]),
            ANNOTATION_NODE: vgpu.spec.node_name,
        }
        # A GPUID may be no valid value of a label: the label has the name of the object.
        return {"annotations": published | decided, "labels": {LABEL_VGPU: vgpu.metadata.name}}

    async def _settle(self, wanted: BindArguments, vgpu: VGPU, error: ApiError) -> None:
        """Release the share of a Binding that failed; return if the pod is bound all the same.

        A Binding whose answer is not known may take effect later. Then the share is kept: a later
        bind takes it back, or the device manager removes it.

        Raises:
            BindError: the pod is not bound.
        """
        unknown = error.status >= 500 or (isinstance(error, UnreachableError) and error.sent)
        for _ in range(SETTLE_ATTEMPTS):
            pod = await self._live(wanted)
            if pod is not None and pod.spec.node_name and pods.names(pod, vgpu):
                return
            if pod is not None and not pod.spec.node_name and unknown:
                break
            try:
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
        return pods.view(live) if live["metadata"]["uid"] == wanted.pod_uid else None
