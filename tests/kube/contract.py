"""A control plane for the contract suite: the fake API server, or the real one.

A test gets a client and a namespace of its own and makes the same assertions against both. The
fake server runs in virtual time.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from typing import Any

from deadlines import DEADLINE_S
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, Raw, Resource
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.simulator.control import FakeApiServer, run_virtual

Test = Callable[[Client, str], Coroutine[Any, Any, None]]
"""Makes assertions with a client, in a namespace."""

Rule = Callable[[Raw, Raw | None], str | None]

_numbers = count(1)


class ControlPlane(ABC):
    """An API server, started."""

    @abstractmethod
    def run(self, test: Test) -> None:
        """Run a test with a client and a namespace that no other test uses."""

    @abstractmethod
    async def install(self, client: Client, crd: Raw, resource: Resource[Any], rule: Rule) -> None:
        """Serve the kind of a CRD.

        Args:
            client: of this control plane.
            crd: the manifest.
            resource: its kind.
            rule: the same as the CRD's CEL rules, for the fake server.
        """


class FakeControlPlane(ControlPlane):
    """The fake API server."""

    def __init__(self) -> None:
        self.server = FakeApiServer()

    def run(self, test: Test) -> None:
        run_virtual(test(self.server.client(), "contract"))

    async def install(self, client: Client, crd: Raw, resource: Resource[Any], rule: Rule) -> None:
        self.server.add_crd(crd)
        self.server.add_rule(resource, rule)


class RealControlPlane(ControlPlane):
    """A kube-apiserver with etcd."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    def run(self, test: Test) -> None:
        async def main() -> None:
            name = f"contract-{next(_numbers)}"
            async with (
                asyncio.timeout(DEADLINE_S),
                Client.connect(self._server.kubeconfig) as client,
            ):
                await client.create(NAMESPACES, {"metadata": {"name": name}})
                await test(client, name)

        asyncio.run(main())

    async def install(self, client: Client, crd: Raw, resource: Resource[Any], rule: Rule) -> None:
        await client.apply(
            CUSTOM_RESOURCE_DEFINITIONS, crd, field_manager="contract-suite", force=True
        )
        await eventually(lambda: client.list(resource))


async def eventually(attempt: Callable[[], Awaitable[object]]) -> None:
    """Repeat until the kind is served."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                await attempt()
            except NotFoundError:
                await asyncio.sleep(0.05)
            else:
                return


def config_map(name: str, namespace: str, labels: Raw | None = None, **data: str) -> Raw:
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}}
    return {"metadata": metadata, "data": data}


def unchanged(obj: Raw) -> Raw:
    """The operation of a JSON patch that makes it conditional."""
    version = obj["metadata"]["resourceVersion"]
    return {"op": "test", "path": "/metadata/resourceVersion", "value": version}
