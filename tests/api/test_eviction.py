"""Evictions, by a real API server."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import msgspec
import pytest

from kubeshare.api.eviction import evict
from kubeshare.api.types.core_v1 import PODS, Pod
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ConflictError, NotFoundError, TooManyRequestsError
from kubeshare.kube.resources import POD_DISRUPTION_BUDGETS
from kubeshare.lab.control_plane.api_server import ApiServer

pytestmark = pytest.mark.apiserver

NAMESPACE = "evictions"


@pytest.fixture(scope="module")
def server(apiserver: ApiServer) -> Iterator[ApiServer]:
    """One with a namespace of our own, of which no controller makes the account."""
    apiserver.kubectl("create", "namespace", NAMESPACE)
    apiserver.kubectl("create", "serviceaccount", "default", "-n", NAMESPACE)
    yield apiserver
    apiserver.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture
def namespace(server: ApiServer) -> Iterator[ApiServer]:
    yield server
    server.kubectl("delete", "pods,pdb", "--all", "-n", NAMESPACE, "--force")


async def a_pod(client: Client) -> Pod:
    """One that runs, as far as its status says."""
    metadata = {"name": "a", "namespace": NAMESPACE, "labels": {"app": "a"}}
    container = {"name": "main", "image": "train:1"}
    spec = {"nodeName": "nowhere", "containers": [container]}
    await client.create(PODS, {"metadata": metadata, "spec": spec})
    running = {"status": {"phase": "Running"}}
    return await client.merge_patch(PODS, "a", running, NAMESPACE, subresource="status")


def play(server: ApiServer, scenario: Callable[[Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Client.connect(server.kubeconfig) as client:
            await scenario(client)

    asyncio.run(main())


def test_a_dry_run_asks_and_does_nothing(namespace: ApiServer) -> None:
    async def scenario(client: Client) -> None:
        pod = await a_pod(client)
        await evict(client, pod, dry_run=True)
        assert (await client.get(PODS, "a", NAMESPACE)).metadata.deletion_timestamp is None
        await evict(client, pod)
        assert (await client.get(PODS, "a", NAMESPACE)).metadata.deletion_timestamp is not None

    play(namespace, scenario)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_budget_refuses(namespace: ApiServer, *, dry_run: bool) -> None:
    async def scenario(client: Client) -> None:
        pod = await a_pod(client)
        metadata = {"name": "a", "namespace": NAMESPACE}
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
        await client.create(POD_DISRUPTION_BUDGETS, {"metadata": metadata, "spec": spec})
        with pytest.raises(TooManyRequestsError):
            await evict(client, pod, dry_run=dry_run)

    play(namespace, scenario)


def test_a_namesake_is_left_alone(namespace: ApiServer) -> None:
    async def scenario(client: Client) -> None:
        pod = await a_pod(client)
        other = msgspec.structs.replace(pod.metadata, uid="another")
        with pytest.raises((ConflictError, NotFoundError)):
            await evict(client, msgspec.structs.replace(pod, metadata=other))
        assert (await client.get(PODS, "a", NAMESPACE)).metadata.deletion_timestamp is None

    play(namespace, scenario)
