"""Keeps the Degraded condition of vGPUs up to date.

A shared GPU is degraded when it fails, runs pods that no vGPU has a holder for or has a driver that
is too old for new shares, as the node agent reports in the GPUNode, or when Kubernetes may give the
GPU to another pod: its placeholder is gone, or its node is owned and offers GPUs all the same. A
vGPU that waits for a GPU on an owned node gets none. The ledger refuses new holders for the same
reasons without waiting for the condition (:mod:`kubeshare.api.state.ledger_builder`). Pods that
share the GPU stay unless the configuration has them evicted.
"""

from typing import Final, TypeAlias

from kubeshare.api import holders
from kubeshare.api.owned_nodes import is_owned
from kubeshare.api.state.ledger_builder import keeps_gpu, runs_unrecorded
from kubeshare.api.types.constants import (
    CONDITION_DEGRADED,
    CONDITION_OWNED,
    NAMESPACE,
    placeholder_name,
)
from kubeshare.api.types.core_v1 import PODS
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU, GPUNode
from kubeshare.api.vgpu_readiness import failure
from kubeshare.device_manager.context import Context
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.conditions import find_condition, is_true, set_condition
from kubeshare.kube.meta import Condition

Problem: TypeAlias = tuple[Reason, str]
"""Why a GPU cannot be used now: a reason and a message."""

_HEALTHY: Final = "its GPU is healthy, and kept from other pods"


class VGPUHealth:
    """Sets the Degraded condition of vGPUs, and records its changes.

    Args:
        context: the state and the services that it uses.
    """

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._pool = context.pool
        self._gpunodes = context.informers.gpunodes.store
        self._placeholders = context.placeholders
        self._events = context.events
        self._wall_clock = context.wall_clock

    async def reconcile(self, vgpu: VGPU) -> VGPU | None:
        """Update the condition, and record an event for each holder when it changes.

        Returns:
            the vGPU afterwards; None when it no longer exists.
        """
        problem = await self._problem(vgpu)
        if problem is None and not is_true(vgpu.status.conditions, CONDITION_DEGRADED):
            return vgpu
        reason, message = problem or (Reason.HEALTHY, _HEALTHY)
        wanted = Condition(
            type=CONDITION_DEGRADED,
            status="True" if problem else "False",
            reason=reason,
            message=message,
        )

        def operations(current: VGPU) -> list[holders.Operation] | None:
            if reason == Reason.PLACEHOLDER_LOST and current.spec.is_static:
                return None  # its node has been taken over in between
            conditions, changed = set_condition(
                current.status.conditions, wanted, self._wall_clock()
            )
            return holders.set_conditions(current, conditions) if changed else None

        changed = await self._pool.update(vgpu.metadata.name, operations)
        if changed is not None and changed is not vgpu:
            if problem:
                self._events.degraded(changed, reason, message)
            else:
                self._events.recovered(changed)
        return changed

    async def _problem(self, vgpu: VGPU) -> Problem | None:
        found = self._gpunodes.get(vgpu.spec.node_name)
        failed = self._failure(vgpu)
        if failed is not None:
            return Reason.GPU_UNHEALTHY, failed
        if not vgpu.spec.uuid:
            return self._gets_no_gpu(vgpu) if is_owned(found) else _closed(vgpu, found)
        if vgpu.spec.is_static:
            return _offered(vgpu, found) or _closed(vgpu, found)
        if await self._has_placeholder(vgpu):
            return _closed(vgpu, found)
        return Reason.PLACEHOLDER_LOST, (
            f"nothing keeps GPU {vgpu.spec.uuid} from other pods: its placeholder "
            f"{placeholder_name(vgpu.metadata.name)} is gone"
        )

    def _gets_no_gpu(self, vgpu: VGPU) -> Problem | None:
        placeholder = self._placeholders.of(vgpu.metadata.name)
        if placeholder is not None and placeholder.spec.node_name:
            return None  # it may have a GPU that its node has not reported yet
        return Reason.NODE_OWNED, (
            f"the GPUs of node {vgpu.spec.node_name} are owned by KubeShare: it gives none to a "
            "placeholder"
        )

    def _failure(self, vgpu: VGPU) -> str | None:
        """The failure of the GPU that the node agent reports, if any; also of a selected one."""
        found = self._gpunodes.get(vgpu.spec.node_name)
        uuid = vgpu.spec.uuid or vgpu.spec.selected_uuid
        for gpu in found.spec.devices if found else ():
            if gpu.uuid == uuid:
                why = gpu.message or "no reason given"
                return None if gpu.healthy else f"GPU {gpu.uuid} has failed: {why}"
        if found is not None and vgpu.spec.is_static:
            return f"node {vgpu.spec.node_name} has no GPU {vgpu.spec.uuid}"
        return None

    async def _has_placeholder(self, vgpu: VGPU) -> bool:
        """Whether a placeholder keeps the GPU; the cached pods may be older than the vGPU.

        So a missing placeholder counts only when a live read confirms it.
        """
        cached = self._placeholders.of(vgpu.metadata.name)
        if cached is not None and keeps_gpu(cached, vgpu):
            return True
        if is_true(vgpu.status.conditions, CONDITION_DEGRADED):
            return False
        try:
            live = await self._client.get(PODS, placeholder_name(vgpu.metadata.name), NAMESPACE)
        except NotFoundError:
            return False
        return keeps_gpu(live, vgpu)


