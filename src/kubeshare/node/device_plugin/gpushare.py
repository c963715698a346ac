"""Offers GPU memory as ``aliyun.com/gpu-mem`` on nodes dedicated to gpushare.

A node is one if KubeShare owns its GPUs and its labels name the family. The unit is that of the
configuration. ``aliyun.com/gpu-count`` is no resource of the plugin but a fact in the status of
the Node, as Alibaba's device plugin writes it; the kubelet keeps it.
"""

from typing import Any, Final

import structlog

from kubeshare.api.configuration import DynamicConfiguration, watch_configuration
from kubeshare.api.owned_nodes import accepts_holders, family_of, offers_families
from kubeshare.api.types.constants import FAMILY_GPUSHARE, MANAGER_NODE, NAMESPACE
from kubeshare.api.types.core_v1 import NODES, Node
from kubeshare.api.types.v1 import GPUNode
from kubeshare.dialects.gpushare import GPU_COUNT, GPU_MEMORY
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.client.client import Client
from kubeshare.kube.controller.controller import Controller
from kubeshare.kube.controller.events import WARNING, EventRecorder, reference
from kubeshare.node.device_plugin.plugin import DevicePlugin
from kubeshare.node.device_plugin.units import (
    MAX_MESSAGE_BYTES,
    GpuUnits,
    divide,
    largest_size,
)
from kubeshare.node.dra.gpushare_environment import GpushareSettings
from kubeshare.node.gpus.inventory import Inventory
from kubeshare.node.paths import NodePaths

log = structlog.get_logger(__name__)

ENDPOINT: Final = "kubeshare-gpu-mem.sock"
"""The plugin's socket: not that of Alibaba's plugin, which would remove it."""
LABEL_NO_ISOLATION: Final = "cgpu.disable.isolation"
"""On a node where gpushare pods are not held to their memory, if it is ``true``."""
READING_SECONDS: Final = 3.0
"""Seconds between two readings of the GPUs while their memory is offered: with the kubelet's own
delay, a lost GPU is no longer counted after 5 s."""


class GpushareResources:
    """Offers this node's GPU memory while gpushare pods may use it.

    Args:
        client: reads and patches the Node.
        node: this node's name.
        paths: the folder of the kubelet's device plugins.
        inventory: this node's GPUs.
        events: reports to people.

    Attributes:
        nodes: watches this node's Node.
        configmaps: watches the configuration.
        configuration: the one in force.
        controller: reconciles what is offered.
        plugin: speaks to the kubelet; a task of the program runs it.
    """

    def __init__(
        self,
        client: Client,
        node: str,
        paths: NodePaths,
        inventory: Inventory,
        events: EventRecorder,
    ) -> None:
        self._client = client
        self._node = node
        self._inventory = inventory
        self._events = events
        self._usual_seconds = inventory.interval
        self._was_offered = False
        self.nodes: Reflector[Node] = Reflector(client, NODES, fields=f"metadata.name={node}")
        self.configmaps = watch_configuration(client)
        self.configuration = DynamicConfiguration(self.configmaps)
        self.plugin = DevicePlugin(paths.device_plugins_folder, GPU_MEMORY, ENDPOINT)
        self.controller: Controller[str] = Controller("gpushare-resources", self.reconcile)
        self.controller.watch(self.nodes, lambda _: (node,))
        self.controller.watch(self.configmaps, lambda _: (node,))
        self.controller.watch(inventory.reflector, lambda _: (node,))

    def settings(self) -> GpushareSettings | None:
        """The settings of this node; None unless it is dedicated to gpushare."""
        node = self.nodes.store.get(self._node)
        if node is None or family_of(node) != FAMILY_GPUSHARE:
            return None
        return GpushareSettings(
            unit_bytes=self.configuration.now().gpushare.unit_bytes,
            limits_memory=node.metadata.labels.get(LABEL_NO_ISOLATION) != "true",
        )

    async def reconcile(self, name: str) -> None:
        """Offer what the node, its GPUs and the configuration say now.

        Raises:
            ApiError: the Node cannot be patched.
        """
        node, found = self.nodes.store.get(name), self._inventory.reflector.store.get(name)
        if node is None or found is None:
            return
        gpus = self._gpus(node, found)
        # Resources of another family may be offered here, by another controller.
        offers = offers_families(found) and family_of(node)
        seconds = READING_SECONDS if offers else self._usual_seconds
        if seconds != self._inventory.interval:
            self._inventory.interval = seconds
            self._inventory.refresh_soon()
        self.plugin.offer(gpus)
        count = None if gpus is None else len(gpus)
        await self._publish_count(node, count, offers_families(found))

    def _gpus(self, node: Node, found: GPUNode) -> tuple[GpuUnits, ...] | None:
        """The units to offer; None if none are to be offered on this node."""
        if not offers_families(found) or family_of(node) != FAMILY_GPUSHARE:
            return None
        configuration = self.configuration.now().gpushare
        gpus = divide(found.spec.devices, configuration.unit_bytes, usable=accepts_holders(found))
        if largest_size(gpus) <= MAX_MESSAGE_BYTES:
            return gpus
        count = sum(gpu.units for gpu in gpus)
        note = (
            f"{GPU_MEMORY} is not offered: {count} units of 1 {configuration.memory_unit} do not "
            f"fit into the {MAX_MESSAGE_BYTES >> 20} MiB that the kubelet accepts; set "
            f"gpushare.memoryUnit: GiB in ConfigMap kubeshare of namespace {NAMESPACE}"
        )
        log.error("too many units", units=count, unit=configuration.memory_unit)
        self._events.emit(reference(NODES, node), "TooManyUnits", "Offering", note, type=WARNING)
        return None

    async def _publish_count(self, node: Node, count: int | None, owned: bool) -> None:  # noqa: FBT001
        """Write the number of GPUs into the Node; None removes what this program has written."""
        published = node.status.allocatable.get(GPU_COUNT)
        wanted = None if count is None else str(count)
        ours = owned or self._was_offered  # elsewhere Alibaba's plugin may have written it
        self._was_offered = count is not None
        if wanted == published or (wanted is None and not ours):
            return
        numbers = {GPU_COUNT: wanted}
        patch: dict[str, Any] = {"status": {"capacity": numbers, "allocatable": numbers}}
        name = node.metadata.name
        await self._client.merge_patch(
            NODES, name, patch, subresource="status", field_manager=MANAGER_NODE
        )
        log.info("GPUs counted in the Node", resource=GPU_COUNT, count=wanted)
