"""Publishes the discovered GPUs as this node's GPUNode, and caches them.

The Node owns the GPUNode. Without it the node's GPUs would not be shared, so the agent
publishes it again whenever it is deleted or changed, be it by a late write of an earlier
agent.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

import msgspec
import structlog

from kubeshare.api.types.constants import MANAGER_NODE
from kubeshare.api.types.v1 import GPUNODES, GPUDevice, GPUNode, GPUNodeSpec
from kubeshare.core.units import MICROS
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ApiError, NotFoundError
from kubeshare.node.gpus.discovery import DiscoveryError, with_vanished
from kubeshare.node.gpus.oversubscription import oversubscribed
from kubeshare.node.gpus.pod_resources import PodResourcesError
from kubeshare.node.node_object import owner_of, uid_of

log = structlog.get_logger(__name__)

_GPU_NODES = GPUNODES.into(GPUNode)


GpusInUse: TypeAlias = Callable[[], Awaitable[Mapping[str, str]]]
"""Asks for the GPUs that pods use as whole GPUs: UUID → the name of the filler pod that has it,
``""`` for another pod. Raises ``PodResourcesError``."""


class Gpus(Protocol):
    """Reads the node's GPUs; blocks."""

    def read(self) -> GPUNodeSpec:
        """Read the GPUs.

        Raises:
            DiscoveryError: they cannot be read now.
        """
        ...

    def utilization(self) -> dict[str, float]:
        """UUID → the part of the time in which the GPU ran a kernel just now, 0 to 1.

        Raises:
            DiscoveryError: it cannot be read now.
        """
        ...