def _offered(vgpu: VGPU, found: GPUNode | None) -> Problem | None:
    """Whether another pod has or may get the GPU of a static vGPU, by what its GPUNode says.

    The users of the vGPU read the message, and only administrators the condition of the GPUNode,
    which names pods.
    """
    owned = find_condition(found.status.conditions, CONDITION_OWNED) if found else None
    if owned is None or owned.reason not in (Reason.GPUS_OFFERED, Reason.GPUS_IN_USE):
        return None
    uuid, node = vgpu.spec.uuid, vgpu.spec.node_name
    then = f"`kubectl describe gpunode {node}` tells an administrator what to do"
    if found and any(gpu.in_use for gpu in found.spec.devices if gpu.uuid == uuid):
        return Reason.GPUS_IN_USE, (
            f"another pod has GPU {uuid} of node {node} too, so it is given out twice: {then}"
        )
    return Reason.GPUS_OFFERED, f"another pod may get GPU {uuid} of node {node}: {then}"


def _closed(vgpu: VGPU, found: GPUNode | None) -> Problem | None:
    """Why a GPU that works takes no further holders."""
    return _unrecorded(vgpu, found) or _outdated(vgpu, found)


def _outdated(vgpu: VGPU, found: GPUNode | None) -> Problem | None:
    """Whether the node agent reports a GPU that works and gives no new shares."""
    uuid = vgpu.spec.uuid or vgpu.spec.selected_uuid
    for gpu in found.spec.devices if found else ():
        if gpu.uuid == uuid and gpu.healthy and not gpu.gives_shares:
            return Reason.DRIVER_TOO_OLD, (
                f"GPU {uuid} gives no new shares: {gpu.message}. Pods that share it stay"
            )
    return None


def _unrecorded(vgpu: VGPU, found: GPUNode | None) -> Problem | None:
    """Whether pods run on the GPU without a holder; the message names none of them."""
    if not runs_unrecorded(vgpu, found):
        return None
    node = vgpu.spec.node_name
    return Reason.UNRECORDED_PODS, (
        f"pods use GPU {vgpu.spec.uuid or vgpu.spec.selected_uuid} of node {node} that no vGPU has "
        "a holder for, as after etcd was restored from an older snapshot: it gives shares again "
        f"when they have ended. `kubectl describe gpunode {node}` names them for an administrator"
    )


def problem_of(vgpu: VGPU) -> Problem | None:
    """The reason and message of the Degraded condition where it is true."""
    found = failure(vgpu)
    return None if found is None else (found.reason, found.message)
