"""Prepares a claim: writes the pod's grants and returns its CDI devices.

A claim has one grant, or several where its containers use different shares
(:mod:`.attachment`). All of them are active before the response, or all are removed. The
shares follow from holders (:mod:`.pod_shares`).

Prepare is idempotent: the same holders give the same grants, spec and response.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec
import structlog

from kubeshare.api.types.constants import DRA_DRIVER
from kubeshare.dialects.containers import VGPU_RESOURCE
from kubeshare.dialects.pod import listed_shares
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ApiError
from kubeshare.kube.meta import Key
from kubeshare.node.dra import cdi
from kubeshare.node.dra.attachment import Attachment, Use, of_one_share, of_several_shares
from kubeshare.node.dra.claims import AllocationResult, Claims, PodClaim
from kubeshare.node.dra.driver import ClaimReference, ClaimRefusedError, PreparedDevice
from kubeshare.node.dra.gpushare_environment import (
    GpushareSettings,
    requests_memory,
    variables,
    without_memory_limit,
)
from kubeshare.node.dra.grants import GrantRefusedError, Grants, PodGrant
from kubeshare.node.dra.pod_shares import GpusOfOthers, PodShares
from kubeshare.node.gpus.inventory import Inventory
from kubeshare.node.library import InstalledLibrary
from kubeshare.node.node_view import NODE_PODS, NodePod, NodeView
from kubeshare.tokens.files.grants import GrantedShare

log = structlog.get_logger(__name__)

# Longer than a standby device manager takes to become leader (15 s); the kubelet gives a call
# 45 s.
HOLDER_WAIT_SECONDS = 30.0

Environments: TypeAlias = Mapping[str, tuple[str, Mapping[str, str]]]
"""Request of a claim → the device that sets the variables of its container, and these."""


class Preparer:
    """Prepares claims.

    Args:
        client: reads claims and pods.
        view: this node's VGPUs.
        inventory: this node's GPUs.
        grants: the grant files that the token daemon reads.
        library: the device library that containers mount.
        cdi_folders: the runtime's folders; specs of claims are written into the last one.
        gpus_of_others: as in :class:`PodShares`.
        gpushare: the settings of a node that is dedicated to gpushare, or None.
        time_quota: the time quota of a pod (uid) in nanoseconds; None: the token daemon's.
        on_started: called with the names of the grants that are active; must not raise.
        holder_wait: seconds to wait for holders and their GPUs.

    Attributes:
        pods: uids of the pods that are being prepared.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        client: Client,
        view: NodeView,
        inventory: Inventory,
        grants: Grants,
        *,
        library: InstalledLibrary,
        cdi_folders: Sequence[Path],
        gpus_of_others: GpusOfOthers | None = None,
        gpushare: Callable[[], GpushareSettings | None] = lambda: None,
        time_quota: Callable[[str], int | None] = lambda _: None,
        on_started: Callable[[Collection[str]], None] = lambda _: None,
        holder_wait: float = HOLDER_WAIT_SECONDS,
    ) -> None:
        self._client = client
        self._claims = Claims(client, view.pods)
        self._view = view
        self._inventory = inventory
        self._gpushare = gpushare
        self._time_quota = time_quota
        self._on_started = on_started
        self._shares = PodShares(view, inventory, gpus_of_others)
        self._grants = grants
        self._library = library
        self._cdi_folders = list(cdi_folders)
        self._holder_wait = holder_wait
        self.pods: set[str] = set()

    async def prepare(self, reference: ClaimReference) -> list[PreparedDevice]:
        """Write the grants and the CDI spec, and wait until the grants are active.

        Raises:
            ClaimRefusedError: something is missing; an earlier preparation stays as it was.
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
        pod = Key(reference.namespace, claim.pod_name)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._holder_wait
        # The containers of a claim that is prepared again may be using its grants.
        before = self._grants.read(reference.uid)
        is_new = before is None
        is_unreadable = reference.uid in self._grants.unreadable
        try:
            shares = await self._shares.wait(pod, claim.pod_uid, self._holder_wait)
            settings = self._gpushare()
            environments: Environments = {}
            if settings is not None:
                shares, environments = await self._as_gpushare(reference, claim, shares, settings)
            attachment = await self._attachment(reference, claim, shares)
            if before is not None:
                is_new = self._was_interrupted(before, attachment)
            if is_new:
                await self._shares.check_owned(shares)
            gpus = {share.uuid: cdi.find_gpu(self._cdi_folders, share.uuid) for share in shares}
            # No await from here to the grants, so that no two claims of a pod pass the check.
            self._check_only_claim(reference, claim.pod_uid)
            quota_ns = self._time_quota(claim.pod_uid)
            self._grants.write(
                reference, claim.pod_name, claim.pod_uid, attachment.grants, quota_ns
            )
            # While the token daemon reads the grants; only the response makes a device known.
            mounts = {name: self._mounts(name) for name in attachment.grants}
            folder = self._cdi_folders[-1]
            cdi.write_claim(folder, reference.uid, mounts, dict(environments.values()))
            for name in attachment.grants:
                await self._grants.wait_active(name, max(1.0, deadline - loop.time()))
        except (
            ApiError,
            cdi.GpuDeviceMissingError,
            GrantRefusedError,
            ValueError,
            OSError,
        ) as error:
            if is_new and not is_unreadable:
                self._grants.remove(reference.uid)
                cdi.remove_claim(self._cdi_folders[-1], reference.uid)
            raise ClaimRefusedError(f"pod {pod}: {error}") from error
        self._on_started(tuple(attachment.grants))
        return [
            _prepared(result, attachment.uses[result.request], gpus, environments)
            for result in claim.results
        ]

    async def _attachment(
        self, reference: ClaimReference, claim: PodClaim, shares: list[GrantedShare]
    ) -> Attachment:
        """Which grants the claim has, and which containers use them."""
        requests = [result.request for result in claim.results]
        if not any(share.share for share in shares):
            return of_one_share(reference.uid, shares, requests)
        pod = await self._pod(reference, claim)
        made_by = pod.requests_of(reference.name) if pod.metadata.uid == claim.pod_uid else {}
        for request in requests:
            if request not in made_by:
                raise ValueError(
                    f"its status does not say which container made the request {request} of "
                    f"{reference.name}: only the claim that kube-scheduler creates for "
                    f"{VGPU_RESOURCE} attaches several shares"
                )
        containers = {request: made_by[request] for request in requests}
        listed = listed_shares(msgspec.to_builtins(pod))
        return of_several_shares(reference.uid, shares, listed, containers)

    async def _as_gpushare(
        self,
        reference: ClaimReference,
        claim: PodClaim,
        shares: list[GrantedShare],
        settings: GpushareSettings,
    ) -> tuple[list[GrantedShare], Environments]:
        """The shares of a pod, and the variables of its containers if it is of gpushare."""
        pod = await self._pod(reference, claim)
        if pod.metadata.uid != claim.pod_uid or not requests_memory(pod):
            return shares, {}
        found = variables(pod, shares, self._index, settings)
        environments = {
            request: (cdi.environment_name(reference.uid, container), found[container])
            for request, container in pod.requests_of(reference.name).items()
            if container in found
        }
        return shares if settings.limits_memory else without_memory_limit(shares), environments

    def _index(self, uuid: str) -> int:
        device = self._inventory.device(uuid)
        return -1 if device is None else device.index

    async def _pod(self, reference: ClaimReference, claim: PodClaim) -> NodePod:
        """The pod of a claim; it names the container of each request if kube-scheduler does."""
        pod = self._view.pods.store.by_uid(claim.pod_uid)
        if pod is None or not pod.requests_of(reference.name):
            # kube-scheduler names the claim before it binds the pod; the watch may be late.
            pod = await self._client.get(NODE_PODS, claim.pod_name, reference.namespace)
        return pod

    def _was_interrupted(self, before: PodGrant, attachment: Attachment) -> bool:
        """Whether a crash left only some of the grants, which no container uses then.

        Raises:
            ValueError: the grants of running containers would change.
        """
        if before.claim in attachment.grants:
            return False  # there is but one grant
        for name in before.names:
            if _gpus(self._grants.shares(name)) != _gpus(attachment.grants.get(name, ())):
                raise ValueError(
                    f"its grant {name} would have other shares than before: the annotations that "
                    "list its shares must not change after it was placed, so create it again"
                )
        return len(before.names) < len(attachment.grants)

    def _check_only_claim(self, reference: ClaimReference, pod_uid: str) -> None:
        """A pod has one claim on this driver: each further one would grant its shares again."""
        others = [uid for uid in self._grants.of_pod(pod_uid) if uid != reference.uid]
        if others:
            raise ValueError(
                f"it already has its share of a GPU by the claim with uid {others[0]}, and "
                f"{reference.name} would be another: take the ResourceClaims on {DRA_DRIVER} "
                "out of spec.resourceClaims"
            )

    def _mounts(self, grant: str) -> cdi.ClaimMounts:
        return cdi.ClaimMounts(
            claim=self._grants.claim_folder(grant),
            counters=self._grants.counters_file(grant),
            library=self._library.library,
            preload=self._library.preload,
        )


def _gpus(shares: Iterable[GrantedShare]) -> list[tuple[str, str]]:
    """The GPU and the name of each share of a grant."""
    return [(share.uuid, share.share) for share in shares]


def _prepared(
    result: AllocationResult,
    use: Use,
    gpus: Mapping[str, str],
    environments: Environments,
) -> PreparedDevice:
    """The response for one request.

    Args:
        result: the request.
        use: what its container uses.
        gpus: the CDI names of GPUs by UUID.
        environments: by request, the device with the variables of its container.
    """
    devices = (*(gpus[uuid] for uuid in use.gpus), cdi.claim_device(use.grant))
    if result.request in environments:
        devices += (cdi.claim_device(environments[result.request][0]),)
    return PreparedDevice(result.request, result.pool, result.device, devices, result.share_id)
