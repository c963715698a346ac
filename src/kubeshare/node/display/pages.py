"""Serves gpu-manager's display API: ``/usage``, ``/graph`` and ``/version``.

Read-only, on the port of the agent's metrics, and with the names of gpu-manager's JSON. However
many clients ask, driver and token daemon are asked at most once a second.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

import kubeshare
from kubeshare.api.topology.node_topology import NodeTopology
from kubeshare.api.topology.tree_text import tree_text
from kubeshare.api.types.v1 import GPUDevice
from kubeshare.core.units import MICROS, format_memory, format_share
from kubeshare.kube.controller.health import UnavailableError
from kubeshare.kube.controller.runtime import Program
from kubeshare.node.display.usage import usage
from kubeshare.node.escapes.detection import Sample
from kubeshare.node.gpus.discovery import DiscoveryError
from kubeshare.node.gpus.inventory import Inventory
from kubeshare.node.node_view import NodeView
from kubeshare.tokens.client import RequestRefusedError
from kubeshare.tokens.files.statuses import DaemonMissingError

KEPT_SECONDS: Final = 1.0


class Display:
    """The pages of one node.

    Args:
        view: its pods and vGPUs.
        inventory: its GPUs.
        sample: the last sample of the processes on its GPUs; None before the first.
        snapshot: asks the token daemon; blocks.
        addresses: reads the PCI address of each GPU; blocks.
    """

    def __init__(
        self,
        view: NodeView,
        inventory: Inventory,
        *,
        sample: Callable[[], Sample | None],
        snapshot: Callable[[], dict[str, Any]],
        addresses: Callable[[], Mapping[str, str]],
    ) -> None:
        self._view = view
        self._inventory = inventory
        self._sample = sample
        self._snapshot = snapshot
        self._addresses = addresses
        self._asking = asyncio.Lock()
        self._answer = b""
        self._refusal: str | None = None  # why there is no answer
        self._until = 0.0

    def add_to(self, program: Program) -> None:
        """Add the pages to a program."""
        program.add_page("/usage", self.usage)
        program.add_page("/graph", self.graph)
        program.add_page("/version", self.version)

    async def usage(self) -> bytes:
        """What Gaia's pods use.

        Raises:
            UnavailableError: driver or token daemon do not answer.
        """
        now = asyncio.get_running_loop().time
        async with self._asking:
            if now() >= self._until:
                await self._refresh()
                self._until = now() + KEPT_SECONDS
            if self._refusal is not None:
                raise UnavailableError(self._refusal)
            return self._answer

    async def _refresh(self) -> None:
        try:
            self._answer, self._refusal = await self._ask(), None
        except UnavailableError as error:
            self._refusal = str(error)

    async def _ask(self) -> bytes:
        sample = self._sample()
        if sample is None:
            raise UnavailableError("the processes on the GPUs are not read yet: try again")
        try:
            snapshot = await asyncio.to_thread(self._snapshot)
            addresses = await asyncio.to_thread(self._addresses)
        except (DaemonMissingError, RequestRefusedError, DiscoveryError) as error:
            raise UnavailableError(str(error)) from error
        gpus = {gpu.uuid: gpu for gpu in self._inventory.found.devices}
        pods = self._view.pods.store.snapshot().values()
        found = usage(pods, sample, snapshot["claims"], gpus, addresses)
        return msgspec.json.encode(found)

    async def graph(self) -> bytes:
        """The access-cost tree, with what is left of each GPU, as text."""
        topology = NodeTopology(self._view.node, self._inventory.found)
        return msgspec.json.encode({"graph": tree_text(topology, self._left) + "\n"})

    def _left(self, gpu: GPUDevice) -> str:
        vgpu = self._view.vgpu_of(gpu.uuid)
        holders = vgpu.status.holders if vgpu else ()
        time = MICROS - sum(holder.request_micros for holder in holders)
        memory = gpu.memory_bytes - sum(holder.memory_bytes for holder in holders)
        return f"left: {format_share(time)}, {format_memory(memory)}"

    async def version(self) -> bytes:
        """KubeShare's version."""
        return msgspec.json.encode({"version": kubeshare.__version__})
