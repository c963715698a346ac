"""Keeps one static vGPU for each GPU of an owned node.

A vGPU that exists when its node is taken over becomes static in place: it keeps its name, its
holders and their pods. Only then its placeholder is deleted. Each other GPU gets a vGPU whose name
follows from the GPU's UUID, so the API server itself refuses a second one.
"""

from kubeshare.api.owned_nodes import accepts_holders, static_name
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.ledger_builder import DELETING
from kubeshare.api.types.constants import POOL_STATIC
from kubeshare.api.types.v1 import VGPU, GPUDevice, GPUNode
from kubeshare.core.ledger.device import Device
from kubeshare.device_manager.context import Context
from kubeshare.device_manager.vgpu.deletion import mark_deleting


class StaticVGPUs:
    """Creates, converts and deletes static vGPUs.

    Args:
        context: the state and the services that it uses.
    """

    def __init__(self, context: Context) -> None:
        self._cluster_state: ClusterState = context.cluster_state
        self._pool = context.pool
        self._gpunodes = context.informers.gpunodes.store
        self._placeholders = context.placeholders
        self._events = context.events

    def of(self, node: str) -> list[VGPU]:
        """The static vGPUs of a node."""
        return [vgpu for vgpu in self._pool.on_node(node) if vgpu.spec.is_static]

    def unresolved(self, node: str) -> list[str]:
        """The vGPUs of a node whose placeholder may have a GPU that is not known yet."""
        return [
            vgpu.metadata.name
            for vgpu in self._pool.on_node(node)
            if not vgpu.spec.uuid and self._cluster_state.has_bound_placeholder(vgpu.metadata.name)
        ]

    async def keep(self, found: GPUNode) -> None:
        """Bring the vGPUs of an owned node in line with its GPUs.

        Raises:
            ConflictError: a vGPU has changed in between.
        """
        node = found.metadata.name
        listed = {gpu.uuid: gpu for gpu in found.spec.devices if gpu.memory_bytes}
        for vgpu in self._pool.on_node(node):
            if vgpu.spec.uuid and not vgpu.spec.is_static and vgpu.status.phase != DELETING:
                await self._pool.make_static(vgpu)
            elif vgpu.spec.is_static and vgpu.spec.uuid not in listed:
                await self._delete(vgpu)  # unless it has holders
        missing = [gpu for uuid, gpu in listed.items() if not self._pool.with_uuid(uuid)]
        if missing:
            await self._create(node, missing)

    async def release(self, node: str) -> None:
        """Delete the static vGPUs of a node that have no holders."""
        for vgpu in self.of(node):
            if not vgpu.status.holders:
                await self._delete(vgpu)

    async def delete_placeholder(self, vgpu: VGPU) -> None:
        """Delete the placeholder of a vGPU that has become static.

        It stays while something else hands out the GPUs of the node.
        """
        pod = self._placeholders.of(vgpu.metadata.name)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            return
        if accepts_holders(self._gpunodes.get(vgpu.spec.node_name)):
            await self._placeholders.remove(pod)

    async def _create(self, node: str, missing: list[GPUDevice]) -> None:
        """Create the vGPUs of GPUs that have none, once a live read confirms that.

        None is created while the GPU of another vGPU of the node is not known.
        """
        live = {vgpu.spec.uuid for vgpu in await self._pool.refresh_node(node)}
        if self.unresolved(node):
            return
        for gpu in missing:
            if gpu.uuid not in live:
                device = Device(
                    id=static_name(gpu.uuid),
                    node=node,
                    model=gpu.model,
                    memory_bytes=gpu.memory_bytes,
                )
                await self._pool.create(device, POOL_STATIC, gpu.uuid)

    async def _delete(self, vgpu: VGPU) -> None:
        await mark_deleting(self._pool, vgpu.metadata.name, self._events.released)
