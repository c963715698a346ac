"""Keeps the Degraded condition of vGPUs up to date.

A shared GPU is degraded when it fails, as the node agent reports in the GPUNode, or when its
placeholder is gone, so that Kubernetes may give the GPU to another pod. The ledger refuses new
holders for the same reasons without waiting for the condition
(:mod:`kubeshare.api.state.ledger_builder`). Pods that share the GPU stay unless the
configuration has them evicted.
"""

from typing import Final, TypeAlias

from kubeshare.api import holders
from kubeshare.api.state.ledger_builder import keeps_gpu
from kubeshare.api.types.constants import CONDITION_DEGRADED, NAMESPACE, placeholder_name
from kubeshare.api.types.core_v1 import PODS
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU
from kubeshare.api.vgpu_readiness import failure
from kubeshare.device_manager.context import Context
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.conditions import is_true, set_condition
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
        if not vgpu.spec.uuid:
            return None
        failed = self._failure(vgpu)
        if failed is not None:
            return Reason.GPU_UNHEALTHY, failed
        if await self._has_placeholder(vgpu):
            return None
        return Reason.PLACEHOLDER_LOST, (
            f"nothing keeps GPU {vgpu.spec.uuid} from other pods: its placeholder "
            f"{placeholder_name(vgpu.metadata.name)} is gone"
        )

    def _failure(self, vgpu: VGPU) -> str | None:
        """The failure of the GPU that the node agent reports, if any."""
        found = self._gpunodes.get(vgpu.spec.node_name)
        for gpu in found.spec.devices if found else ():
            if gpu.uuid == vgpu.spec.uuid and not gpu.healthy:
                return f"GPU {gpu.uuid} has failed: {gpu.message or 'no reason given'}"
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


def problem_of(vgpu: VGPU) -> Problem | None:
    """The reason and message of the Degraded condition where it is true."""
    found = failure(vgpu)
    return None if found is None else (found.reason, found.message)
