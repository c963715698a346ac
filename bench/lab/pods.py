"""Starts and ends pods and SharePods, and notes when they run."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from bench.lab.steps import CREATED, Steps
from kubeshare.api.types import core_v1
from kubeshare.api.types.constants import (
    ANNOTATION_NUDGED,
    NVIDIA_DRA_DRIVER,
    WHOLE_GPU_RESOURCE,
)
from kubeshare.api.types.v1 import SHAREPODS, VGPU, VGPUS
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.client.client import Client
from kubeshare.kube.resources import PODS, Raw, Resource

NAMESPACE = "default"
DEADLINE_SECONDS = 300.0

_CONTAINER = {
    "name": "main",
    "image": "kubeshare:dev",
    "imagePullPolicy": "IfNotPresent",
    "command": ["sh", "-c", "trap 'exit 0' TERM; sleep infinity & wait"],
}
_SPEC = {"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False}
"""No volume: the kubelet checks only every 300 ms whether a pod's volumes are mounted."""


class Bench:
    """A namespace in which pods are started and ended.

    Args:
        client: of the API server.

    Attributes:
        pods: all pods.
        vgpus: all vGPUs.
        sharepods: all SharePods.
        steps: when each reached which step.
        repeated: of each pod whose start was repeated by the device manager, when it first was.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._names = count()
        self._news = asyncio.Event()
        self._created: dict[str, float] = {}
        self._ran: dict[str, float] = {}
        self.pods = Reflector(client, core_v1.PODS)
        self.vgpus: Reflector[VGPU] = Reflector(client, VGPUS.into(VGPU))
        self.sharepods: Reflector[Raw] = Reflector(client, SHAREPODS)
        self.steps = Steps()
        self.repeated: dict[str, float] = {}
        self.sharepods.subscribe(lambda change: self._note_sharepod(change.object))
        self.pods.subscribe(lambda change: self._note(change.object))
        self.vgpus.subscribe(lambda change: self._note_vgpu(change.object))

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch pods, vGPUs and SharePods within the block."""
        async with asyncio.TaskGroup() as group:
            watched: tuple[Reflector[Any], ...] = (self.pods, self.vgpus, self.sharepods)
            tasks = [group.create_task(each.run()) for each in watched]
            for each in watched:
                await each.wait_for_sync()
            yield
            for task in tasks:
                task.cancel()

    def _note_sharepod(self, raw: Raw) -> None:
        self.steps.of_sharepod(raw)
        self._news.set()

    def _note_vgpu(self, vgpu: VGPU) -> None:
        self.steps.of_vgpu(vgpu)
        self._news.set()

    def _note(self, pod: core_v1.Pod) -> None:
        self.steps.of_pod(pod)
        if ANNOTATION_NUDGED in pod.metadata.annotations:
            self.repeated.setdefault(pod.metadata.name, _now())
        if pod.status.phase == "Running" and pod.metadata.name not in self._ran:
            self._ran[pod.metadata.name] = _now()
        self._news.set()

    async def until(self, condition: Any, what: str) -> None:
        """Wait until something holds, looked at after each change of a pod or vGPU."""
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise TimeoutError(f"waited {DEADLINE_SECONDS:g} s for {what}") from None

    async def native(self, number: int = 1, *, token: bool = False) -> list[float]:
        """Seconds from creation to Running of so many pods at once that have a whole GPU each.

        Args:
            number: how many.
            token: whether they have the volume that every pod has which does not refuse it.
        """
        needs = {"limits": {WHOLE_GPU_RESOURCE: "1"}}
        spec = _spec(token=token) | {"containers": [_CONTAINER | {"resources": needs}]}
        return await self._start_and_end(PODS, spec, number)

    async def claiming(self) -> list[float]:
        """The same of a pod with a claim of NVIDIA's DRA driver for a whole GPU."""
        needs = {"limits": {f"deviceclass.resource.kubernetes.io/{NVIDIA_DRA_DRIVER}": "1"}}
        spec = _spec(token=False) | {"containers": [_CONTAINER | {"resources": needs}]}
        return await self._start_and_end(PODS, spec, 1)

    async def sharing(self, number: int = 1, *, token: bool = False, **gpu: Any) -> list[float]:
        """The same of SharePods that ask for a quarter of a GPU, or for what ``gpu`` says."""
        asked = {"request": "0.25", "memory": "1Gi"} | gpu
        spec = _spec(token=token) | {"containers": [_CONTAINER], "gpu": asked}
        return await self._start_and_end(SHAREPODS, spec, number)

    async def _start_and_end(self, kind: Resource[Any], spec: Any, number: int) -> list[float]:
        names = list(self._new_names(kind, number))
        created = {name: _now() for name in names}
        self._created |= created
        await asyncio.gather(*(self.create(kind, name, spec) for name in names))
        await self.until(lambda: all(name in self._ran for name in names), f"{names} to run")
        took = [self._ran[name] - created[name] for name in names]
        for name in names:
            await self._client.delete(kind, name, NAMESPACE)
        await self.until(lambda: not self._left(names), f"{names} to go")
        return took

    async def freed(self) -> float:
        """Seconds from the release of a share until the SharePod that waited for it runs."""
        gpu = {"request": "0.7", "memory": "1Gi", "affinity": "one"}
        spec = _SPEC | {"containers": [_CONTAINER], "gpu": gpu}
        first, second = self._new_names(SHAREPODS, 2)
        await self.create(SHAREPODS, first, spec)
        await self.until(lambda: first in self._ran, f"{first} to run")
        await self.create(SHAREPODS, second, spec)
        await self.until(
            lambda: self._is_unschedulable(second), f"{second} to be reported unschedulable"
        )
        await self._client.delete(SHAREPODS, first, NAMESPACE)
        await self.until(lambda: first not in self.holders(), f"the share of {first} to be free")
        freed = _now()
        await self.until(lambda: second in self._ran, f"{second} to run")
        await self._client.delete(SHAREPODS, second, NAMESPACE)
        await self.until(lambda: not self._left([first, second]), f"{second} to go")
        return self._ran[second] - freed

    def repeated_after(self) -> list[float]:
        """Of each start that was repeated, the seconds from creation to the first repetition."""
        return [at - self._created[name] for name, at in self.repeated.items()]

    def holders(self) -> set[str]:
        """The names of all that hold a share of a GPU."""
        return {
            holder.name
            for vgpu in self.vgpus.store.snapshot().values()
            for holder in vgpu.status.holders
        }

    def idle(self) -> int:
        """How many vGPUs are ready and idle."""
        found = self.vgpus.store.snapshot().values()
        return sum(vgpu.status.phase == "Idle" and bool(vgpu.spec.uuid) for vgpu in found)

    def _left(self, names: list[str]) -> bool:
        pods = (self.pods.store.get(name, NAMESPACE) for name in names)
        return any(pods) or bool(self.holders() & set(names))

    def _is_unschedulable(self, name: str) -> bool:
        sharepod = self.sharepods.store.get(name, NAMESPACE) or {}
        conditions = sharepod.get("status", {}).get("conditions", [])
        return any(each["type"] == "Scheduled" and each["status"] == "False" for each in conditions)

    def _new_names(self, kind: Resource[Any], number: int) -> Iterator[str]:
        for _ in range(number):
            yield f"{kind.plural}-{next(self._names)}"

    async def create(self, kind: Resource[Any], name: str, spec: Any) -> None:
        """Create one."""
        self.steps.note(name, CREATED)
        await self._client.create(
            kind, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
        )


def _spec(*, token: bool) -> dict[str, Any]:
    return _SPEC | {"automountServiceAccountToken": token}


def _now() -> float:
    return asyncio.get_running_loop().time()
