"""What a node offers to the pods of Tencent's Gaia."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from fakes.node import A_GPU, NODE, OTHER_GPU, Cluster, FixedGpus
from fakes.node.device_plugins import expect_a_gpunode
from kubeshare.api.types.v1 import GPUNODES
from kubeshare.core.units import MI
from kubeshare.dialects.vcuda import CORE, MEMORY
from kubeshare.kube.controller.events import EventRecorder
from kubeshare.kube.resources import NODES, Raw
from kubeshare.node.device_plugin.gpushare import READING_SECONDS, GpushareResources
from kubeshare.node.device_plugin.units import MAX_MESSAGE_BYTES, largest_size
from kubeshare.node.device_plugin.vcuda import (
    CORE_ENDPOINT,
    MEMORY_ENDPOINT,
    VcudaResources,
)
from kubeshare.node.gpus.inventory import Inventory
from kubeshare.node.paths import NodePaths
from kubeshare.simulator.control import FakeApiServer, run_virtual, until

FAMILY = {"kubeshare.nthu/family": "vcuda"}
Offered = list[tuple[int, bool]] | None


class Offer:
    """A node whose agent offers cores and memory.

    Attributes:
        server: the API server.
        gpus: the node's GPUs.
        inventory: reads them.
    """

    def __init__(self, server: FakeApiServer, gpus: FixedGpus, paths: NodePaths) -> None:
        self.server, self.gpus, self._paths = server, gpus, paths
        self.inventory: Inventory

    def run(self, act: Callable[[VcudaResources], Awaitable[None]]) -> None:
        async def main() -> None:
            async with self.server.client("node-agent") as client:
                self.inventory = Inventory(client, NODE, self.gpus, lambda: {A_GPU.uuid})
                events = EventRecorder(client, "kubeshare.nthu/node-agent", NODE)
                gpushare = GpushareResources(client, NODE, self._paths, self.inventory, events)
                offered = VcudaResources(NODE, self._paths, gpushare.nodes, self.inventory)
                work = asyncio.gather(
                    self.inventory.run(),
                    self.inventory.reflector.run(),
                    gpushare.nodes.run(),
                    gpushare.configmaps.run(),
                    gpushare.controller.run(),
                    offered.controller.run(),
                )
                await act(offered)
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

        run_virtual(main())

    async def begin(
        self, labels: dict[str, str], mode: str = "owned", reason: str = "Owned"
    ) -> None:
        """Let the node have these labels and this mode."""
        await expect_a_gpunode(self.server)
        condition = {"type": "Owned", "status": "True", "reason": reason, "message": ""}
        condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"

        def write(found: Raw) -> None:
            found["status"] = {"mode": mode, "conditions": [condition]}

        def label(node: Raw) -> None:
            node["metadata"]["labels"] = labels

        self.server.change(NODES, NODE, "", label)
        self.server.change(GPUNODES, NODE, "", write)


@pytest.fixture
def offer(server: FakeApiServer, cluster: Cluster, paths: NodePaths, gpus: FixedGpus) -> Offer:
    return Offer(server, gpus, paths)


def units(offered: VcudaResources) -> tuple[Offered, Offered]:
    """The units of cores and of memory of each GPU, and whether they are healthy."""
    cores, memory = (
        None if gpus is None else [(gpu.units, gpu.healthy) for gpu in gpus]
        for gpus in (plugin.offered for plugin in offered.plugins)
    )
    return cores, memory


async def expect_cores(offered: VcudaResources, cores: Offered) -> None:
    """Wait for these units of cores of each GPU, and whether they are healthy."""
    await until(lambda: units(offered)[0] == cores)


async def expect_units(offered: VcudaResources, cores: Offered, memory: Offered) -> None:
    """Wait for these units of both; None: nothing is offered."""
    await until(lambda: units(offered) == (cores, memory))


@pytest.mark.parametrize("labels", [FAMILY, {"nvidia-device-enable": "enable"}])
def test_an_owned_node_of_the_family_offers_hundredths_and_blocks(
    offer: Offer, paths: NodePaths, labels: dict[str, str]
) -> None:
    small = msgspec.structs.replace(OTHER_GPU, memory_bytes=1000 * MI)
    offer.gpus.devices = (A_GPU, small)
    cores, memory = [(100, True)] * 2, [(64, True), (3, True)]

    async def act(offered: VcudaResources) -> None:
        assert [(each._folder, each._resource, each._endpoint) for each in offered.plugins] == [
            (paths.device_plugins_folder, CORE, CORE_ENDPOINT),
            (paths.device_plugins_folder, MEMORY, MEMORY_ENDPOINT),
        ]
        await offer.begin(labels)
        await expect_units(offered, cores, memory)

    offer.run(act)


def test_the_units_of_a_lost_gpu_are_unhealthy_within_five_seconds(offer: Offer) -> None:
    async def act(offered: VcudaResources) -> None:
        await offer.begin(FAMILY)
        await expect_cores(offered, [(100, True)] * 2)
        assert offer.inventory.interval == READING_SECONDS
        offer.gpus.devices = (OTHER_GPU,)
        await asyncio.sleep(5)
        assert units(offered) == ([(100, True), (100, False)], [(64, True), (64, False)])

    offer.run(act)


@pytest.mark.parametrize(
    ("labels", "mode"),
    [({}, "owned"), ({"gpushare": "true"}, "owned"), (FAMILY, "shared")],
)
def test_other_nodes_offer_nothing(offer: Offer, labels: dict[str, str], mode: str) -> None:
    async def act(offered: VcudaResources) -> None:
        await offer.begin(FAMILY)
        await until(lambda: units(offered)[0] is not None)
        await offer.begin(labels, mode)
        await expect_units(offered, None, None)

    offer.run(act)


def test_the_largest_node_fits_into_a_message(offer: Offer) -> None:
    offer.gpus.devices = tuple(
        msgspec.structs.replace(A_GPU, uuid=f"GPU-{number:036}", memory_bytes=192 << 30)
        for number in range(64)
    )

    async def act(offered: VcudaResources) -> None:
        await offer.begin(FAMILY)
        await until(lambda: len(units(offered)[1] or ()) >= 64)
        for plugin in offered.plugins:
            assert largest_size(plugin.offered or ()) < MAX_MESSAGE_BYTES

    offer.run(act)


def test_while_the_pods_of_the_former_plugin_are_recorded_nothing_is_offered(offer: Offer) -> None:
    async def act(offered: VcudaResources) -> None:
        await offer.begin(FAMILY, reason="Migrating")
        await asyncio.sleep(30)
        assert units(offered) == (None, None)
        await offer.begin(FAMILY)
        await expect_cores(offered, [(100, True)] * 2)

    offer.run(act)
