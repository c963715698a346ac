"""Before a pod's first container starts: its grant, and the CDI devices that carry it.

What a pod gets follows from one thing only: holders of VGPUs of this node that name
its uid, which nobody can forge. They may be a moment late (the device manager writes
the pod's uid after it has created the pod; a placeholder may still be starting), and
the kubelet takes a refusal for no error of the pod: it tries again with its next
regular look at the pod, after 60 to 90 seconds. So this waits for them, for a while,
inside the call. Then it refuses, and says what was missing.

Everything here may be repeated: the same holders give the same grant, spec and answer.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import structlog

from kubeshare.api.types.constants import DRA_DRIVER, placeholder_name
from kubeshare.api.types.v1 import VGPU, Holder
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ApiError
from kubeshare.node.dra import cdi
from kubeshare.node.dra.claims import Claims, PodClaim
from kubeshare.node.dra.driver import ClaimReference, ClaimRefusedError, PreparedDevice
from kubeshare.node.dra.grants import GrantRefusedError, Grants
from kubeshare.node.gpus.inventory import Inventory
from kubeshare.node.library import InstalledLibrary
from kubeshare.node.node_view import NodeView
from kubeshare.tokens.files.grants import GrantedShare

log = structlog.get_logger(__name__)

# Longer than another device manager needs to take over (15 s); the kubelet gives a call 45.
HOLDER_WAIT_SECONDS = 30.0


class Preparer:
    """Prepares claims.

    Args:
        client: where claims are read.
        view: this node's VGPUs.
        inventory: this node's GPUs.
        grants: what the token daemon reads.
        library: what containers mount.
        cdi_folders: the runtime's folders; the last is where claims' specs are written.
        patience: seconds to wait for what is coming.

    Attributes:
        pods: uids of the pods that are being prepared.
    """

    def __init__(  # noqa: PLR0913 - what a preparation brings together
        self,
        client: Client,
        view: NodeView,
        inventory: Inventory,
        grants: Grants,
        *,
        library: InstalledLibrary,
        cdi_folders: Sequence[Path],
        patience: float = HOLDER_WAIT_SECONDS,
    ) -> None:
        self._claims = Claims(client, view.pods)
        self._view = view
        self._inventory = inventory
        self._grants = grants
        self._library = library
        self._cdi_folders = list(cdi_folders)
        self._patience = patience
        self.pods: set[str] = set()

    async def prepare(self, reference: ClaimReference) -> list[PreparedDevice]:
        """Grant, activate, and write down what the containers get.

        Raises:
            ClaimRefusedError: something is missing; what there was before is left as it was.
        """
        try:
            cdi.check_claim_name(reference.uid)
            claim = await self._claims.read(reference)
        except (ValueError, ApiError) as error:
            raise ClaimRefusedError(str(error)) from error
        self.pods.add(claim.pod_uid)
        try:
            return await self._attach(reference, claim)
        finally:
            self.pods.discard(claim.pod_uid)

    async def _attach(self, reference: ClaimReference, claim: PodClaim) -> list[PreparedDevice]:
        pod = f"{reference.namespace}/{claim.pod_name}"
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience
        # A claim that is prepared again may have containers that run by its grant.
        prepared_before = self._grants.read(reference.uid) is not None
        try:
            parts = await self._parts(reference, claim, deadline)
            gpus = [cdi.find_gpu(self._cdi_folders, part.uuid) for part in parts]
            # Nothing is awaited from here to the grant, so no two claims of a pod pass together.
            self._check_only_claim(reference, claim.pod_uid)
            self._grants.write(reference, claim.pod_name, claim.pod_uid, parts)
            # While the token daemon looks at it; nobody is told the device's name before.
            cdi.write_claim(self._cdi_folders[-1], reference.uid, self._mounts(reference.uid))
            await self._grants.wait_active(reference.uid, max(1.0, deadline - loop.time()))
        except (cdi.GpuDeviceMissingError, GrantRefusedError, ValueError, OSError) as error:
            if not prepared_before:
                self._grants.remove(reference.uid)
                cdi.remove_claim(self._cdi_folders[-1], reference.uid)
            raise ClaimRefusedError(f"pod {pod}: {error}") from error
        names = (*gpus, cdi.claim_device(reference.uid))
        return [
            PreparedDevice(result.request, result.pool, result.device, names, result.share_id)
            for result in claim.results
        ]

    def _check_only_claim(self, reference: ClaimReference, pod_uid: str) -> None:
        """A pod's part comes once: each further claim on our driver would be another part."""
        others = [uid for uid in self._grants.of_pod(pod_uid) if uid != reference.uid]
        if others:
            raise ValueError(
                f"it has its part of a GPU by the claim with uid {others[0]} already, and "
                f"{reference.name} would be another: take the ResourceClaims on {DRA_DRIVER} "
                "out of spec.resourceClaims"
            )

    def _mounts(self, uid: str) -> cdi.ClaimMounts:
        return cdi.ClaimMounts(
            claim=self._grants.claim_folder(uid),
            counters=self._grants.counters_file(uid),
            library=self._library.library,
            preload=self._library.preload,
        )

    async def _parts(
        self, reference: ClaimReference, claim: PodClaim, deadline: float
    ) -> list[GrantedShare]:
        """The pod's parts of GPUs, as soon as all of them are there and known."""
        missing = ""
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    changed = self._view.next_change()
                    try:
                        return self._parts_now(reference.namespace, claim.pod_uid)
                    except _NotYetError as error:
                        missing = str(error)
                    await changed.wait()
        except TimeoutError as error:
            raise ClaimRefusedError(
                f"pod {reference.namespace}/{claim.pod_name} gets no GPU yet: {missing} "
                f"(waited {self._patience:.0f} s)"
            ) from error

    def _parts_now(self, namespace: str, pod_uid: str) -> list[GrantedShare]:
        held = self._view.held_by(pod_uid)
        if not held:
            raise _NotYetError(
                f"no vGPU of node {self._view.node} has a holder for the pod uid {pod_uid}: "
                "only KubeShare makes one, for a SharePod or a pod that was given a part of a "
                "GPU of this node"
            )
        # A claim is of the namespace of the pod that starts; a holder's is KubeShare's own word.
        for vgpu, holder in held:
            if holder.namespace != namespace:
                raise ValueError(
                    f"the holder of vGPU {vgpu.metadata.name} that names the pod uid {pod_uid} is "
                    f"of namespace {holder.namespace}, and the claim of {namespace}"
                )
        wanted = max(holder.parts for _, holder in held)
        if len(held) < wanted:
            raise _NotYetError(
                f"of the {wanted} vGPUs that it is to share, {len(held)} name this pod: the device "
                "manager is about to write the others, or they were taken back"
            )
        demands = {holder.demand for _, holder in held}
        for vgpu in self._view.all_vgpus():
            for holder in vgpu.status.holders:
                if holder.demand in demands and holder.pod_uid != pod_uid:
                    raise _NotYetError(f"the holder of vGPU {vgpu.metadata.name} has no pod yet")
        return [self._part(vgpu, holder) for vgpu, holder in held]

    def _part(self, vgpu: VGPU, holder: Holder) -> GrantedShare:
        gpuid = vgpu.metadata.name
        if not vgpu.spec.uuid:
            raise _NotYetError(
                f"the GPU of vGPU {gpuid} is not known yet: its placeholder pod "
                f"{placeholder_name(gpuid)} was given none"
            )
        if not self._view.has_placeholder(vgpu):
            raise _NotYetError(
                f"the placeholder pod {placeholder_name(gpuid)} of vGPU {gpuid} is gone, and "
                f"another pod may have its GPU {vgpu.spec.uuid}"
            )
        device = self._inventory.device(vgpu.spec.uuid)
        if device is None:
            raise _NotYetError(f"GPU {vgpu.spec.uuid} of vGPU {gpuid} is not on this node")
        if not device.healthy:
            raise _NotYetError(f"GPU {device.uuid} of vGPU {gpuid} is unhealthy: {device.message}")
        return GrantedShare(
            uuid=device.uuid,
            memory_total_bytes=device.memory_bytes,
            request_micros=holder.request_micros,
            limit_micros=holder.limit_micros,
            memory_bytes=holder.memory_bytes,
            model=device.model,
        )


class _NotYetError(Exception):
    """Something that a preparation needs is not there; it may come."""
