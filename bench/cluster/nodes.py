"""Nodes that exist as objects only, and what their kubelets and node agents would write."""

import asyncio
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

from kubeshare.api.types import core_v1
from kubeshare.api.types.constants import WHOLE_GPU_RESOURCE
from kubeshare.api.types.v1 import GPUNODES, VGPUS
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.resources import NODES, PODS, RESOURCE_SLICES
from kubeshare.node.dra.resource_slice import slice_body

IN_FLIGHT = 16
_MEMORY = 16 << 30
_READY = [{"type": "Ready", "status": "True"}]
_STARTED = "2026-01-01T00:00:30Z"


async def in_flight(work: Iterable[Any], do: Callable[[Any], Any], count: int = IN_FLIGHT) -> None:
    """Do something for each, so many at once."""
    left = iter(work)

    async def worker() -> None:
        for each in left:
            await do(each)

    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(worker())


async def add(client: Client, nodes: int, gpus: int) -> None:
    """Make nodes that are ready and have so many GPUs each."""

    async def one(number: int) -> None:
        name = f"node-{number}"
        made = await client.create(
            NODES, {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}}
        )
        room = {"cpu": "64", "memory": "512Gi", "pods": "250", WHOLE_GPU_RESOURCE: str(gpus)}
        status = {"allocatable": room, "capacity": room, "conditions": _READY}
        await client.merge_patch(NODES, name, {"status": status}, subresource="status")
        # Whoever makes a node is not believed that it is ready.
        await client.merge_patch(NODES, name, {"spec": {"taints": None}})
        devices = [
            {"uuid": _uuid(name, index), "index": index, "model": "V100", "memoryBytes": _MEMORY}
            for index in range(gpus)
        ]
        spec = {"count": gpus, "devices": devices}
        await client.create(GPUNODES, {"metadata": {"name": name}, "spec": spec})
        await client.create(RESOURCE_SLICES, slice_body(name, made["metadata"]["uid"]))

    await in_flight(range(nodes), one)


def _uuid(node: str, index: int) -> str:
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{index}.{node}')}"


class Kubelets:
    """All nodes' kubelets and node agents.

    Args:
        client: as whom they write.
        gpus: of each node.
        created: called with each new pod of a user.
        ran: called with each pod of a user that has been made to run.
    """

    def __init__(
        self,
        client: Client,
        gpus: int,
        created: Callable[[core_v1.Pod], None],
        ran: Callable[[core_v1.Pod], None],
    ) -> None:
        self._client = client
        self._gpus = gpus
        self._created = created
        self._ran = ran
        self._reflector = Reflector(client, core_v1.PODS)
        self._queue: asyncio.Queue[core_v1.Pod] = asyncio.Queue()
        self._given: dict[str, set[int]] = defaultdict(set)
        self._reflector.subscribe(self._changed)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """While they work."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._work()) for _ in range(IN_FLIGHT)]
            tasks.append(group.create_task(self._reflector.run()))
            await self._reflector.wait_for_sync()
            yield
            for task in tasks:
                task.cancel()

    def _changed(self, change: Change[core_v1.Pod]) -> None:
        pod = change.object
        if change.type == DELETED:
            return
        if change.old is None and not pod.placeholder_of:
            self._created(pod)
        bound_before = change.old is not None and change.old.spec.node_name
        if pod.spec.node_name and not bound_before:
            self._queue.put_nowait(pod)

    async def _work(self) -> None:
        while True:
            pod = await self._queue.get()
            with suppress(NotFoundError):
                await self._start(pod)

    async def _start(self, pod: core_v1.Pod) -> None:
        containers = [
            {"name": each.name, "ready": True, "state": {"running": {"startedAt": _STARTED}}}
            | {"image": "any", "imageID": "any", "restartCount": 0}
            for each in pod.spec.containers
        ]
        known = {"podIP": "10.0.0.7", "startTime": _STARTED, "containerStatuses": containers}
        status = {"phase": "Running", "conditions": _READY} | known
        metadata = pod.metadata
        await self._client.merge_patch(
            PODS, metadata.name, {"status": status}, metadata.namespace, subresource="status"
        )
        if pod.placeholder_of:
            await self._find(pod)
        else:
            self._ran(pod)

    async def _find(self, placeholder: core_v1.Pod) -> None:
        """The node agent sees which GPU the placeholder was given."""
        node = placeholder.spec.node_name
        free = next(index for index in range(self._gpus) if index not in self._given[node])
        self._given[node].add(free)
        found = {"uuid": _uuid(node, free), "model": "V100", "memoryBytes": _MEMORY}
        found |= {"placeholderUid": placeholder.metadata.uid}
        await self._client.merge_patch(VGPUS, placeholder.placeholder_of, {"spec": found})
