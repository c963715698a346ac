"""Finds a vGPU's physical GPU and writes its UUID.

A vGPU's placeholder pod requests ``nvidia.com/gpu: 1`` like any native pod, so
kube-scheduler and NVIDIA's device plugin choose the GPU. The kubelet knows it as soon as
it admits the pod. From then on no other pod can get the GPU, so there is no need to wait
until the placeholder's container, which requests little CPU, has started.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import structlog

from kubeshare.api import holders
from kubeshare.api.state.ledger_builder import DELETING
from kubeshare.api.types.constants import CONDITION_SHAREABLE, MANAGER_NODE, NAMESPACE
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU, VGPUS, GPUDevice
from kubeshare.core.units import format_memory
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import InvalidError
from kubeshare.kube.clock import utc_now
from kubeshare.kube.conditions import set_condition
from kubeshare.kube.controller.controller import RequeueAfter, TerminalError
from kubeshare.kube.controller.events import WARNING, EventRecorder, reference
from kubeshare.kube.meta import Condition, Key
from kubeshare.node.gpus.inventory import Inventory
from kubeshare.node.gpus.oversubscription import memory_operations
from kubeshare.node.gpus.pod_resources import PodResourcesError, whole_gpu
from kubeshare.node.node_view import NODE_VGPUS, NodeView

log = structlog.get_logger(__name__)

AllocatedGpus: TypeAlias = Callable[[str, str], Awaitable[list[str]]]
"""Asks the kubelet which whole GPUs a pod (namespace, name) was allocated.

