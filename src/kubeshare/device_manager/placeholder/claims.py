"""Creates the claims by which placeholders get a selected GPU.

NVIDIA's DRA driver lists each GPU as a device with its UUID, so a claim can select one of them,
and kube-scheduler allocates it to no other pod. A claim belongs to its vGPU: if its placeholder
is lost, the next one uses the same claim, and so gets the same GPU.
"""

from typing import Any

from kubeshare.api.types.constants import (
    MANAGER_DEVICES,
    NAMESPACE,
    NVIDIA_DRA_DRIVER,
    WHOLE_GPU_RESOURCE,
    placeholder_name,
)
from kubeshare.api.types.v1 import VGPU, VGPUS
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import AlreadyExistsError
from kubeshare.kube.resources import RESOURCE_CLAIMS

_REQUEST = "gpu"
_UID_LENGTH = 8


def claim_name(vgpu: VGPU) -> str:
    """The name of a vGPU's claim; a later vGPU of the same name has another one."""
    uid = vgpu.metadata.uid[:_UID_LENGTH]
    return f"{placeholder_name(vgpu.metadata.name)}-{uid}"


async def create(client: Client, vgpu: VGPU) -> None:
    """Create the claim of a vGPU, unless it exists."""
    try:
        await client.create(RESOURCE_CLAIMS, manifest(vgpu), field_manager=MANAGER_DEVICES)
    except AlreadyExistsError:
        return


def manifest(vgpu: VGPU) -> dict[str, Any]:
    """The claim for the GPU that was selected for a vGPU, which owns it."""
    selector = (
        f"device.driver == '{NVIDIA_DRA_DRIVER}' && "
        f"device.attributes['{NVIDIA_DRA_DRIVER}'].uuid == '{vgpu.spec.selected_uuid}'"
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
            "labels": {"app.kubernetes.io/part-of": "kubeshare"},
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
