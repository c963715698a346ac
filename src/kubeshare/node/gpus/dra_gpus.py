"""Finds whole GPUs that DRA drivers, not device plugins, serve.

Such a driver lists its devices in ResourceSlices, each with a name and the GPU's UUID as an
attribute; the kubelet reports which device a pod's claim was allocated. The Node does not
count these GPUs, so the GPUNode has their number.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec import Struct

from kubeshare.api.types.constants import DRA_DRIVER
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.client.client import Client
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import RESOURCE_SLICES

_UUID: Final = "uuid"
"""The attribute's name, without or with the driver's domain before a slash."""


class DraDevice(NamedTuple):
    """The identity of a device in a claim."""

    driver: str
    pool: str
    name: str


class _Attribute(Struct, frozen=True):
    string: str = ""


class _Device(Struct, frozen=True):
    name: str
    attributes: dict[str, _Attribute] = {}

    @property
    def uuid(self) -> str:
        found = (each for key, each in self.attributes.items() if key.rpartition("/")[2] == _UUID)
        return next((each.string for each in found), "")


class _Pool(Struct, frozen=True):
    name: str


class _Spec(Struct, frozen=True, kw_only=True):
    driver: str
    pool: _Pool
    devices: tuple[_Device, ...] = ()


class Slice(Struct, frozen=True, kw_only=True):
    """The fields of a ResourceSlice that are read."""

    metadata: ObjectMeta
    spec: _Spec


class DraGpus:
    """The GPUs of this node that DRA drivers serve.

    Attributes:
        reflector: watches the node's ResourceSlices.
    """

    def __init__(self, client: Client, node: str) -> None:
        self.reflector: Reflector[Slice] = Reflector(
            client, RESOURCE_SLICES.into(Slice), fields=f"spec.nodeName={node}"
        )

    def uuid(self, device: DraDevice) -> str:
        """The UUID of a device's GPU; ``""`` where no ResourceSlice has it."""
        return next((uuid for known, uuid in self._all() if known == device), "")

    def drivers(self) -> dict[str, str]:
        """UUID → driver, of all GPUs that DRA drivers serve."""
        return {uuid: device.driver for device, uuid in self._all() if uuid.startswith("GPU-")}

    def _all(self) -> Iterator[tuple[DraDevice, str]]:
        for each in self.reflector.store.snapshot().values():
            spec = each.spec
            if spec.driver != DRA_DRIVER:
                for device in spec.devices:
                    yield DraDevice(spec.driver, spec.pool.name, device.name), device.uuid
