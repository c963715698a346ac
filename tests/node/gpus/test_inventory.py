"""The node's GPUs and their GPUNode."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fakes.node import A_GPU, NODE, OTHER_GPU, FixedGpus
from kubeshare.api.types.v1 import GPUNODES, GPUNodeSpec
from kubeshare.kube.client.errors import ApiError
from kubeshare.kube.resources import NODES
from kubeshare.node.gpus.discovery import with_vanished
from kubeshare.node.gpus.inventory import Inventory
from kubeshare.simulator.control import FakeApiServer, Fault, run_virtual, until

PROMISED = {A_GPU.uuid}

pytestmark = pytest.mark.usefixtures("cluster")
"""The node itself has to be there: what is published of it belongs to it."""


def published(server: FakeApiServer) -> Any:
    stored = server.stored(GPUNODES, NODE)
    return stored and stored["spec"]


def refresh(server: FakeApiServer, gpus: FixedGpus, times: int = 1) -> Inventory:
    async def main() -> Inventory:
        async with server.client() as client:
            inventory = Inventory(client, NODE, Direct(gpus), lambda: PROMISED)
            for _ in range(times):
                await inventory.refresh()
            return inventory

    return run_virtual(main())


class Direct:
    """GPUs read in the event loop's own thread, as virtual time wants it."""

    def __init__(self, gpus: FixedGpus) -> None:
        self.read, self.utilization = gpus.read, gpus.utilization


def test_what_is_found_is_published_whole(server: FakeApiServer) -> None:
    inventory = refresh(server, FixedGpus())
    assert [device["uuid"] for device in published(server)["devices"]] == [
        A_GPU.uuid,
        OTHER_GPU.uuid,
    ]
    assert published(server)["driverVersion"] == "550.1"
    assert inventory.device(OTHER_GPU.uuid) == OTHER_GPU
    assert inventory.device("GPU-of-another-node") is None


def test_unrecorded_pods_are_published_only_where_there_are_some(server: FakeApiServer) -> None:
    """The kind of an earlier release refuses the field, whatever its value."""

    async def main() -> None:
        async with server.client() as client:
            inventory = Inventory(
                client,
                NODE,
                Direct(FixedGpus()),
                lambda: PROMISED,
                unrecorded=lambda _: {A_GPU.uuid: ("default/a",)},
            )
            await inventory.refresh()

    run_virtual(main())
    named, other = published(server)["devices"]
    assert named["unrecordedPods"] == ["default/a"]
    assert "unrecordedPods" not in other
    refresh(server, FixedGpus())
    assert not [each for each in published(server)["devices"] if "unrecordedPods" in each]


def test_nothing_is_written_when_nothing_has_changed(server: FakeApiServer) -> None:
    refresh(server, FixedGpus(), times=5)
    assert server.writes == 1


def test_a_gpu_that_vanishes_stays_listed_as_unhealthy_while_a_vgpu_stands_for_it(
    server: FakeApiServer,
) -> None:
    refresh(server, FixedGpus())
    inventory = refresh(server, FixedGpus(devices=()))
    (lost,) = published(server)["devices"]
    assert (lost["uuid"], lost["healthy"]) == (A_GPU.uuid, False)
    assert "lists it no more" in lost["message"]
    device = inventory.device(A_GPU.uuid)
    assert device is not None
    assert not device.healthy


def test_a_gpu_that_comes_back_is_healthy_again(server: FakeApiServer) -> None:
    refresh(server, FixedGpus())
    refresh(server, FixedGpus(devices=()))
    refresh(server, FixedGpus())
    assert [device["healthy"] for device in published(server)["devices"]] == [True, True]


def test_a_node_without_a_driver_publishes_that_it_has_no_gpus(server: FakeApiServer) -> None:
    refresh(server, FixedGpus(fault="no libnvidia-ml.so.1"), times=3)
    assert published(server)["devices"] == []
    assert server.writes == 1


def test_a_gpunode_that_could_not_be_written_is_written_the_next_time(
    server: FakeApiServer,
) -> None:
    server.inject(Fault.answer(500), verb="patch", resource="gpunodes")

    async def main() -> None:
        async with server.client() as client:
            inventory = Inventory(client, NODE, Direct(FixedGpus()), lambda: PROMISED)
            with pytest.raises(ApiError):
                await inventory.refresh()
            await inventory.refresh()

    run_virtual(main())
    assert len(published(server)["devices"]) == 2


