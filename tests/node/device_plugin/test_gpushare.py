"""What a node offers to gpushare pods, and what stops it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.node import A_GPU, NODE, OTHER_GPU, Cluster, FixedGpus
from fakes.node.device_plugins import PluginKubelet, expect_a_gpunode
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.v1 import GPUNODES
from kubeshare.core.units import MI
from kubeshare.kube.controller.events import EventRecorder
from kubeshare.kube.resources import CONFIG_MAPS, EVENTS, NODES, Raw
from kubeshare.node.device_plugin.gpushare import GpushareResources
from kubeshare.node.gpus.inventory import Inventory
from kubeshare.node.paths import NodePaths
from kubeshare.simulator.control import Authorizer, FakeApiServer, Permission, run_virtual, until

COUNT = "aliyun.com/gpu-count"


class Offer:
    """A node whose agent offers memory.

    Attributes:
        server: the API server.
        gpus: the node's GPUs.
    """

    def __init__(self, server: FakeApiServer, gpus: FixedGpus, paths: NodePaths) -> None:
        self.server, self.gpus, self._paths = server, gpus, paths

    @property
    def plugins_folder(self) -> Path:
        """Where the kubelet and its plugins have their sockets."""
        return self._paths.device_plugins_folder

    def run(
        self, act: Callable[[GpushareResources], Awaitable[None]], *, plugin: bool = False
    ) -> None:
        """Run a test in virtual time; with the plugin on real sockets, in real time."""

        async def main() -> None:
            async with self.server.client("node-agent") as client:
                inventory = Inventory(client, NODE, self.gpus, lambda: {A_GPU.uuid})
                events = EventRecorder(client, "kubeshare.nthu/node-agent", NODE)
                offered = GpushareResources(client, NODE, self._paths, inventory, events)
                work = asyncio.gather(
                    inventory.run(),
                    inventory.reflector.run(),
                    offered.nodes.run(),
                    offered.configmaps.run(),
                    offered.controller.run(),
                    events.run(),
                    *([offered.plugin.run()] if plugin else []),
                )
                await act(offered)
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)

        (asyncio.run if plugin else run_virtual)(main())

    def owned(self, *, accepts: bool = True, mode: str = "owned", reason: str = "Owned") -> None:
        """Record the mode of the node, as the device manager does."""
        status = "True" if accepts else "False"
        condition = {"type": "Owned", "status": status, "reason": reason, "message": ""}
        condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"

        def write(found: Raw) -> None:
            found["status"] = {"mode": mode, "conditions": [condition]}

        self.server.change(GPUNODES, NODE, "", write)

    def label(self, **labels: str) -> None:
        def write(node: Raw) -> None:
            node["metadata"]["labels"] = labels

        self.server.change(NODES, NODE, "", write)

    def configure(self, text: str) -> None:
        metadata = {"name": "kubeshare", "namespace": NAMESPACE}
        self.server.seed(CONFIG_MAPS, {"metadata": metadata, "data": {"config.yaml": text}})

    @property
    def count(self) -> Any:
        node = self.server.stored(NODES, NODE)
        assert node is not None
        status = node.get("status", {})
        numbers = {(status.get(key) or {}).get(COUNT) for key in ("capacity", "allocatable")}
        assert len(numbers) == 1
        return numbers.pop()

    async def expect_count(self, count: str | None) -> None:
        """Wait for this count of GPUs in the node's status."""
        await until(lambda: self.count == count)

    async def begin(self, **labels: str) -> None:
        """Let the node be owned, with these labels."""
        await expect_a_gpunode(self.server)
        self.label(**(labels or {"gpushare": "true"}))
        self.owned()


@pytest.fixture
def offer(server: FakeApiServer, cluster: Cluster, paths: NodePaths, gpus: FixedGpus) -> Offer:
    return Offer(server, gpus, paths)


def units(offered: GpushareResources) -> list[tuple[int, bool]] | None:
    gpus = offered.plugin.offered
    return None if gpus is None else [(gpu.units, gpu.healthy) for gpu in gpus]


async def expect_units(offered: GpushareResources, expected: list[tuple[int, bool]] | None) -> None:
    """Wait for these units of each GPU, and whether they are healthy; None: nothing is offered."""
    await until(lambda: units(offered) == expected)


def test_an_owned_node_of_the_family_offers_its_memory_and_counts_its_gpus(
    offer: Offer, rights: Authorizer
) -> None:
    async def act(offered: GpushareResources) -> None:
        await offer.begin()
        await expect_units(offered, [(16, True), (16, True)])
        await offer.expect_count("2")

    offer.run(act)
    assert Permission("patch", "", "nodes/status") in rights.used


def test_the_label_of_kubeshare_names_the_family_too(offer: Offer) -> None:
    async def act(offered: GpushareResources) -> None:
        await offer.begin(**{"kubeshare.nthu/family": "gpushare"})
        await until(lambda: units(offered) is not None)

    offer.run(act)


@pytest.mark.parametrize(
    ("labels", "mode"),
    [({"gpushare": "true"}, "shared"), ({"gpushare": "false"}, "owned"),
     ({"nvidia-device-enable": "enable"}, "owned"), ({"kubeshare.nthu/family": "vcuda",
      "gpushare": "true"}, "owned")],
)  # fmt: skip
def test_no_other_node_offers_any(offer: Offer, labels: dict[str, str], mode: str) -> None:
    async def act(offered: GpushareResources) -> None:
        await expect_a_gpunode(offer.server)
        offer.label(**labels)
        offer.owned(mode=mode)
        await asyncio.sleep(30)
        assert units(offered) is None
        assert offer.count is None

    offer.run(act)


