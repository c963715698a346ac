"""The ResourceSlice that offers the node's driver."""

import asyncio
from typing import Any

import pytest

from fakes.node import NODE, Cluster
from kubeshare.kube.resources import NODES, RESOURCE_SLICES
from kubeshare.node.dra.resource_slice import SlicePublisher
from kubeshare.simulator.control import FakeApiServer, run_virtual

NAME = f"{NODE}-vgpu.kubeshare.nthu"


def run(server: FakeApiServer, disturb: Any = lambda: None) -> Any:
    async def main() -> None:
        async with server.client() as client:
            publisher = SlicePublisher(client, NODE)
            work = asyncio.gather(publisher.reflector.run(), publisher.controller.run())
            await asyncio.sleep(1)
            disturb()
            await asyncio.sleep(1)
            work.cancel()

    run_virtual(main())
    return server.stored(RESOURCE_SLICES, NAME)


@pytest.mark.usefixtures("cluster")
def test_one_device_that_can_be_allocated_many_times_is_published(server: FakeApiServer) -> None:
    spec = run(server)["spec"]
    assert spec["driver"] == "vgpu.kubeshare.nthu"
    assert spec["nodeName"] == spec["pool"]["name"] == NODE
    assert spec["devices"] == [{"name": "slots", "allowMultipleAllocations": True}]


def test_the_slice_belongs_to_the_node(server: FakeApiServer, cluster: Cluster) -> None:
    (owner,) = run(server)["metadata"]["ownerReferences"]
    node = server.stored(NODES, NODE)
    assert node is not None
    assert (owner["kind"], owner["uid"]) == ("Node", node["metadata"]["uid"])


@pytest.mark.usefixtures("cluster")
def test_a_slice_that_the_kubelet_has_deleted_is_published_again(server: FakeApiServer) -> None:
    assert run(server, lambda: server.remove(RESOURCE_SLICES, NAME)) is not None


@pytest.mark.usefixtures("cluster")
def test_a_slice_that_is_there_is_not_written_again(server: FakeApiServer) -> None:
    run(server)
    writes = server.writes
    run(server)
    assert server.writes == writes


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    "wrong",
    [
        {"devices": [{"name": "slots"}]},
        {"devices": [{"name": "slots", "allowMultipleAllocations": True}, {"name": "more"}]},
        {"pool": {"name": NODE, "generation": 1, "resourceSliceCount": 2}},
    ],
    ids=["a device that one pod takes", "another device", "slices that do not exist"],
)
def test_a_slice_that_says_something_else_is_replaced_under_the_next_generation(
    server: FakeApiServer, wrong: dict[str, Any]
) -> None:
    right = run(server)["spec"]
    server.change(RESOURCE_SLICES, NAME, "", lambda found: found["spec"].update(wrong))
    writes = server.writes
    assert run(server)["spec"] == right | {"pool": right["pool"] | {"generation": 2}}
    assert server.writes == writes + 1


@pytest.mark.usefixtures("cluster")
def test_a_slice_that_the_api_server_changes_is_not_written_for_ever(server: FakeApiServer) -> None:
    run(server)
    server.change(RESOURCE_SLICES, NAME, "", lambda found: found["spec"].update(devices=[]))

    def drop(slice_: dict[str, Any], _: dict[str, Any] | None) -> None:
        slice_["spec"]["devices"] = [{"name": "slots"}]

    server.add_rule(RESOURCE_SLICES, drop)
    writes = server.writes
    assert run(server)["spec"]["devices"] == [{"name": "slots"}]
    assert server.writes == writes + 1


def test_a_slice_of_a_node_that_has_joined_again_belongs_to_the_new_node(
    server: FakeApiServer, cluster: Cluster
) -> None:
    run(server)
    server.remove(NODES, NODE)
    cluster.server.seed(NODES, {"metadata": {"name": NODE}})
    (owner,) = run(server)["metadata"]["ownerReferences"]
    node = server.stored(NODES, NODE)
    assert node is not None
    assert owner["uid"] == node["metadata"]["uid"]
