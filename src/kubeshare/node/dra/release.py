"""Unprepares a claim: removes the pod's grants, then its holders.

In this order, so that no other pod gets a share while the old pod's gate may still be open.
Removing a holder is a write to the API server and may fail; then the kubelet gets an error
and calls again. ``reconcile`` finishes what a crash in between leaves.
"""

from collections.abc import Collection
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import structlog

from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ApiError, NotFoundError
from kubeshare.node.dra import cdi
from kubeshare.node.dra.account import Account, OnEnded, ignore
from kubeshare.node.dra.driver import ClaimReference, ClaimRefusedError
from kubeshare.node.dra.grants import Grants
from kubeshare.node.dra.holder_release import HolderReleases
from kubeshare.node.node_view import NodeView

log = structlog.get_logger(__name__)


class Releaser:
    """Removes grants and holders.

    Args:
        client: writes holders.
        view: this node's VGPUs.
        grants: the grant files that the token daemon reads.
        cdi_folder: the folder of the claims' specs.
        on_ended: receives the final account of each grant.
    """

    def __init__(
        self,
        client: Client,
        view: NodeView,
        grants: Grants,
        cdi_folder: Path,
        on_ended: OnEnded = ignore,
    ) -> None:
        self._holders = HolderReleases(client)
        self._view = view
        self._grants = grants
        self._cdi_folder = cdi_folder
        self._on_ended = on_ended
        self._unfinished: dict[str, str] = {}  # claim uid -> pod uid

    async def unprepare(self, reference: ClaimReference) -> None:
        """Unprepare a claim, whether or not it was prepared.

        Raises:
            ClaimRefusedError: a holder could not be removed; the kubelet has to call again.
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
            # A claim of such a name was never prepared.
            log.warning("claim ignored", reason=str(error))
        except (ApiError, OSError) as error:
            raise ClaimRefusedError(f"the share of the GPU is not released: {error}") from error

    def detach(self, claim: str) -> None:
        """Remove the CDI spec and the grants of a claim, and account for what they used.

        Raises:
            ValueError: that is not a valid name of a claim.
            OSError: a file cannot be removed.
        """
        cdi.remove_claim(self._cdi_folder, claim)
        grant = self._grants.read(claim)
        self._account(grant.names if grant else ())
        self._grants.remove(claim)

    def detach_some(self, claim: str, names: Collection[str]) -> None:
        """Remove some of the grants of a claim, as ``detach`` does.

        The CDI spec stays for the containers of the others. A container of a removed grant does not
        start again: the folder that it mounts is gone.

        Raises:
            OSError: a file cannot be removed.
        """
        self._account(names)
        self._grants.remove_some(claim, names)

    def _account(self, names: Collection[str]) -> None:
        for account in self._grants.accounts(names):
            log.info("grant ends", **_keys(account))
            self._on_ended(account)

    def detach_all_but(self, claims: AbstractSet[str]) -> None:
        """Remove the CDI specs of all other claims, which have no grant."""
        for claim in cdi.claims(self._cdi_folder) - claims:
            cdi.remove_claim(self._cdi_folder, claim)

    async def release(self, pod_uid: str) -> None:
        """Remove all holders of a pod from this node's VGPUs.

        Raises:
            ApiError: the API server refused, or cannot be reached.
        """
        released = set()
        for vgpu, _ in self._view.held_by(pod_uid):
            # Several shares of one GPU are removed together.
            if vgpu.metadata.name not in released:
                released.add(vgpu.metadata.name)
                with suppress(NotFoundError):
                    await self._holders.release(vgpu, pod_uid)
                log.info("share released", vgpu=vgpu.metadata.name, pod_uid=pod_uid)


def _keys(account: Account) -> dict[str, Any]:
    return {
        "grant": account.grant,
        "pod": f"{account.pod.namespace}/{account.pod.name}",
        "pod_uid": account.pod.uid,
        "gpus": [msgspec.structs.asdict(share) for share in account.shares],
    }
