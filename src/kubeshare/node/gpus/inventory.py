"""Publishes what discovery finds as this node's GPUNode, and keeps it for the other parts.

The GPUNode belongs to the Node and goes with it. Without it the node's GPUs would not be
shared, so whoever removes or changes it, be it a late write of a former agent: what was
found is published again.
"""

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Protocol

import msgspec
import structlog

from kubeshare.api.types.constants import MANAGER_NODE
from kubeshare.api.types.v1 import GPUNODES, GPUDevice, GPUNode, GPUNodeSpec
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ApiError, NotFoundError
from kubeshare.node.gpus.discovery import DiscoveryError, with_vanished
from kubeshare.node.node_object import owner_of, uid_of

log = structlog.get_logger(__name__)

_GPU_NODES = GPUNODES.into(GPUNode)


class Gpus(Protocol):
    """Where the node's GPUs are asked for; blocks."""

    def read(self) -> GPUNodeSpec:
        """What there is now.

        Raises:
            DiscoveryError: it cannot be told now.
        """
        ...


class Inventory:
    """The node's GPUs: read again and again, published when something has changed.

    A GPU that vanishes stays listed as unhealthy as long as a vGPU stands for it, so
    that whoever was promised a part of it can be told why.

    Args:
        client: where GPUNodes are kept.
        node: this node's name, which is the GPUNode's too.
        gpus: where to ask.
        promised: the UUIDs of GPUs that vGPUs of this node stand for.
        by_claims: the UUIDs of GPUs that pods are given by a DRA driver.
        interval: seconds between readings.

    Attributes:
        reflector: watches the GPUNode.
        found: the GPUs as of the last reading.
        first_reading: set once there was one, and it is published.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        client: Client,
        node: str,
        gpus: Gpus,
        promised: Callable[[], AbstractSet[str]],
        *,
        by_claims: Callable[[], AbstractSet[str]] = frozenset,
        interval: float = 10.0,
    ) -> None:
        self._client = client
        self._node = node
        self._gpus = gpus
        self._promised = promised
        self._by_claims = by_claims
        self._interval = interval
        self._published: GPUNodeSpec | None = None
        self._remembers = False
        self._undone = asyncio.Event()
        self._trouble = ""
        self.reflector: Reflector[GPUNode] = Reflector(
            client, _GPU_NODES, fields=f"metadata.name={node}"
        )
        self.reflector.subscribe(self._changed)
        self.found = GPUNodeSpec()
        self.first_reading = asyncio.Event()

    def device(self, uuid: str) -> GPUDevice | None:
        """The GPU with this UUID, or None where this node has none such."""
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
                async with asyncio.timeout(self._interval):
                    await self._undone.wait()
            self._undone.clear()

    async def refresh(self) -> None:
        """Read once, and publish what has changed.

        Raises:
            ApiError: the GPUNode cannot be written.
        """
        if not self._remembers:
            self.found = await self._last_published()
            self._remembers = True
        try:
            now = await asyncio.to_thread(self._gpus.read)
        except DiscoveryError as error:
            now = self._unreadable(str(error))
        claimable = {device.uuid for device in now.devices} & self._by_claims()
        now = msgspec.structs.replace(now, dra_count=len(claimable))
        self.found = with_vanished(now, self.found, self._promised())
        if self.found != self._published:
            await self._publish(self.found)
            self._published = self.found

    def _changed(self, change: Change[GPUNode]) -> None:
        ours = change.type != DELETED and change.object.spec == _counted(self.found)
        if self._published is not None and not ours:
            self._published = None
            self._undone.set()

    def _unreadable(self, message: str) -> GPUNodeSpec:
        # Said once: a node without a driver stays one, and is no fault.
        if message != self._trouble:
            log.warning("no GPUs can be read", reason=message)
            self._trouble = message
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
            {"metadata": metadata, "spec": msgspec.to_builtins(_counted(spec))},
            field_manager=MANAGER_NODE,
            force=True,
        )
        log.info(
            "GPUNode published",
            gpus=len(spec.devices),
            healthy=sum(device.healthy for device in spec.devices),
        )


def _counted(spec: GPUNodeSpec) -> GPUNodeSpec:
    return msgspec.structs.replace(spec, count=len(spec.devices))
