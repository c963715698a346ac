"""Which physical GPU a vGPU is: read from the kubelet, written once into the VGPU.

A vGPU's placeholder pod asks for ``nvidia.com/gpu: 1`` like any native pod, so the
stock scheduler and NVIDIA's device plugin choose the GPU. The kubelet knows which, from
the moment it admits the pod: the GPU is nobody else's then, so nobody has to wait until
the placeholder's container, with the little CPU that it asks for, has started.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from kubeshare.api import holders
from kubeshare.api.types.constants import CONDITION_SHAREABLE, MANAGER_NODE, NAMESPACE
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU, VGPUS, GPUDevice
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import InvalidError
from kubeshare.kube.clock import utc_now
from kubeshare.kube.conditions import set_condition
from kubeshare.kube.controller.controller import RequeueAfter, TerminalError
from kubeshare.kube.controller.events import WARNING, EventRecorder, reference
from kubeshare.kube.meta import Condition, Key
from kubeshare.node.gpus.inventory import Inventory
from kubeshare.node.gpus.pod_resources import PodResourcesError, whole_gpu
from kubeshare.node.node_view import NODE_VGPUS, NodeView

log = structlog.get_logger(__name__)

AllocatedGpus = Callable[[str, str], Awaitable[list[str]]]
"""Asks the kubelet which whole GPUs a pod (namespace, name) was given.

It raises ``PodResourcesError`` when the kubelet cannot be asked.
"""

# A pod that is bound here and not listed will be admitted in a moment, for which a start
# waits: it is asked about at once again, then ever more seldom.
_FIRST_PAUSE_SECONDS = 0.004
_LAST_PAUSE_SECONDS = 0.3
# NVML is read anew every few seconds.
_NOT_FOUND = RequeueAfter(2.0)


class PlaceholderGpus:
    """Tells the cluster which GPU each vGPU of this node is.

    Args:
        client: where VGPUs are.
        view: this node's VGPUs and pods.
        inventory: this node's GPUs.
        events: where people read what is wrong.
        given: which GPUs a pod was given.
    """

    def __init__(
        self,
        client: Client,
        view: NodeView,
        inventory: Inventory,
        events: EventRecorder,
        given: AllocatedGpus,
    ) -> None:
        self._client = client
        self._view = view
        self._inventory = inventory
        self._events = events
        self._given = given
        self._pauses: dict[str, float] = {}  # uid of a placeholder not listed -> seconds, the last
        self._written: dict[str, str] = {}  # GPUID -> the version of its vGPU that was patched

    async def resolve(self, vgpu: VGPU) -> RequeueAfter | None:
        """Write the UUID of a vGPU that has none, once its placeholder was given a GPU.

        A vGPU that has lost its placeholder keeps its UUID: another placeholder is noted only
        when it was given that very GPU.

        Raises:
            TerminalError: the placeholder was given something that cannot be shared.
            ApiError: the VGPU cannot be written; a conflict means that it has changed.
        """
        name = vgpu.metadata.name
        pod = self._view.placeholder(vgpu)
        if pod is None or self._is_written(vgpu):
            return None
        if vgpu.spec.uuid and not pod.status.start_time:
            # The kubelet answers by name: it may still know the lost one of that name alone.
            return self._soon(pod.metadata.uid)
        try:
            devices = await self._given(NAMESPACE, pod.metadata.name)
        except PodResourcesError as error:
            log.warning("placeholder's GPU not known yet", vgpu=name, reason=str(error))
            return _NOT_FOUND
        if not devices:
            return self._soon(pod.metadata.uid)
        self._pauses.pop(pod.metadata.uid, None)
        try:
            uuid = whole_gpu(devices)
        except PodResourcesError as error:
            raise await self._refuse(
                vgpu, f"its placeholder's GPU cannot be shared: {error}"
            ) from error
        device = self._inventory.device(uuid)
        if device is None:
            log.warning("NVML does not know the placeholder's GPU", vgpu=name, uuid=uuid)
            return _NOT_FOUND
        if vgpu.spec.uuid not in ("", uuid):
            raise self._unusable(
                vgpu, f"its new placeholder was given GPU {uuid}, not its own {vgpu.spec.uuid}"
            )
        await self._write(vgpu, device, pod.metadata.uid)
        log.info("vGPU found", vgpu=name, uuid=uuid)
        return None

    def _is_written(self, vgpu: VGPU) -> bool:
        """Its placeholder is noted in it, or has just been, and the watch has not told of it."""
        if vgpu.spec.uuid and self._view.has_placeholder(vgpu):
            return True
        return self._written.get(vgpu.metadata.name) == vgpu.metadata.resource_version

    def _soon(self, placeholder: str) -> RequeueAfter:
        """Ask again, each time after twice as long."""
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

    async def _refuse(self, vgpu: VGPU, why: str) -> TerminalError:
        """Note in the vGPU that it will have no GPU, for those who wait for it."""
        told = Condition(
            type=CONDITION_SHAREABLE, status="False", reason=Reason.NOT_SHAREABLE, message=why
        )
        conditions, news = set_condition(vgpu.status.conditions, told, utc_now())
        if news:
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
    """The JSON patch that says which GPU a vGPU is, as long as nobody has changed it.

    Args:
        vgpu: which.
        device: its GPU.
        placeholder: the uid of the pod that keeps it.
    """
    facts = {
        "uuid": device.uuid,
        "placeholderUid": placeholder,
        "model": device.model,
        "memoryBytes": device.memory_bytes,
    }
    guard = {
        "op": "test",
        "path": "/metadata/resourceVersion",
        "value": vgpu.metadata.resource_version,
    }
    return [
        guard,
        *({"op": "add", "path": f"/spec/{key}", "value": value} for key, value in facts.items()),
    ]