def test_the_unit_is_that_of_the_configuration(offer: Offer) -> None:
    offer.configure("gpushare: {memoryUnit: MiB}")

    async def act(offered: GpushareResources) -> None:
        await offer.begin()
        await expect_units(offered, [(16384, True), (16384, True)])

    offer.run(act)


def test_more_units_than_the_kubelet_accepts_are_refused_with_what_to_do(offer: Offer) -> None:
    offer.gpus.devices = tuple(
        msgspec.structs.replace(gpu, memory_bytes=143771 * MI) for gpu in (A_GPU, OTHER_GPU)
    )
    offer.configure("gpushare: {memoryUnit: MiB}")

    async def act(offered: GpushareResources) -> None:
        await offer.begin()
        await until(lambda: offer.server.all(EVENTS))
        assert units(offered) is None
        offer.configure("gpushare: {memoryUnit: GiB}")
        await expect_units(offered, [(140, True), (140, True)])

    offer.run(act)
    (event,) = offer.server.all(EVENTS)
    assert (event["reason"], event["regarding"]["kind"]) == ("TooManyUnits", "Node")
    assert "287542 units of 1 MiB" in event["note"]
    assert "gpushare.memoryUnit: GiB" in event["note"]


def test_a_lost_gpu_is_no_longer_counted_within_five_seconds(offer: Offer) -> None:
    async def act(offered: GpushareResources) -> None:
        await offer.begin()
        await offer.expect_count("2")
        offer.gpus.devices = (A_GPU,)
        await asyncio.sleep(5)
        assert units(offered) == [(16, True)]
        assert offer.count == "1"

    offer.run(act)


def test_the_units_of_a_lost_gpu_with_holders_stay_and_are_unhealthy(offer: Offer) -> None:
    async def act(offered: GpushareResources) -> None:
        await offer.begin()
        await offer.expect_count("2")
        offer.gpus.devices = (OTHER_GPU,)
        await expect_units(offered, [(16, True), (16, False)])
        assert offer.count == "2"

    offer.run(act)


def test_none_can_be_allocated_while_something_else_offers_the_gpus(offer: Offer) -> None:
    async def act(offered: GpushareResources) -> None:
        await offer.begin()
        await offer.expect_count("2")
        offer.owned(accepts=False)
        await expect_units(offered, [(16, False), (16, False)])

    offer.run(act)


def test_what_is_given_back_is_offered_no_more(offer: Offer) -> None:
    async def act(offered: GpushareResources) -> None:
        await offer.begin()
        await offer.expect_count("2")
        offer.owned(mode="shared", accepts=False)
        await expect_units(offered, None)
        await offer.expect_count(None)

    offer.run(act)


def test_a_count_that_the_kubelet_has_reset_is_written_again(offer: Offer) -> None:
    async def act(offered: GpushareResources) -> None:
        await offer.begin()
        await offer.expect_count("2")
        reset = {"capacity": {COUNT: "0"}, "allocatable": {COUNT: "0"}}
        offer.server.change(NODES, NODE, "", lambda node: node.update(status=reset))
        await offer.expect_count("2")

    offer.run(act)


def test_a_kubelet_that_restarts_gets_one_registration_and_the_count_is_not_written(
    offer: Offer,
) -> None:
    """Case 30 of the published ones."""

    async def act(offered: GpushareResources) -> None:
        offer.plugins_folder.mkdir(parents=True, exist_ok=True)
        kubelet = PluginKubelet(offer.plugins_folder)
        await kubelet.start()
        await offer.begin()
        await until(lambda: len(kubelet.devices) == 32 and offer.count == "2")
        writes = patches_of_the_node(offer.server)
        await kubelet.stop()
        kubelet.requests.clear()
        kubelet.devices = {}
        await kubelet.start()
        await kubelet.expect_devices(32)
        assert [each.resource_name for each in kubelet.requests] == ["aliyun.com/gpu-mem"]
        assert patches_of_the_node(offer.server) == writes == 1
        await kubelet.stop()

    offer.run(act, plugin=True)


def patches_of_the_node(server: FakeApiServer) -> int:
    return len([each for each in server.requests if each.resource == "nodes/status"])


def test_the_count_of_a_node_that_is_not_owned_is_left_to_its_writer(offer: Offer) -> None:
    theirs = {"capacity": {COUNT: "4"}, "allocatable": {COUNT: "4"}}

    async def act(offered: GpushareResources) -> None:
        await expect_a_gpunode(offer.server)
        offer.label(gpushare="true")
        offer.server.change(NODES, NODE, "", lambda node: node.update(status=theirs))
        await asyncio.sleep(30)
        assert offer.count == "4"

    offer.run(act)


def test_while_the_pods_of_the_former_plugin_are_recorded_it_stays_in_charge(offer: Offer) -> None:
    theirs = {"capacity": {COUNT: "4"}, "allocatable": {COUNT: "4"}}

    async def act(offered: GpushareResources) -> None:
        await expect_a_gpunode(offer.server)
        offer.owned(accepts=False, reason="Migrating")
        offer.label(gpushare="true")
        offer.server.change(NODES, NODE, "", lambda node: node.update(status=theirs))
        await asyncio.sleep(30)
        assert (units(offered), offer.count) == (None, "4")
        offer.owned()
        await expect_units(offered, [(16, True), (16, True)])
        await offer.expect_count("2")

    offer.run(act)
