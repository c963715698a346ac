"""A stand-in for NVIDIA's DRA driver in the lab.

It lists the node's GPUs in a ResourceSlice with the attributes of NVIDIA's driver, and prepares a
claim as the CDI devices ``nvidia.com/gpu=UUID``. A node has it instead of the device plugin.

Run as ``python -m kubeshare.lab.node.dra_driver NODE KUBECONFIG``, with NVML in the library path
and the kubeconfig of the node's kubelet.
"""

import asyncio
import sys
from pathlib import Path
from typing import Final

import pynvml

from kubeshare.api.types.constants import NVIDIA_DRA_DRIVER
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import AlreadyExistsError, ApiError
from kubeshare.kube.resources import RESOURCE_CLAIMS, RESOURCE_SLICES, Raw
from kubeshare.lab.node.gpus import DRA_DRIVER, RESOURCE
from kubeshare.node.dra.driver import ClaimReference, ClaimRefusedError, Driver, PreparedDevice
from kubeshare.node.node_object import owner_of, uid_of

PLUGIN_SOCKET: Final = Path("/var/lib/kubelet/plugins") / NVIDIA_DRA_DRIVER / "dra.sock"
REGISTRATION_SOCKET: Final = Path(f"/var/lib/kubelet/plugins_registry/{NVIDIA_DRA_DRIVER}-reg.sock")


def nvml_devices() -> list[Raw]:
    """The GPUs of NVML as devices of a ResourceSlice."""
    return [_device(index) for index in range(pynvml.nvmlDeviceGetCount())]


def _device(index: int) -> Raw:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    return {
        "name": f"gpu-{index}",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": pynvml.nvmlDeviceGetUUID(handle)},
            "productName": {"string": pynvml.nvmlDeviceGetName(handle)},
            "index": {"int": index},
            "minor": {"int": pynvml.nvmlDeviceGetMinorNumber(handle)},
        },
        "capacity": {"memory": {"value": str(memory)}},
    }


class Handler:
    """Prepares the claims of a node.

    Args:
        client: reads claims.
        devices: the devices of the node's ResourceSlice.
    """

    def __init__(self, client: Client, devices: list[Raw]) -> None:
        self._client = client
        self._uuids = {device["name"]: device["attributes"]["uuid"]["string"] for device in devices}

    async def prepare(self, claim: ClaimReference) -> list[PreparedDevice]:
        """Answer with the CDI devices of the GPUs that were allocated.

        Raises:
            ClaimRefusedError: the claim cannot be read, or has a device that is not this node's.
        """
        try:
            found = await self._client.get(RESOURCE_CLAIMS, claim.name, claim.namespace)
        except ApiError as error:
            raise ClaimRefusedError(f"claim {claim.name} cannot be read: {error}") from error
        results = (
            found.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
        )
        return [self._prepared(one) for one in results if one["driver"] == NVIDIA_DRA_DRIVER]

    async def unprepare(self, claim: ClaimReference) -> None:
        """Nothing was made for a claim."""

    def _prepared(self, result: Raw) -> PreparedDevice:
        device = result["device"]
        if device not in self._uuids:
            raise ClaimRefusedError(f"no GPU {device} here")
        cdi = f"{RESOURCE}={self._uuids[device]}"
        return PreparedDevice(result["request"], result["pool"], device, (cdi,))


async def publish(client: Client, node: str, devices: list[Raw]) -> None:
    """Create the ResourceSlice of a node, unless it exists."""
    metadata = {
        "name": f"{node}-{NVIDIA_DRA_DRIVER}",
        "ownerReferences": [owner_of(node, await uid_of(client, node))],
    }
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": NVIDIA_DRA_DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    try:
        await client.create(
            RESOURCE_SLICES, {"metadata": metadata, "spec": spec}, field_manager=DRA_DRIVER
        )
    except AlreadyExistsError:
        return


async def serve(node: str, kubeconfig: str) -> None:
    """Offer the node's GPUs until cancelled."""
    devices = nvml_devices()
    async with Client.connect(kubeconfig) as client:
        driver = Driver(
            Handler(client, devices), PLUGIN_SOCKET, REGISTRATION_SOCKET, NVIDIA_DRA_DRIVER
        )
        async with driver:
            # The kubelet deletes the slices of a driver that is not registered.
            await driver.registered.wait()
            await publish(client, node, devices)
            await asyncio.Event().wait()


def main() -> None:
    """Offer this node's GPUs for ever."""
    Path("/proc/self/comm").write_text(DRA_DRIVER)
    pynvml.nvmlInit()
    asyncio.run(serve(*sys.argv[1:3]))


if __name__ == "__main__":
    main()
