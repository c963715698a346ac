"""Pods of one GPU that end together are released together, each exactly once."""

import asyncio
from collections.abc import Iterable

import pytest

from fakes.node import Cluster
from kubeshare.api.types.v1 import VGPU
from kubeshare.kube.client.errors import ApiError, NotFoundError
from kubeshare.node.dra.holder_release import HolderReleases
from kubeshare.node.node_view import NODE_VGPUS
from kubeshare.simulator.control import FakeApiServer, Fault, run_virtual

ALL = [f"p{number}" for number in range(128)]


@pytest.fixture
def shared(cluster: Cluster) -> Cluster:
    """A vGPU with as many holders as it can have."""
    cluster.add_vgpu("red", *(cluster.holder(name, request=1) for name in ALL))
    return cluster


def release(server: FakeApiServer, names: Iterable[str]) -> list[BaseException | None]:
    """Release the holders of pods at the same moment, all from the state before."""

    async def main() -> list[BaseException | None]:
        async with server.client("node-agent") as client:
            seen: VGPU = await client.get(NODE_VGPUS, "red")
            releases = HolderReleases(client)
            calls = (releases.release(seen, f"{name}-uid") for name in names)
            return await asyncio.gather(*calls, return_exceptions=True)

    return run_virtual(main())


def patches(server: FakeApiServer) -> int:
    return sum(request.verb == "patch" for request in server.requests)


def test_all_holders_of_a_gpu_take_three_writes_at_most(
    shared: Cluster, server: FakeApiServer
) -> None:
    results = release(server, ALL)

    assert results == [None] * len(ALL)
    assert shared.holders("red") == []
    # The first alone, the others together from the old state, and once more from the new one.
    assert patches(server) == 3


def test_the_others_keep_their_holders(shared: Cluster, server: FakeApiServer) -> None:
    assert release(server, ["p1", "p1", "p3", "none"]) == [None] * 4

    assert shared.holders("red") == [name for name in ALL if name not in ("p1", "p3")]


def test_a_refused_write_is_repeated_by_the_others_and_told_to_its_own(
    shared: Cluster, server: FakeApiServer
) -> None:
    server.inject(Fault.answer(500), verb="patch", resource="vgpus/status")

    first, *others = release(server, ["p0", "p1", "p2"])

    assert isinstance(first, ApiError)
    assert others == [None, None]
    assert shared.holders("red") == ["p0", *ALL[3:]]


def test_a_holder_of_a_newer_pod_stays(shared: Cluster, server: FakeApiServer) -> None:
    shared.set_pod_uid("red", "newer-uid")

    assert release(server, ["p0", "p1"]) == [None, None]

    assert shared.holders("red") == ["p0", *ALL[2:]]


def test_a_vgpu_that_is_gone_is_reported(cluster: Cluster, server: FakeApiServer) -> None:
    cluster.add_vgpu("red", cluster.holder("p0"))

    async def main() -> None:
        async with server.client("node-agent") as client:
            seen: VGPU = await client.get(NODE_VGPUS, "red")
            server.remove(NODE_VGPUS, "red")
            with pytest.raises(NotFoundError):
                await HolderReleases(client).release(seen, "p0-uid")

    run_virtual(main())
