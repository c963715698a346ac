"""Read the ResourceClaim that the kubelet names: which pod it is for, and what it was given."""

from msgspec import Struct, field

from kubeshare.api.names import DRA_DRIVER
from kubeshare.kube.api import Api
from kubeshare.kube.errors import NotFoundError
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import RESOURCE_CLAIMS
from kubeshare.node.driver import ClaimReference, ClaimRefusedError


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


async def read_claim(api: Api, reference: ClaimReference) -> PodClaim:
    """The pod that a claim is for, from the API server as it is now.

    Raises:
        ClaimRefusedError: the claim is gone or another one of that name, is not
            allocated, or is not for exactly one pod.
        ApiError: the API server cannot be asked.
    """
    what = f"ResourceClaim {reference.namespace}/{reference.name}"
    try:
        claim = await api.get(_CLAIMS, reference.name, reference.namespace)
    except NotFoundError as error:
        raise ClaimRefusedError(f"{what} is gone") from error
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
    pods = [user for user in claim.status.reserved_for if user.resource == "pods"]
    if len(pods) != 1:
        raise ClaimRefusedError(
            f"{what} is reserved for {len(pods)} pods: a part of a GPU belongs to one pod, "
            "so let each pod ask for kubeshare.nthu/vgpu itself"
        )
    return PodClaim(pod_name=pods[0].name, pod_uid=pods[0].uid, results=results)
