"""Reads the objects that say who has GPU memory, and follows them."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from kubeshare.api.types.core_v1 import PODS
from kubeshare.api.types.v1 import GPUNODES, VGPU, VGPUS, GPUNode
from kubeshare.cli.inspect.usage import InspectedNode, NodeUsage, usage
from kubeshare.client.watching import Selection, changes
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.meta import HasMetadata, Key
from kubeshare.kube.resources import NODES, Resource

if TYPE_CHECKING:
    from kubeshare.kube.client.client import Client

V = TypeVar("V", bound=HasMetadata)

INTERVAL_SECONDS: Final = 0.5
"""In which changes are collected."""


class NoNodeError(Exception):
    """There is no node of that name."""

    exit_code = 1


async def read(client: "Client", node: str | None = None) -> list[NodeUsage]:
    """Read the usage of one gpushare node, or of all.

    Raises:
        NoNodeError: there is no such node.
        ApiError: the cluster cannot be read.
    """
    objects = _Cluster(node)
    await objects.read(client)
    return objects.usage()


async def follow(client: "Client", node: str | None = None) -> AsyncGenerator[list[NodeUsage]]:
    """The usage, and again whenever it has changed, for as long as the caller reads it.

    Close the generator with ``contextlib.aclosing``. The errors are those of :func:`read`.
    """
    objects, changed = _Cluster(node), asyncio.Event()
    await objects.read(client)
    followers = [asyncio.create_task(each.follow(client, changed)) for each in objects.kinds]
    for task in followers:
        task.add_done_callback(lambda _: changed.set())
    try:
        shown = objects.usage()
        yield shown
        while True:
            await changed.wait()
            await asyncio.sleep(INTERVAL_SECONDS)
            changed.clear()
            for task in followers:
                if task.done():
                    task.result()
            if (now := objects.usage()) != shown:
                shown = now
                yield shown
    finally:
        for task in followers:
            task.cancel()
        await asyncio.gather(*followers, return_exceptions=True)


class _Objects(Generic[V]):
    """The objects of one kind, of one node or of all.

    Args:
        resource: the kind.
        fields: a field selector.
        ours: whether it is KubeShare's, so that a cluster may lack it.
    """

    def __init__(self, resource: Resource[V], fields: str = "", *, ours: bool = False) -> None:
        self._resource = resource
        self._fields = fields
        self._ours = ours
        self._known: dict[Key, V] | None = None

    @property
    def all(self) -> Sequence[V]:
        return tuple((self._known or {}).values())

    async def read(self, client: "Client") -> None:
        try:
            found = (await client.list(self._resource, fields=self._fields)).items
        except NotFoundError:
            if not self._ours:
                raise
        else:
            self._known = {each.metadata.key: each for each in found}

    async def follow(self, client: "Client", changed: asyncio.Event) -> None:
        """Keep them up to date from when they were read, until cancelled."""
        if self._known is None:
            return
        where = Selection("", fields=self._fields)
        async with aclosing(changes(client, self._resource, where, self.all)) as found:
            async for change, each in found:
                if change == "DELETED":
                    self._known.pop(each.metadata.key, None)
                else:
                    self._known[each.metadata.key] = each
                changed.set()


class _Cluster:
    """What the usage of one node, or of all, is computed from."""

    def __init__(self, node: str | None) -> None:
        self._node = node
        on_node = f"spec.nodeName={node}" if node else ""
        named = f"metadata.name={node}" if node else ""
        self._nodes = _Objects(NODES.into(InspectedNode), named)
        self._pods = _Objects(PODS, on_node)
        self._vgpus = _Objects(VGPUS.into(VGPU), on_node, ours=True)
        self._gpunodes = _Objects(GPUNODES.into(GPUNode), named, ours=True)
        self.kinds: tuple[_Objects[Any], ...] = (
            *(self._nodes, self._pods, self._vgpus, self._gpunodes),
        )

    async def read(self, client: "Client") -> None:
        for each in self.kinds:
            await each.read(client)

    def usage(self) -> list[NodeUsage]:
        if self._node and not self._nodes.all:
            raise NoNodeError(f"there is no node {self._node}")
        return usage(self._nodes.all, self._pods.all, self._vgpus.all, self._gpunodes.all)
