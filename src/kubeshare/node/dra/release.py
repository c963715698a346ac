"""After a pod's last container has ended: its grant goes, then its part of the GPU.

In this order, so that a part is never somebody else's while its old owner's gate
may still be open. Releasing is a write to the API server and may fail; then the
kubelet is told so and asks again. What a crash in between leaves, ``reconcile`` ends.
"""

from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path

import structlog

from kubeshare.api import holders
from kubeshare.api.types.constants import MANAGER_NODE
from kubeshare.api.types.v1 import VGPU, Holder
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ApiError, ConflictError, NotFoundError
from kubeshare.node.dra import cdi
from kubeshare.node.dra.driver import ClaimReference, ClaimRefusedError
from kubeshare.node.dra.grants import Grants
from kubeshare.node.node_view import NODE_VGPUS, NodeView

log = structlog.get_logger(__name__)

# Others add and remove holders of the same vGPU meanwhile; each attempt that fails is
# one of theirs that succeeded.
_ATTEMPTS = 20


class Releaser:
    """Takes grants away and gives parts back.

    Args:
        client: where holders are.
        view: this node's VGPUs.
        grants: what the token daemon reads.
        cdi_folder: where the specs of claims are.
    """

    def __init__(self, client: Client, view: NodeView, grants: Grants, cdi_folder: Path) -> None:
        self._client = client
        self._view = view
        self._grants = grants
        self._cdi_folder = cdi_folder
        self._unfinished: dict[str, str] = {}  # claim uid -> pod uid

    async def unprepare(self, reference: ClaimReference) -> None:
        """Undo a preparation, whether or not there was one.

        Raises:
            ClaimRefusedError: the part could not be given back; ask again.
        """
        try:
            grant = self._grants.read(cdi.check_claim_name(reference.uid))
            if grant is not None:
                self._unfinished[reference.uid] = grant.pod_uid
            self.detach(reference.uid)
            if pod_uid := self._unfinished.get(reference.uid):
                await self.release(pod_uid)
            self._unfinished.pop(reference.uid, None)
        except ValueError as error:
            # Such a claim was never prepared: there is nothing to undo.
            log.warning("claim ignored", reason=str(error))
        except (ApiError, OSError) as error:
            raise ClaimRefusedError(f"the part of the GPU is not given back: {error}") from error

    def detach(self, claim: str) -> None:
        """Remove what a claim's containers need to start and to run.

        Raises:
            ValueError: that is no claim's name.
            OSError: a file cannot be removed.
        """
        cdi.remove_claim(self._cdi_folder, claim)
        self._grants.remove(claim)

    def detach_all_but(self, claims: AbstractSet[str]) -> None:
        """Remove the specs of all claims but these; their containers could not start anyway."""
        for claim in cdi.claims(self._cdi_folder) - claims:
            cdi.remove_claim(self._cdi_folder, claim)

    async def release(self, pod_uid: str) -> None:
        """Give back every part of this node's GPUs that a pod holds.

        Raises:
            ApiError: the API server refused, or cannot be reached.
        """
        for vgpu, holder in self._view.held_by(pod_uid):
            with suppress(NotFoundError):
                await self._remove(vgpu, holder)
            log.info("part given back", vgpu=vgpu.metadata.name, pod_uid=pod_uid)

    async def _remove(self, vgpu: VGPU, holder: Holder) -> None:
        name = vgpu.metadata.name
        for _ in range(_ATTEMPTS):
            try:
                operations = holders.remove(vgpu, holder.demand)
                await self._client.json_patch(
                    NODE_VGPUS, name, operations, subresource="status", field_manager=MANAGER_NODE
                )
            except ConflictError:
                log.info("vGPU changed meanwhile, trying again", vgpu=name)
            except holders.HolderMissingError:
                return
            else:
                return
            vgpu = await self._client.get(NODE_VGPUS, name)
            # The same demand may have been given to a newer pod: that part stays.
            if holder.pod_uid not in {other.pod_uid for other in vgpu.status.holders}:
                return
        raise ConflictError(f"vGPU {name} changed at each of {_ATTEMPTS} attempts")
