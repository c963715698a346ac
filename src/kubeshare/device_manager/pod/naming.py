"""Names the GPUs of bound pods of Gaia that an extender placed.

That system's extender decides when kube-scheduler filters nodes, and kube-scheduler binds the pod.
So the holders are there first, and nothing in the pod says which GPUs they are on. Once the pod is
bound, it gets the annotations by which all other controllers know its GPUs, and those that the
published version writes.

A reservation is removed if the pod is not bound for a while, and kube-scheduler may bind it all the
same. Then the shares are reserved again on the node of the pod. If they do not fit, the pod is
restarted like others that lost an allocation before they started.
"""

import asyncio
from typing import Any, Final

import msgspec

from kubeshare.api import gpuid_list, pod_state
from kubeshare.api.holder_codec import are_shares_of, placed_gpus
from kubeshare.api.holders import holder_of
from kubeshare.api.owned_nodes import keeps_off
from kubeshare.api.types.constants import (
    ANNOTATION_GPUIDS,
    ANNOTATION_NODE,
    FAMILY_VCUDA,
    LABEL_VGPU,
    MANAGER_DEVICES,
)
from kubeshare.api.types.core_v1 import PODS, Pod
from kubeshare.api.types.v1 import VGPU, GPUDevice
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.messages import asked_for, explain
from kubeshare.core.errors import InvalidValueError
from kubeshare.device_manager.context import Context
from kubeshare.device_manager.sharepod.rescheduling.lost_allocation import LostAllocations
from kubeshare.dialects.families import VCUDA, Placed
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.controller.controller import RequeueAfter

NO_SHARE: Final = "no share of a GPU is reserved for it on node {}: {}"


class PodNaming:
    """Names the GPUs of bound pods, and reserves their shares where none are.

    Args:
        context: the state and the services that it uses.
        lost_allocations: restarts pods that get no share.
    """

    def __init__(self, context: Context, lost_allocations: LostAllocations) -> None:
        self._context = context
        self._client = context.client
        self._cluster_state = context.cluster_state
        self._pool = context.pool
        self._lost_allocations = lost_allocations
        self._deciding = asyncio.Lock()

    async def name(self, pod: Pod) -> Pod | RequeueAfter | None:
        """Name the GPUs of a bound pod of Gaia that has not started.

        Returns:
            the pod with the names; or when to try again; None if it is gone.

        Raises:
            ConflictError: the pod or a vGPU has changed.
        """
        held = self._held(pod)
        if held and _names(pod, held):
            return pod
        problem = await self._reserve(pod)
        if problem:
            message = NO_SHARE.format(pod.spec.node_name, problem)
            again = await self._lost_allocations.without_share(pod, message)
            return RequeueAfter(again) if again else None
        return await self._write(pod, self._held(pod))

    def _held(self, pod: Pod) -> list[VGPU]:
        held = self._pool.held_by(pod.metadata.uid)
        return [vgpu for vgpu in held if vgpu.spec.node_name == pod.spec.node_name]

    async def _reserve(self, pod: Pod) -> str:
        """Let a pod hold its shares on its node; returns why it cannot, or ``""``."""
        try:
            demand = VCUDA.demand_of(msgspec.to_builtins(pod), 1)
        except InvalidValueError as error:
            return str(error)
        if demand is None or are_shares_of(self._held(pod), demand):
            return ""
        # One at a time, so that each decision sees the holders of the one before it.
        async with self._deciding:
            return await self._reserve_again(pod, demand)

    async def _reserve_again(self, pod: Pod, demand: Demand) -> str:
        await self._pool.settle()
        await self._pool.refresh_node(pod.spec.node_name)  # the watch may be late
        if are_shares_of(self._held(pod), demand):
            return ""
        attempt = 0
        for vgpu in self._pool.held_by(demand.uid):
            holder = holder_of(vgpu, demand.uid)
            attempt = max(attempt, holder.attempt if holder else 0)
            left = await self._pool.release(vgpu.metadata.name, demand.uid)
            if left is not None and holder_of(left, demand.uid):
                return f"its share of vGPU {left.gpuid} on node {left.spec.node_name} is in use"
        node = self._context.informers.nodes.store.get(pod.spec.node_name)
        owned = self._context.configuration.now().owned
        refused = keeps_off(node, FAMILY_VCUDA, owned) if node is not None else "unknown"
        if refused:
            return f"it is {refused}"
        ledger = self._cluster_state.ledger()
        decision = self._context.policy(
            ledger, msgspec.structs.replace(demand, nodes=frozenset([pod.spec.node_name]))
        )
        if decision.outcome != "bound" or decision.new:
            return explain(ledger, demand, asked_for(decision))
        await self._pool.reserve(demand, decision, attempt + 1)
        return ""

    async def _write(self, pod: Pod, held: list[VGPU]) -> Pod | None:
        held = sorted(held, key=lambda vgpu: vgpu.gpuid)
        node = pod.spec.node_name
        placed = Placed(
            spec=msgspec.to_builtins(pod.spec),
            gpus=placed_gpus(held, pod.metadata.uid, self._device),
            node=node,
            unit=1,
            now=self._context.wall_clock(),
        )
        # Those that the author wrote say nothing true.
        theirs = filter(VCUDA.is_annotation, pod.metadata.annotations)
        annotations: dict[str, str | None] = dict.fromkeys(theirs)
        annotations |= VCUDA.annotations_of(placed)
        annotations[ANNOTATION_GPUIDS] = gpuid_list.format_list([vgpu.gpuid for vgpu in held])
        annotations[ANNOTATION_NODE] = node
        metadata: dict[str, Any] = {
            "annotations": annotations,
            # A GPUID may be no valid value of a label: the label has the name of the object.
            "labels": {LABEL_VGPU: held[0].metadata.name},
            "resourceVersion": pod.metadata.resource_version,
        }
        key = pod.metadata.key
        try:
            written = await self._client.merge_patch(
                PODS,
                key.name,
                {"metadata": metadata},
                key.namespace,
                field_manager=MANAGER_DEVICES,
            )
        except NotFoundError:
            self._cluster_state.forget_pod(pod)
            return None
        self._cluster_state.assume_pod(written)
        return written

    def _device(self, vgpu: VGPU) -> GPUDevice | None:
        found = self._context.informers.gpunodes.store.get(vgpu.spec.node_name)
        devices = found.spec.devices if found is not None else ()
        return next((each for each in devices if each.uuid == vgpu.spec.uuid), None)


def _names(pod: Pod, held: list[VGPU]) -> bool:
    """Whether a pod is annotated with exactly these vGPUs."""
    same = {vgpu.gpuid for vgpu in held} == set(pod.gpuids)
    return same and all(pod_state.names(pod, vgpu) for vgpu in held)
