"""What is wrong with the GPU of a vGPU: a condition of it, and a word to those who share it.

Two things may go wrong with a GPU that is shared: it fails, as its node's agent says in the
GPUNode, or nothing keeps it from other pods any more, because its placeholder is gone.
Either way it takes nobody new; that follows from the same facts
(:mod:`kubeshare.api.state.ledger_builder`)
and waits for no condition. Those who share it stay, unless the configuration has them evicted.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from kubeshare.api import holders
from kubeshare.api.state.ledger_builder import keeps_gpu
from kubeshare.api.state.vgpu_store import VGPUStore
from kubeshare.api.types.constants import CONDITION_DEGRADED, NAMESPACE, placeholder_name
from kubeshare.api.types.core_v1 import PODS
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU, GPUNode
from kubeshare.api.vgpu_readiness import failure
from kubeshare.device_manager.events import Events
from kubeshare.device_manager.placeholder.pods import Placeholders
from kubeshare.kube.cache.store import Store
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.conditions import is_true, set_condition
from kubeshare.kube.meta import Condition

Problem = tuple[Reason, str]
"""Why a GPU is of no use now, and the words for it."""

_FINE: Final = "its GPU is healthy, and kept from other pods"


class VGPUHealth:
    """Keeps the condition Degraded of vGPUs.

    Args:
        client: for live reads.
        pool: the vGPUs.
        gpunodes: what the agents of the nodes have found.
        placeholders: keep the GPUs.
        events: tells people.
        wall_clock: the times that people read.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        client: Client,
        pool: VGPUStore,
        gpunodes: Store[GPUNode],
        placeholders: Placeholders,
        *,
        events: Events,
        wall_clock: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._pool = pool
        self._gpunodes = gpunodes
        self._placeholders = placeholders
        self._events = events
        self._wall_clock = wall_clock

    async def reconcile(self, vgpu: VGPU) -> VGPU | None:
        """Bring the condition up to date, and tell the holders what is news.

        Returns:
            the vGPU as it is then; None when it is gone.
        """
        problem = await self._problem(vgpu)
        if problem is None and not is_true(vgpu.status.conditions, CONDITION_DEGRADED):
            return vgpu
        reason, message = problem or (Reason.HEALTHY, _FINE)
        wanted = Condition(
            type=CONDITION_DEGRADED,
            status="True" if problem else "False",
            reason=reason,
            message=message,
        )

        def operations(seen: VGPU) -> list[holders.Operation] | None:
            conditions, news = set_condition(seen.status.conditions, wanted, self._wall_clock())
            return holders.set_conditions(seen, conditions) if news else None

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
        failure = self._failure(vgpu)
        if failure is not None:
            return Reason.GPU_UNHEALTHY, failure
        if await self._is_kept(vgpu):
            return None
        return Reason.PLACEHOLDER_LOST, (
            f"nothing keeps GPU {vgpu.spec.uuid} from other pods: its placeholder "
            f"{placeholder_name(vgpu.metadata.name)} is gone"
        )

    def _failure(self, vgpu: VGPU) -> str | None:
        """What the agent of its node says of the GPU, if that is not good."""
        found = self._gpunodes.get(vgpu.spec.node_name)
        for gpu in found.spec.devices if found else ():
            if gpu.uuid == vgpu.spec.uuid and not gpu.healthy:
                return f"GPU {gpu.uuid} has failed: {gpu.message or 'no reason given'}"
        return None

    async def _is_kept(self, vgpu: VGPU) -> bool:
        """The pods seen may be older than the vGPU seen: look before crying."""
        seen = self._placeholders.of(vgpu.metadata.name)
        if seen is not None and keeps_gpu(seen, vgpu):
            return True
        if is_true(vgpu.status.conditions, CONDITION_DEGRADED):
            return False
        try:
            live = await self._client.get(PODS, placeholder_name(vgpu.metadata.name), NAMESPACE)
        except NotFoundError:
            return False
        return keeps_gpu(live, vgpu)


def problem_of(vgpu: VGPU) -> Problem | None:
    """What the condition of a vGPU says, where that is not good."""
    found = failure(vgpu)
    return None if found is None else (found.reason, found.message)
