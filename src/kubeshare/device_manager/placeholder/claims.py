"""Creates the claims by which placeholders get a selected GPU.

NVIDIA's DRA driver lists each GPU as a device with its UUID, so a claim can select one of them,
and kube-scheduler allocates it to no other pod. A claim belongs to its vGPU: if its placeholder
is lost, the next one uses the same claim, and so gets the same GPU. If the claim itself is lost,
kube-scheduler may allocate the GPU to another pod: the placeholder then keeps nothing.
"""

from contextlib import suppress
from typing import Any, Final

from msgspec import Struct

from kubeshare.api.types.constants import (
    MANAGER_DEVICES,
    NAMESPACE,
    NVIDIA_DRA_DRIVER,
    WHOLE_GPU_RESOURCE,
    placeholder_name,
)
from kubeshare.api.types.v1 import VGPU, VGPUS
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import AlreadyExistsError, NotFoundError
from kubeshare.kube.meta import Key, ObjectMeta
from kubeshare.kube.resources import RESOURCE_CLAIMS

PART_OF: Final = "app.kubernetes.io/part-of=kubeshare"
"""The label of the claims."""

_REQUEST = "gpu"
_UID_LENGTH = 8


def claim_name(vgpu: VGPU) -> str:
    """The name of a vGPU's claim; a later vGPU of the same name has another one."""
    uid = vgpu.metadata.uid[:_UID_LENGTH]
    return f"{placeholder_name(vgpu.metadata.name)}-{uid}"


class Claim(Struct, frozen=True, gc=False):
    """The fields of a claim that are read."""

    metadata: ObjectMeta


_CLAIMS: Final = RESOURCE_CLAIMS.into(Claim)


class Claims:
    """The claims of placeholders.

    Args:
        client: reads and writes them.

    Attributes:
        reflector: watches them.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self.reflector: Reflector[Claim] = Reflector(
            client, _CLAIMS, namespace=NAMESPACE, labels=PART_OF
        )

    async def create(self, vgpu: VGPU) -> None:
        """Create the claim of a vGPU, unless it exists."""
        try:
            await self._client.create(
                RESOURCE_CLAIMS, manifest(vgpu), field_manager=MANAGER_DEVICES
            )
        except AlreadyExistsError:
            return

    def is_watched(self, vgpu: VGPU) -> bool:
        """Whether the watch has the claim of a vGPU, and will report its end."""
        return self.reflector.store.get(claim_name(vgpu), NAMESPACE) is not None

    async def is_lost(self, vgpu: VGPU) -> bool:
        """Whether the claim of a vGPU does not exist; a live read confirms that."""
        name = claim_name(vgpu)
        if self.is_watched(vgpu):
            return False
        try:
            await self._client.get(_CLAIMS, name, NAMESPACE)
        except NotFoundError:
            return True
        return False

    async def delete(self, vgpu: VGPU) -> None:
        """Delete the claim of a vGPU, if it has one that is not being deleted.

        It goes when the DRA driver has released its GPU.
        """
        found = self.reflector.store.get(claim_name(vgpu), NAMESPACE)
        if found is None or found.metadata.deletion_timestamp is not None:
            return
        metadata = found.metadata
        with suppress(NotFoundError):
            await self._client.delete(RESOURCE_CLAIMS, metadata.name, NAMESPACE, uid=metadata.uid)


def vgpu_of(claim: Claim) -> list[Key]:
    """The vGPU that owns a claim."""
    owners = claim.metadata.owner_references
    return [Key("", owner.name) for owner in owners if owner.kind == VGPUS.kind]


def manifest(vgpu: VGPU) -> dict[str, Any]:
    """The claim for the GPU that was selected for a vGPU, or that it has; the vGPU owns it."""
    selector = (
        f"device.driver == '{NVIDIA_DRA_DRIVER}' && "
        f"device.attributes['{NVIDIA_DRA_DRIVER}'].uuid == "
        f"'{vgpu.spec.selected_uuid or vgpu.spec.uuid}'"
    )
    gpu = {"deviceClassName": NVIDIA_DRA_DRIVER, "selectors": [{"cel": {"expression": selector}}]}
    owner = {
        "apiVersion": VGPUS.api_version,
        "kind": VGPUS.kind,
        "name": vgpu.metadata.name,
        "uid": vgpu.metadata.uid,
    }
    return {
        "metadata": {
            "name": claim_name(vgpu),
            "namespace": NAMESPACE,
            "labels": dict([PART_OF.split("=")]),
            "ownerReferences": [owner],
        },
        "spec": {"devices": {"requests": [{"name": _REQUEST, "exactly": gpu}]}},
    }


def use(pod: dict[str, Any], vgpu: VGPU) -> None:
    """Change a placeholder to have the claim of its vGPU, not any whole GPU."""
    spec = pod["spec"]
    spec["resourceClaims"] = [{"name": _REQUEST, "resourceClaimName": claim_name(vgpu)}]
    for container in spec["containers"]:
        resources = container["resources"]
        for kind in ("requests", "limits"):
            amounts = resources[kind].items()
            resources[kind] = {key: amount for key, amount in amounts if key != WHOLE_GPU_RESOURCE}
        resources["claims"] = [{"name": _REQUEST}]
