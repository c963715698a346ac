"""Finds a pod's shares, from the holders that name its uid.

Only the holders of this node's VGPUs count: the pod's uid in them cannot be forged. They may
be late (the device manager writes the pod's uid after it has created the pod; a placeholder
may still be starting), and after a refusal the kubelet tries again only at its next resync,
60 to 90 seconds later. So they are waited for inside the call for a while; then the claim is
refused with what is missing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeAlias

from kubeshare.api.types.constants import placeholder_name
from kubeshare.api.types.v1 import VGPU, GPUDevice, Holder
from kubeshare.kube.meta import Key
from kubeshare.node.dra.driver import ClaimRefusedError
from kubeshare.node.gpus.inventory import Inventory
from kubeshare.node.gpus.pod_resources import PodResourcesError
from kubeshare.node.node_view import NodeView
from kubeshare.tokens.files.grants import GrantedShare

GpusOfOthers: TypeAlias = Callable[[], Awaitable[AbstractSet[str]]]
"""Asks for the UUIDs of the GPUs that a device plugin or a DRA driver offers, or a pod uses whole.

Raises ``PodResourcesError`` if the kubelet does not answer.
"""


class PodShares:
    """Finds the shares of pods.

    Args:
        view: this node's VGPUs.
        inventory: this node's GPUs.
        gpus_of_others: asks for the UUIDs of the GPUs that others than KubeShare hand out.
    """

    def __init__(
        self, view: NodeView, inventory: Inventory, gpus_of_others: GpusOfOthers | None = None
    ) -> None:
        self._view = view
        self._inventory = inventory
        self._gpus_of_others = gpus_of_others

    async def wait(self, pod: Key, pod_uid: str, seconds: float) -> list[GrantedShare]:
        """Wait until all shares of a pod are known, and return them in the order of the vGPUs.

        Raises:
            ClaimRefusedError: something is still missing after so many seconds.
            ValueError: the pod must not have the shares.
        """
        missing = ""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    changed = self._view.next_change()
                    try:
                        return self._now(pod.namespace, pod_uid)
                    except _NotYetError as error:
                        missing = str(error)
                    await changed.wait()
        except TimeoutError as error:
            raise ClaimRefusedError(
                f"pod {pod} gets no GPU yet: {missing} (waited {seconds:.0f} s)"
            ) from error

    def _now(self, namespace: str, pod_uid: str) -> list[GrantedShare]:
        held = self._view.held_by(pod_uid)
        if not held:
            raise _NotYetError(
                f"no vGPU of node {self._view.node} has a holder for the pod uid {pod_uid}: "
                "only KubeShare makes one, for a SharePod or a pod that it placed on this node"
            )
        # The claim's namespace is that of the pod that starts; KubeShare wrote the holder's.
        for vgpu, holder in held:
            if holder.namespace != namespace:
                raise ValueError(
                    f"the holder of vGPU {vgpu.gpuid} that names the pod uid {pod_uid} is "
                    f"of namespace {holder.namespace}, and the claim of {namespace}"
                )
        wanted = max(holder.parts for _, holder in held)
        if len(held) < wanted:
            raise _NotYetError(
                f"of the {wanted} vGPUs that it shares, {len(held)} name this pod: the device "
                "manager has not written the others yet, or they were released"
            )
        demands = {holder.demand for _, holder in held}
        for vgpu in self._view.all_vgpus():
            for holder in vgpu.status.holders:
                if holder.demand in demands and holder.pod_uid != pod_uid:
                    raise _NotYetError(f"the holder of vGPU {vgpu.gpuid} has no pod yet")
        return [self._share(vgpu, holder) for vgpu, holder in held]

    def _share(self, vgpu: VGPU, holder: Holder) -> GrantedShare:
        gpuid, placeholder = vgpu.gpuid, placeholder_name(vgpu.metadata.name)
        if not vgpu.spec.uuid:
            raise _NotYetError(
                f"the GPU of vGPU {gpuid} is not known yet: its placeholder pod {placeholder} was "
                "allocated none"
            )
        if not self._view.is_reserved(vgpu):
            raise _NotYetError(
                f"the placeholder pod {placeholder} of vGPU {gpuid} is gone, and "
                f"another pod may have its GPU {vgpu.spec.uuid}"
            )
        device = self._inventory.device(vgpu.spec.uuid)
        if device is None:
            raise _NotYetError(f"GPU {vgpu.spec.uuid} of vGPU {gpuid} is not on this node")
        if not device.healthy:
            raise _NotYetError(f"GPU {device.uuid} of vGPU {gpuid} is unhealthy: {device.message}")
        if not device.gives_shares:
            raise _NotYetError(f"GPU {device.uuid} of vGPU {gpuid}: {device.message}")
        total, physical = _memory(vgpu, device)
        return GrantedShare(
            uuid=device.uuid,
            memory_total_bytes=total,
            physical_memory_bytes=physical if physical < total else 0,
            request_micros=holder.request_micros,
            limit_micros=holder.limit_micros,
            limit_alone_micros=holder.limit_alone_micros,
            latency_sensitive=holder.latency_sensitive,
            memory_bytes=holder.memory_bytes,
            share=holder.share,
            model=device.model,
        )

    async def check_owned(self, shares: Sequence[GrantedShare]) -> None:
        """Check that nobody else hands out a GPU that has no placeholder.

        The record of who owns the GPUs of a node may be old: only the leading device manager
        writes it.

        Raises:
            ValueError: another pod has a GPU or may get it, or the kubelet does not answer.
        """
        static = {vgpu.spec.uuid for vgpu in self._view.all_vgpus() if vgpu.spec.is_static}
        owned = [share.uuid for share in shares if share.uuid in static]
        if not owned or self._gpus_of_others is None:
            return
        try:
            others = await self._gpus_of_others()
        except PodResourcesError as error:
            raise ValueError(str(error)) from error
        for uuid in owned:
            if uuid in others:
                raise ValueError(
                    f"KubeShare owns GPU {uuid}, and another pod may have it too: a device plugin "
                    f"or DRA driver of node {self._view.node} offers it, or a pod uses it. Stop "
                    f"what offers it; `kubectl describe gpunode {self._view.node}` says more"
                )


def _memory(vgpu: VGPU, device: GPUDevice) -> tuple[int, int]:
    """The memory of a GPU that may be granted, and what it has.

    More than it has may be granted only where its vGPU says so.
    """
    physical = device.physical_memory_bytes or device.memory_bytes
    return (vgpu.spec.memory_bytes if vgpu.spec.physical_memory_bytes else physical), physical


class _NotYetError(Exception):
    """Something that prepare needs is not there yet."""
