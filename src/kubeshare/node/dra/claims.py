"""Reads the ResourceClaim that the kubelet prepares: its pod and its devices.

The kubelet calls once it has created the pod's cgroups and checked its volumes. The pod's
status names the claim as soon as kube-scheduler binds the pod, so the agent reads the
claim then: by the time of the call it is there.
"""

import asyncio

from msgspec import Struct, field

from kubeshare.api.types.constants import DRA_DRIVER
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import ADDED, DELETED, Change
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ApiError, NotFoundError
from kubeshare.kube.meta import Key, ObjectMeta
from kubeshare.kube.resources import RESOURCE_CLAIMS
from kubeshare.node.dra.driver import ClaimReference, ClaimRefusedError
from kubeshare.node.node_view import NodePod


class Consumer(Struct, frozen=True, kw_only=True):
    """An object that may use a claim; kube-scheduler and kube-controller-manager write it."""

    resource: str
    name: str
    uid: str


class AllocationResult(Struct, frozen=True, kw_only=True, rename={"share_id": "shareID"}):
    """One request of a claim, and its allocated device."""

    request: str
    driver: str
    pool: str
    device: str
    share_id: str | None = None


class DeviceAllocation(Struct, frozen=True, kw_only=True):
    """All devices of a claim."""

    results: tuple[AllocationResult, ...] = ()


class Allocation(Struct, frozen=True, kw_only=True):
    """What kube-scheduler decided for a claim."""

    devices: DeviceAllocation = field(default_factory=DeviceAllocation)


class ClaimStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """Allocation and consumers of a claim."""

    allocation: Allocation | None = None
    reserved_for: tuple[Consumer, ...] = ()


class ResourceClaim(Struct, frozen=True, kw_only=True):
    """The fields of a ResourceClaim that the agent reads."""

    metadata: ObjectMeta
    status: ClaimStatus = field(default_factory=ClaimStatus)


class PodClaim(Struct, frozen=True, kw_only=True):
    """A valid claim: its one pod, and its devices of this driver."""

    pod_name: str
    pod_uid: str
    results: tuple[AllocationResult, ...]


_CLAIMS = RESOURCE_CLAIMS.into(ResourceClaim)


class Claims:
    """Reads the claims of this node's pods, if possible before the kubelet names them."""

    def __init__(self, client: Client, pods: Reflector[NodePod]) -> None:
        self._client = client
        self._prefetched: dict[Key, asyncio.Task[ResourceClaim | None]] = {}  # of pending pods
        pods.subscribe(self._prefetch)

    def _prefetch(self, change: Change[NodePod]) -> None:
        """Start reading the claim of a new pod; forget that of a pod that has started."""
        pod = change.object
        name = pod.status.extended_resource_claim_status.resource_claim_name
        key = Key(pod.metadata.namespace, name)
        if change.type == DELETED or pod.over or pod.status.phase not in ("", "Pending"):
            self._prefetched.pop(key, None)
        elif name and change.type == ADDED and not change.initial:
            self._prefetched[key] = asyncio.ensure_future(self._fetch(key))

    async def _fetch(self, key: Key) -> ResourceClaim | None:
        try:
            return await self._client.get(_CLAIMS, key.name, key.namespace)
        except ApiError:
            return None  # it is read again when the kubelet names it

    async def read(self, reference: ClaimReference) -> PodClaim:
        """Read the pod and devices of a claim, as they were at some time after the pod was bound.

        Raises:
            ClaimRefusedError: the claim is gone or was replaced, is not allocated, or is not
                reserved for exactly one pod.
            ApiError: the API server did not answer.
        """
        prefetched = self._prefetched.pop(Key(reference.namespace, reference.name), None)
        claim = await prefetched if prefetched is not None else None
        if claim is None or claim.metadata.uid != reference.uid:
            claim = await _read_now(self._client, reference)
        return _checked(claim, reference)


async def _read_now(client: Client, reference: ClaimReference) -> ResourceClaim:
    try:
        return await client.get(_CLAIMS, reference.name, reference.namespace)
    except NotFoundError as error:
        raise ClaimRefusedError(f"{_title(reference)} is gone") from error


def _title(reference: ClaimReference) -> str:
    return f"ResourceClaim {reference.namespace}/{reference.name}"


def _checked(claim: ResourceClaim, reference: ClaimReference) -> PodClaim:
    """Validate a claim."""
    what = _title(reference)
    if claim.metadata.uid != reference.uid:
        raise ClaimRefusedError(f"{what} is another one now: its uid is {claim.metadata.uid}")
    allocation = claim.status.allocation
    results = tuple(
        result
        for result in (allocation.devices.results if allocation else ())
        if result.driver == DRA_DRIVER
    )
    if not results:
        raise ClaimRefusedError(f"{what} has no device of {DRA_DRIVER}")
    users = claim.status.reserved_for
    # The kubelet accepts a claim if its pod's uid is among the users: so allow only one user.
    if len(users) != 1 or users[0].resource != "pods":
        kinds = " and ".join(sorted({user.resource for user in users})) or "pods"
        raise ClaimRefusedError(
            f"{what} is reserved for {len(users)} {kinds}: a share of a GPU belongs to one pod, "
            "so let each pod ask for kubeshare.nthu/vgpu itself"
        )
    return PodClaim(pod_name=users[0].name, pod_uid=users[0].uid, results=results)
