"""Offers cores and blocks of memory on nodes dedicated to Tencent's Gaia.

A node is one if KubeShare owns its GPUs and its labels name the family. Both resources are only
counted: ``tencent.com/vcuda-core`` as 100 for each GPU, ``tencent.com/vcuda-memory`` as its whole
blocks of 256 MiB.
"""

from typing import Final

from kubeshare.api.owned_nodes import accepts_holders, family_of, offers_families
from kubeshare.api.types.core_v1 import Node
from kubeshare.dialects.vcuda import BLOCK, CORE, CORES, FAMILY, MEMORY
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.controller.controller import Controller
from kubeshare.node.device_plugin.plugin import DevicePlugin
from kubeshare.node.device_plugin.units import divide, divide_equally
from kubeshare.node.gpus.inventory import Inventory
from kubeshare.node.paths import NodePaths

CORE_ENDPOINT: Final = "kubeshare-vcuda-core.sock"
"""The socket of a plugin: not one of Tencent's agent, which would remove it."""
MEMORY_ENDPOINT: Final = "kubeshare-vcuda-memory.sock"


class VcudaResources:
    """Offers this node's GPUs while vcuda pods may use them.

    Args:
        node: this node's name.
        paths: the folder of the kubelet's device plugins.
        nodes: watches this node's Node; somebody else runs it.
        inventory: this node's GPUs.

    Attributes:
        controller: reconciles what is offered.
        plugins: speak to the kubelet, for cores and for memory; tasks of the program run them.
    """

    def __init__(
        self, node: str, paths: NodePaths, nodes: Reflector[Node], inventory: Inventory
    ) -> None:
        self._nodes = nodes.store
        self._gpunodes = inventory.reflector.store
        folder = paths.device_plugins_folder
        self._cores = DevicePlugin(folder, CORE, CORE_ENDPOINT)
        self._memory = DevicePlugin(folder, MEMORY, MEMORY_ENDPOINT)
        self.plugins = (self._cores, self._memory)
        self.controller: Controller[str] = Controller("vcuda-resources", self.reconcile)
        self.controller.watch(nodes, lambda _: (node,))
        self.controller.watch(inventory.reflector, lambda _: (node,))

    async def reconcile(self, name: str) -> None:
        """Offer what the node and its GPUs say now."""
        node, found = self._nodes.get(name), self._gpunodes.get(name)
        if node is None or found is None:
            return
        if not offers_families(found) or family_of(node) != FAMILY:
            for plugin in self.plugins:
                plugin.offer(None)
            return
        devices, usable = found.spec.devices, accepts_holders(found)
        self._cores.offer(divide_equally(devices, CORES, usable=usable))
        self._memory.offer(divide(devices, BLOCK, usable=usable))
