"""Read the ResourceClaim that the kubelet names: which pod it is for, and what it was given.

The kubelet names it when it has made the pod's cgroups and looked at its volumes. Which claim
that will be stands in the pod's status when kube-scheduler binds it, so it is read then: by
the time that the kubelet asks, the answer is there.
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
    """Who may use a claim; only the scheduler and kube-controller-manager write this."""

    resource: str
    name: str
    uid: str


class AllocationResult(Struct, frozen=True, kw_only=True, rename={"share_id": "shareID"}):
    """One request of a claim, and the device it was given."""

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
    """A claim as the agent looks at it."""

    metadata: ObjectMeta
    status: ClaimStatus = field(default_factory=ClaimStatus)


class PodClaim(Struct, frozen=True, kw_only=True):
    """A claim that is good: its one pod, and the devices of our driver."""

    pod_name: str
    pod_uid: str
    results: tuple[AllocationResult, ...]


_CLAIMS = RESOURCE_CLAIMS.into(ResourceClaim)


class Claims:
    """The claims of this node's pods.

    Args:
        client: where they are.
        pods: this node's pods.
    """

    def __init__(self, client: Client, pods: Reflector[NodePod]) -> None:
        self._client = client
        self._ahead: dict[Key, asyncio.Task[ResourceClaim | None]] = {}  # claims of waiting pods
        pods.subscribe(self._note)

    def _note(self, change: Change[NodePod]) -> None:
        """Begin to read the claim of a pod that comes; forget that of one that has started."""
        pod = change.object
        name = pod.status.extended_resource_claim_status.resource_claim_name
        key = Key(pod.metadata.namespace, name)
        if change.type == DELETED or pod.over or pod.status.phase not in ("", "Pending"):
            self._ahead.pop(key, None)
        elif name and change.type == ADDED and not change.initial:
            self._ahead[key] = asyncio.ensure_future(self._read_ahead(key))

    async def _read_ahead(self, key: Key) -> ResourceClaim | None:
        try:
            return await self._client.get(_CLAIMS, key.name, key.namespace)
        except ApiError:
            return None  # it is asked for again when the kubelet names it

    async def read(self, reference: ClaimReference) -> PodClaim:
        """The pod that a claim is for, as the API server had it since that pod was bound.

        Raises:
            ClaimRefusedError: the claim is gone or another one of that name, is not
                allocated, or is not for exactly one pod.
            ApiError: the API server cannot be asked.
        """
        ahead = self._ahead.pop(Key(reference.namespace, reference.name), None)
        claim = await ahead if ahead is not None else None
        if claim is None or claim.metadata.uid != reference.uid:
            claim = await _read_now(self._client, reference)
        return _checked(claim, reference)


async def _read_now(client: Client, reference: ClaimReference) -> ResourceClaim:
    try:
        return await client.get(_CLAIMS, reference.name, reference.namespace)
    except NotFoundError as error:
        raise ClaimRefusedError(f"{_words(reference)} is gone") from error


def _words(reference: ClaimReference) -> str:
    return f"ResourceClaim {reference.namespace}/{reference.name}"


def _checked(claim: ResourceClaim, reference: ClaimReference) -> PodClaim:
    """What a claim says, if it is good."""
    what = _words(reference)
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
    # The kubelet looks for its pod's uid among them, whatever else they say: so it is the only one.
    if len(users) != 1 or users[0].resource != "pods":
        kinds = " and ".join(sorted({user.resource for user in users})) or "pods"
        raise ClaimRefusedError(
            f"{what} is reserved for {len(users)} {kinds}: a part of a GPU belongs to one pod, "
            "so let each pod ask for kubeshare.nthu/vgpu itself"
        )
    return PodClaim(pod_name=users[0].name, pod_uid=users[0].uid, results=results)