Raises ``PodResourcesError`` if the kubelet does not answer.
"""

# The kubelet will soon admit a pod that is bound here and not listed yet, and a vGPU whose GPU is
# free again is soon gone. The start of a pod waits for either: ask again at once, then at growing
# intervals.
_FIRST_PAUSE_SECONDS = 0.004
_LAST_PAUSE_SECONDS = 0.3
# NVML is read again every few seconds.
_NOT_FOUND = RequeueAfter(2.0)


class PlaceholderGpus:
    """Writes the UUID of each of this node's vGPUs.

    Args:
        client: writes VGPUs.
        view: this node's VGPUs and pods.
        inventory: this node's GPUs.
        events: records why a GPU cannot be shared.
        allocated: which GPUs a pod was allocated.
    """

    def __init__(
        self,
        client: Client,
        view: NodeView,
        inventory: Inventory,
        events: EventRecorder,
        allocated: AllocatedGpus,
    ) -> None:
        self._client = client
        self._view = view
        self._inventory = inventory
        self._events = events
        self._allocated = allocated
        self._pauses: dict[str, float] = {}  # placeholder uid -> last pause in seconds
        self._written: dict[str, str] = {}  # vGPU -> the resourceVersion that was patched

    async def resolve(self, vgpu: VGPU) -> RequeueAfter | None:
        """Write the UUID of a vGPU that has none, once its placeholder was allocated a GPU.

        A vGPU that has lost its placeholder keeps its UUID: another placeholder is written
        only if it was allocated the same GPU. No GPU is written into two vGPUs.

        Raises:
            TerminalError: the placeholder was allocated something that cannot be shared.
            ApiError: the VGPU cannot be written; a conflict means that it has changed.
        """
        name = vgpu.metadata.name
        pod = self._view.placeholder(vgpu)
        if pod is None or self._is_written(vgpu, pod.metadata.uid):
            return None
        if vgpu.spec.uuid and not pod.status.start_time:
            # The kubelet answers by name, and may still mean the lost placeholder of the same name.
            return self._retry(pod.metadata.uid)
        try:
            devices = await self._allocated(NAMESPACE, pod.metadata.name)
        except PodResourcesError as error:
            log.warning("placeholder's GPU not known yet", vgpu=name, reason=str(error))
            return _NOT_FOUND
        if not devices:
            return self._retry(pod.metadata.uid)
        try:
            uuid = whole_gpu(devices)
        except PodResourcesError as error:
            raise await self._refuse(
                vgpu, f"its placeholder's GPU cannot be shared: {error}"
            ) from error
        return await self._assign(vgpu, uuid, pod.metadata.uid)

    async def _assign(self, vgpu: VGPU, uuid: str, placeholder: str) -> RequeueAfter | None:
        """Write the GPU that a placeholder was allocated, unless it is another vGPU's."""
        name = vgpu.metadata.name
        device = self._inventory.device(uuid)
        if device is None:
            log.warning("NVML does not know the placeholder's GPU", vgpu=name, uuid=uuid)
            return _NOT_FOUND
        if vgpu.spec.uuid not in ("", uuid):
            raise self._unusable(
                vgpu, f"its new placeholder was given GPU {uuid}, not its own {vgpu.spec.uuid}"
            )
        if vgpu.spec.model not in ("", device.model):
            why = f"its placeholder was given a GPU of model {device.model}, not {vgpu.spec.model}"
            raise await self._refuse(vgpu, why, Reason.OTHER_MODEL)
        held = sum(holder.memory_bytes for holder in vgpu.status.holders)
        if not vgpu.spec.uuid and held > device.memory_bytes:
            why = (
                f"its placeholder was given a GPU of {format_memory(device.memory_bytes)}, and its "
                f"holders have {format_memory(held)}"
            )
            raise await self._refuse(vgpu, why, Reason.OTHER_MODEL)
        other = self._view.vgpu_of(uuid)
        if other is not None and other.metadata.name != name:
            if other.status.phase == DELETING:
                return self._retry(placeholder)
            why = f"its placeholder was given GPU {uuid} of vGPU {other.metadata.name}"
            raise await self._refuse(vgpu, why)
        await self._write(vgpu, device, placeholder)
        self._pauses.pop(placeholder, None)
        log.info("vGPU found", vgpu=name, uuid=uuid)
        return None

    def _is_written(self, vgpu: VGPU, placeholder: str) -> bool:
        """Whether the placeholder is in the VGPU, or was just written and not yet watched."""
        if vgpu.spec.is_static:
            # It gets a placeholder while its node is given back.
            return vgpu.spec.placeholder_uid == placeholder
        if vgpu.spec.uuid and self._view.is_reserved(vgpu):
            return True
        return self._written.get(vgpu.metadata.name) == vgpu.metadata.resource_version

    def _retry(self, placeholder: str) -> RequeueAfter:
        """Ask again, each time after twice the pause."""
        there = {pod.metadata.uid for pod in self._view.pods.store.snapshot().values()}
        for gone in self._pauses.keys() - there:
            del self._pauses[gone]
        before = self._pauses.get(placeholder, _FIRST_PAUSE_SECONDS / 2)
        pause = self._pauses[placeholder] = min(_LAST_PAUSE_SECONDS, before * 2)
        return RequeueAfter(pause)

    async def _write(self, vgpu: VGPU, device: GPUDevice, placeholder: str) -> None:
        try:
            await self._client.json_patch(
                NODE_VGPUS,
                vgpu.metadata.name,
                found_operations(vgpu, device, placeholder),
                field_manager=MANAGER_NODE,
            )
        except InvalidError as error:
            raise await self._refuse(vgpu, f"GPU {device.uuid} does not fit it: {error}") from error
        there = self._view.vgpus.store.snapshot()
        self._written = {key: one for key, one in self._written.items() if Key("", key) in there}
        self._written[vgpu.metadata.name] = vgpu.metadata.resource_version

    async def _refuse(
        self, vgpu: VGPU, why: str, reason: Reason = Reason.NOT_SHAREABLE
    ) -> TerminalError:
        """Set the condition that the vGPU gets no GPU, for those who wait for it."""
        condition = Condition(type=CONDITION_SHAREABLE, status="False", reason=reason, message=why)
        conditions, changed = set_condition(vgpu.status.conditions, condition, utc_now())
        if changed:
            await self._client.json_patch(
                NODE_VGPUS,
                vgpu.metadata.name,
                holders.set_conditions(vgpu, conditions),
                subresource="status",
                field_manager=MANAGER_NODE,
            )
        return self._unusable(vgpu, why)

    def _unusable(self, vgpu: VGPU, why: str) -> TerminalError:
        self._events.emit(reference(VGPUS, vgpu), "NotShareable", "Find", why, type=WARNING)
        return TerminalError(f"vGPU {vgpu.metadata.name}: {why}")


def found_operations(vgpu: VGPU, device: GPUDevice, placeholder: str) -> list[dict[str, Any]]:
    """The JSON patch that writes a vGPU's GPU and its placeholder's uid, unless it has changed."""
    fields = {
        "uuid": device.uuid,
        "placeholderUid": placeholder,
        "model": device.model,
    }
    guard = {
        "op": "test",
        "path": "/metadata/resourceVersion",
        "value": vgpu.metadata.resource_version,
    }
    return [
        guard,
        *({"op": "add", "path": f"/spec/{key}", "value": value} for key, value in fields.items()),
        *memory_operations(vgpu, device),
    ]
