"""Keeps one static vGPU for each GPU of an owned node.

A vGPU that exists when its node is taken over becomes static in place: it keeps its name, its
holders and their pods. Only then its placeholder is deleted. Each other GPU gets a vGPU whose name
follows from the GPU's UUID, so the API server itself refuses a second one.

When the node is given back, a vGPU in use stays static until it has a placeholder with its own GPU.
"""

from kubeshare.api.owned_nodes import accepts_holders, is_owned, static_name
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.ledger_builder import DELETING, keeps_gpu
from kubeshare.api.types.constants import CONDITION_OWNED, POOL_STATIC
from kubeshare.api.types.core_v1 import Pod
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU, GPUDevice, GPUNode
from kubeshare.core.ledger.device import Device
from kubeshare.device_manager.context import Context
from kubeshare.device_manager.vgpu.deletion import mark_deleting
from kubeshare.kube.conditions import find_condition
from kubeshare.kube.controller.controller import RequeueAfter, earliest


class StaticVGPUs:
    """Creates, converts and deletes static vGPUs.

    Args:
        context: the state and the services that it uses.
    """

    def __init__(self, context: Context) -> None:
        self._cluster_state: ClusterState = context.cluster_state
        self._pool = context.pool
        self._nodes = context.informers.nodes.store
        self._gpunodes = context.informers.gpunodes.store
        self._placeholders = context.placeholders
        self._claims = context.claims
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
            if vgpu.spec.is_static and vgpu.spec.uuid not in listed:
                await self._delete(vgpu)  # unless it has holders
        await self.convert(node)
        missing = [gpu for uuid, gpu in listed.items() if not self._pool.with_uuid(uuid)]
        if missing:
            await self._create(node, missing)

    async def convert(self, node: str) -> None:
        """Make the vGPUs of a node static that have a GPU.

        Raises:
            ConflictError: a vGPU has changed in between.
        """
        for vgpu in self._pool.on_node(node):
            if vgpu.spec.uuid and not vgpu.spec.is_static and vgpu.status.phase != DELETING:
                await self._pool.make_static(vgpu)

    async def release(self, node: str, *, by_claims: bool) -> RequeueAfter | None:
        """Give the static vGPUs of a node back: those without holders, or with a placeholder.

        Args:
            node: its name.
            by_claims: whether the others get placeholders with claims for their GPUs. Where a
                device plugin offers the GPUs, :mod:`..placeholder.gpu_selector` creates them.

        Raises:
            ConflictError: a vGPU has changed in between.
        """
        again: RequeueAfter | None = None
        for vgpu in self.of(node):
            pod = self._placeholders.of(vgpu.metadata.name)
            if not self.is_held(vgpu):
                await self._delete(vgpu)
            elif pod is not None and await self._has_its_gpu(pod, vgpu):
                selected = vgpu.spec.uuid if pod.spec.resource_claims else ""
                await self._pool.make_shared(vgpu, selected)
            elif by_claims:
                again = earliest(again, await self._placeholders.ensure(vgpu, by_claim=True))
        return again

    def is_held(self, vgpu: VGPU) -> bool:
        """Whether a pod has a share of a vGPU, by the record or by what its node says."""
        return bool(vgpu.status.holders) or self._cluster_state.runs_unrecorded(vgpu)

    async def _has_its_gpu(self, pod: Pod, vgpu: VGPU) -> bool:
        """Whether a placeholder has the GPU of a static vGPU; a live read confirms that."""
        if not (vgpu.spec.placeholder_uid and keeps_gpu(pod, vgpu)):
            return False
        live = await self._placeholders.refresh(vgpu.metadata.name)
        return live is not None and keeps_gpu(live, vgpu)

    async def delete_placeholder(self, vgpu: VGPU) -> None:
        """Delete the placeholder of a vGPU that has become static, and then its claim.

        It stays while something else hands out the GPUs of the node. One with a claim goes while
        its DRA driver runs, since only that can release the claim; the node is cordoned then.
        """
        pod = self._placeholders.of(vgpu.metadata.name)
        found = self._gpunodes.get(vgpu.spec.node_name)
        accepts, converts = accepts_holders(found), self._converts(found)
        if pod is None and (accepts or converts):
            await self._claims.delete(vgpu)
        elif pod is None or pod.metadata.deletion_timestamp is not None:
            return
        elif accepts or (converts and pod.spec.resource_claims):
            await self._placeholders.remove(pod)

    def _converts(self, found: GPUNode | None) -> bool:
        """Whether the vGPUs of a node become static while a DRA driver offers its GPUs."""
        if found is None or not (is_owned(found) and found.spec.dra_count):
            return False
        node = self._nodes.get(found.metadata.name)
        owned = find_condition(found.status.conditions, CONDITION_OWNED)
        taking = owned is not None and owned.reason == Reason.TAKING_OVER
        return taking and node is not None and node.is_closed

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
                await self._pool.create(device, POOL_STATIC, gpu.uuid, gpu.physical_memory_bytes)

    async def _delete(self, vgpu: VGPU) -> None:
        await mark_deleting(self._pool, vgpu.metadata.name, self._events.released)