class Inventory:
    """The node's GPUs: read periodically, published when something has changed.

    A GPU that vanishes stays listed as unhealthy as long as a vGPU stands for it, so that
    the reason can be reported to the pods that share it.

    Args:
        client: writes the GPUNode.
        node: this node's name, which is the GPUNode's too.
        gpus: reads the GPUs.
        promised: the UUIDs of GPUs that stay listed when they vanish.
        drivers: UUID → DRA driver, of the GPUs that such a driver serves.
        in_use: asks for the GPUs that pods use as whole GPUs.
        unrecorded: UUIDs of the node's GPUs → the pods that run without a holder, by the UUID of
            each GPU that has some.
        memory_factor: how many times the memory of the GPUs is given out, in millionths.
        interval: seconds between readings.

    Attributes:
        interval: as above; a change counts from the next reading on.
        reflector: watches the GPUNode.
        found: the GPUs as of the last reading.
        utilization: by UUID, as of the last reading.
        first_reading: set once the first reading is published.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        client: Client,
        node: str,
        gpus: Gpus,
        promised: Callable[[], AbstractSet[str]],
        *,
        drivers: Callable[[], Mapping[str, str]] = dict,
        in_use: GpusInUse | None = None,
        unrecorded: Callable[[Collection[str]], Mapping[str, tuple[str, ...]]] = lambda _: {},
        memory_factor: Callable[[], int] = lambda: MICROS,
        interval: float = 10.0,
    ) -> None:
        self._client = client
        self._node = node
        self._gpus = gpus
        self._promised = promised
        self._drivers = drivers
        self._in_use = in_use
        self._unrecorded = unrecorded
        self._memory_factor = memory_factor
        self._last_in_use: Mapping[str, str] = {}
        self.interval = interval
        self._published: GPUNodeSpec | None = None
        self._is_loaded = False
        self._republish = asyncio.Event()
        self._last_error = ""
        self.reflector: Reflector[GPUNode] = Reflector(
            client, _GPU_NODES, fields=f"metadata.name={node}"
        )
        self.reflector.subscribe(self._changed)
        self.found = GPUNodeSpec()
        self.utilization: Mapping[str, float] = {}
        self.first_reading = asyncio.Event()

    def device(self, uuid: str) -> GPUDevice | None:
        """The GPU with this UUID, or None if this node does not have it."""
        return next((device for device in self.found.devices if device.uuid == uuid), None)

    async def run(self) -> None:
        """Refresh until cancelled."""
        while True:
            try:
                await self.refresh()
                self.first_reading.set()
            except ApiError as error:
                log.warning("GPUNode not published, trying again", error=str(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(self.interval):
                    await self._republish.wait()
            self._republish.clear()

    async def refresh(self) -> None:
        """Read the GPUs once, and publish them if they changed.

        Raises:
            ApiError: the GPUNode cannot be written.
        """
        if not self._is_loaded:
            self.found = await self._last_published()
            self._is_loaded = True
        try:
            read, self.utilization = await asyncio.to_thread(self._read)
            now = oversubscribed(read, self._memory_factor())
        except DiscoveryError as error:
            now, self.utilization = self._unreadable(str(error)), {}
        now = await self._with_users(now)
        self.found = with_vanished(now, self.found, self._promised())
        if self.found != self._published:
            # A write whose answer is lost may have taken effect, or not.
            self._published = None
            await self._publish(self.found)
            self._published = self.found

    def _read(self) -> tuple[GPUNodeSpec, Mapping[str, float]]:
        return self._gpus.read(), self._gpus.utilization()

    def refresh_soon(self) -> None:
        """Refresh at once, for example because a pod got or released a whole GPU."""
        self._republish.set()

    async def _with_users(self, now: GPUNodeSpec) -> GPUNodeSpec:
        """The GPUs with their DRA drivers, and what the kubelet and grants say of their users."""
        if self._in_use is not None:
            try:
                self._last_in_use = await self._in_use()
            except PodResourcesError as error:
                log.warning("the GPUs in use are not known now", reason=str(error))
        drivers = self._drivers()
        unrecorded = self._unrecorded([device.uuid for device in now.devices])
        devices = tuple(
            msgspec.structs.replace(
                device,
                in_use=self._last_in_use.get(device.uuid) == "",
                filler=self._last_in_use.get(device.uuid, ""),
                claim_driver=drivers.get(device.uuid, ""),
                unrecorded_pods=unrecorded.get(device.uuid, ()),
            )
            for device in now.devices
        )
        count = sum(bool(device.claim_driver) for device in devices)
        return msgspec.structs.replace(now, devices=devices, dra_count=count)

    def _changed(self, change: Change[GPUNode]) -> None:
        ours = change.type != DELETED and change.object.spec == _counted(self.found)
        if self._published is not None and not ours:
            self._published = None
            self._republish.set()

    def _unreadable(self, message: str) -> GPUNodeSpec:
        # Logged once: a node may have no driver, which is not an error.
        if message != self._last_error:
            log.warning("no GPUs can be read", reason=message)
            self._last_error = message
        return msgspec.structs.replace(self.found, devices=(), links=())

    async def _last_published(self) -> GPUNodeSpec:
        try:
            return (await self._client.get(_GPU_NODES, self._node)).spec
        except NotFoundError:
            return GPUNodeSpec()

    async def _publish(self, spec: GPUNodeSpec) -> None:
        owner = owner_of(self._node, await uid_of(self._client, self._node))
        metadata = {"name": self._node, "ownerReferences": [owner]}
        await self._client.apply(
            _GPU_NODES,
            {"metadata": metadata, "spec": _fields(spec)},
            field_manager=MANAGER_NODE,
            force=True,
        )
        log.info(
            "GPUNode published",
            gpus=len(spec.devices),
            healthy=sum(device.healthy for device in spec.devices),
        )


def _fields(spec: GPUNodeSpec) -> dict[str, Any]:
    """The fields to apply; an apply is refused if the kind does not have one of them."""
    fields: dict[str, Any] = msgspec.to_builtins(_counted(spec))
    for device in fields["devices"]:
        # The kind of an earlier release does not have them, as during a rollback.
        for name in ("unrecordedPods", "physicalMemoryBytes"):
            if not device[name]:
                del device[name]
    return fields


def _counted(spec: GPUNodeSpec) -> GPUNodeSpec:
    return msgspec.structs.replace(spec, count=len(spec.devices))