@pytest.mark.parametrize("after", [False, True])
def test_a_change_that_is_undone_before_its_write_is_answered_is_undone_in_the_gpunode(
    server: FakeApiServer, after: bool
) -> None:
    async def main() -> None:
        users: dict[str, str] = {}

        async def in_use() -> dict[str, str]:
            return dict(users)

        async with server.client() as client:
            gpus = Direct(FixedGpus())
            inventory = Inventory(client, NODE, gpus, lambda: PROMISED, in_use=in_use)
            await inventory.refresh()
            users[A_GPU.uuid] = ""
            server.inject(Fault.answer(500, after=after), verb="patch", resource="gpunodes")
            with pytest.raises(ApiError):
                await inventory.refresh()
            users.clear()
            await inventory.refresh()

    run_virtual(main())
    assert not any(device.get("inUse") for device in published(server)["devices"])


def after(server: FakeApiServer, undo: Callable[[], None]) -> Any:
    """The GPUNode, once it is restored."""

    def is_published() -> bool:
        spec = published(server)
        return bool(spec and spec["devices"])

    async def main() -> None:
        async with server.client() as client:
            inventory = Inventory(client, NODE, Direct(FixedGpus()), lambda: PROMISED)
            work = asyncio.gather(inventory.reflector.run(), inventory.run())
            await until(is_published)
            await asyncio.sleep(1)
            undo()
            assert not is_published()
            await until(is_published, seconds=1)
            work.cancel()

    run_virtual(main())
    return server.stored(GPUNODES, NODE)


def test_its_own_write_is_no_reason_to_publish_again(server: FakeApiServer) -> None:
    async def main() -> None:
        async with server.client() as client:
            inventory = Inventory(client, NODE, Direct(FixedGpus()), lambda: PROMISED)
            work = asyncio.gather(inventory.reflector.run(), inventory.run())
            await until(lambda: server.stored(GPUNODES, NODE) is not None)
            await asyncio.sleep(5)
            work.cancel()

    run_virtual(main())
    assert server.writes == 1


def test_a_gpunode_that_somebody_has_deleted_is_published_again(server: FakeApiServer) -> None:
    again = after(server, lambda: server.remove(GPUNODES, NODE))
    assert len(again["spec"]["devices"]) == 2


def test_a_gpunode_that_somebody_else_has_changed_is_published_again(
    server: FakeApiServer,
) -> None:
    def change() -> None:
        server.change(GPUNODES, NODE, "", lambda found: found["spec"].update(devices=[]))

    again = after(server, change)
    assert len(again["spec"]["devices"]) == 2


def test_the_gpunode_belongs_to_the_node_that_there_is_now(server: FakeApiServer) -> None:
    def join_again() -> None:
        server.remove(NODES, NODE)
        server.remove(GPUNODES, NODE)
        server.seed(NODES, {"metadata": {"name": NODE}})

    (owner,) = after(server, join_again)["metadata"]["ownerReferences"]
    node = server.stored(NODES, NODE)
    assert node is not None
    assert (owner["kind"], owner["uid"]) == ("Node", node["metadata"]["uid"])


def test_a_vanished_gpu_that_nobody_counts_on_is_forgotten() -> None:
    before = GPUNodeSpec(devices=(A_GPU, OTHER_GPU))
    now = with_vanished(GPUNodeSpec(), before, {OTHER_GPU.uuid})
    assert [device.uuid for device in now.devices] == [OTHER_GPU.uuid]
    assert not now.devices[0].healthy
    assert msgspec.structs.replace(now.devices[0], healthy=True, message="") == OTHER_GPU


def test_the_gpus_of_fillers_and_of_other_pods_are_told_apart(server: FakeApiServer) -> None:
    first, second = A_GPU, OTHER_GPU

    async def in_use() -> dict[str, str]:
        return {first.uuid: "kubeshare-filler-x", second.uuid: ""}

    async def main() -> None:
        async with server.client() as client:
            inventory = Inventory(
                client, NODE, Direct(FixedGpus()), lambda: PROMISED, in_use=in_use
            )
            await inventory.refresh()

    run_virtual(main())
    found = [(each["filler"], each["inUse"]) for each in published(server)["devices"]]
    assert found == [("kubeshare-filler-x", False), ("", True)]
