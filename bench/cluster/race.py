"""Two replicas of the extender and KubeShare-Sched bind more than fits, on a real API server.

The pods ask for gpushare's memory, are all bound at one time, each through both replicas, and are
tried again as kube-scheduler does, until every GPU is full; SharePods of the same size take part.
Each state of each vGPU that the API server has shown is checked.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from bench.cluster.race_cluster import (
    GPUS,
    NODE,
    PAUSE,
    SECONDS,
    SPACE,
    add_node,
    configure,
    install,
    programs,
    remove,
    vgpus,
)
from bench.report import NO_GOAL, at_most, print_machine, report, summarize
from kubeshare.api.types.constants import ANNOTATION_GPUIDS
from kubeshare.api.types.v1 import SHAREPODS, VGPU, VGPUS
from kubeshare.core.units import MICROS
from kubeshare.extender.http.messages import Head
from kubeshare.extender.service import PREFIX, ExtenderService
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import Change
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import UnreachableError
from kubeshare.kube.resources import PODS, Raw
from kubeshare.lab.control_plane.api_server import ApiServer, local_api_server
from kubeshare.lab.progress import Progress

ON_A_GPU = 5
"""Pods of a fifth of its compute that fit a GPU; they take 15 of its 16 GiB."""
SEED = 7

_AT_ONCE = 20
"""Pods that are created at one time; they are all bound at one time."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a race.

    Attributes:
        bound: pods that are bound.
        shared: SharePods that have a GPU.
        places: pods and SharePods for which there is room.
        binds: calls of bind, by status.
        states: states of vGPUs that the API server has shown.
        wrong: every state with too much on a GPU, and every share without a pod, or pod without.
        seconds: from the first bind to the last.
    """

    bound: int
    shared: int
    places: int
    binds: dict[int, int]
    states: int
    wrong: tuple[str, ...]
    seconds: float


def race(server: ApiServer, pods: int) -> Result:
    """Bind so many pods to half as many places, beside a tenth as many SharePods.

    Args:
        server: what it gets besides KubeShare's manifests is removed again.
        pods: how many; a multiple of 20.
    """
    install(server)
    before = configure(server, "{owned: {mixed: true}, gpushare: {door: extender}}")
    try:
        return asyncio.run(_Race(server, pods).run())
    finally:
        asyncio.run(remove(server))
        configure(server, before)


class _Race:
    def __init__(self, server: ApiServer, pods: int) -> None:
        self._server = server
        self._pods = [f"p{number}" for number in range(pods)]
        self._sharepods = [f"s{number}" for number in range(pods // 10)]
        self._nodes = [f"{NODE}{number}" for number in range(pods // (2 * GPUS * ON_A_GPU))]
        self._places = len(self._nodes) * GPUS * ON_A_GPU
        self._binds: Counter[int] = Counter()
        self._states = 0
        self._wrong: list[str] = []
        self._random = random.Random(SEED)

    async def run(self) -> Result:
        async with Client.connect(self._server.kubeconfig) as client:
            self._client = client
            await asyncio.gather(*(add_node(client, number) for number in range(len(self._nodes))))
            async with self._watching(), programs(self._server) as replicas:
                await self._until(self._are_there, "the vGPUs")
                for first in range(0, len(self._pods), _AT_ONCE):
                    await asyncio.gather(*map(self._create, self._pods[first : first + _AT_ONCE]))
                await self._until(self._are_ungated, "the pods without a gate")
                began = time.monotonic()
                sharing = asyncio.gather(*map(self._share, self._sharepods))
                async with asyncio.timeout(SECONDS):
                    await asyncio.gather(*(self._schedule(name, replicas) for name in self._pods))
                await sharing
                seconds = time.monotonic() - began
                await self._until(self._is_full, "every GPU to be full")
                await self._until(self._fits_together, "each share to have its pod")
            return await self._result(seconds)

    async def _result(self, seconds: float) -> Result:
        pods = (await self._client.list(PODS, SPACE)).items
        bound = [each for each in pods if each["spec"].get("nodeName")]
        shared = [each for each in await self._holders() if each["name"] in self._sharepods]
        return Result(
            bound=len(bound),
            shared=len(shared),
            places=self._places,
            binds=dict(self._binds),
            states=self._states,
            wrong=(*self._wrong, *await self._leaks()),
            seconds=seconds,
        )

    @asynccontextmanager
    async def _watching(self) -> AsyncIterator[None]:
        """Check each state of each vGPU that the API server shows."""
        self._vgpus: Reflector[VGPU] = Reflector(self._client, VGPUS.into(VGPU))
        self._vgpus.subscribe(self._check)
        task = asyncio.create_task(self._vgpus.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _check(self, change: Change[VGPU]) -> None:
        self._states += 1
        vgpu = change.object
        memory = sum(holder.memory_bytes for holder in vgpu.status.holders)
        request = sum(holder.request_micros for holder in vgpu.status.holders)
        if memory > vgpu.spec.memory_bytes or request > MICROS:
            self._wrong.append(f"{vgpu.metadata.name}: {memory} bytes, {request} micros")

    # Pods.

    async def _create(self, name: str) -> None:
        resources = {"limits": {"aliyun.com/gpu-mem": "3"}}
        spec = {"containers": [{"name": "main", "image": "x", "resources": resources}]}
        await self._client.create(PODS, {"metadata": _meta(name), "spec": spec})

    async def _share(self, name: str) -> None:
        gpu = {"request": "0.2", "memory": "3Gi"}
        spec = {"gpu": gpu, "containers": [{"name": "main", "image": "x"}]}
        await self._client.create(SHAREPODS, {"metadata": _meta(name), "spec": spec})

    async def _schedule(self, name: str, replicas: list[ExtenderService]) -> None:
        """Acts as two kube-schedulers that do not know of each other, until all places are taken.

        Each filters with one replica and binds with the other, at the same time.
        """
        while True:
            await asyncio.sleep(PAUSE * self._random.random())
            try:
                pod = await self._client.get(PODS, name, SPACE)
            except UnreachableError:
                continue  # the machine is busy
            held = sum(len(vgpu.status.holders) for vgpu in self._vgpus.store.snapshot().values())
            if pod["spec"].get("nodeName") or held == self._places:
                return
            filtering = (replicas, replicas[::-1])
            await asyncio.gather(*(self._try(pod, *each) for each in filtering))

    async def _try(self, pod: Raw, filters: ExtenderService, binds: ExtenderService) -> None:
        _, answer = await _call(filters, "filter", {"Pod": pod, "NodeNames": self._nodes})
        if not answer["NodeNames"]:
            return
        metadata = pod["metadata"]
        named = {"PodName": metadata["name"], "PodNamespace": SPACE, "PodUID": metadata["uid"]}
        node = self._random.choice(answer["NodeNames"])
        status, _ = await _call(binds, "bind", named | {"Node": node})
        self._binds[status] += 1

    # What must be true in the end.

    async def _holders(self) -> list[Raw]:
        return [
            holder | {"vgpu": vgpu["metadata"]["name"]}
            for vgpu in await vgpus(self._client)
            for holder in vgpu.get("status", {}).get("holders", ())
        ]

    async def _are_there(self) -> bool:
        found = await vgpus(self._client)
        ready = [each for each in found if each.get("status", {}).get("phase") == "Idle"]
        return len(ready) == len(self._nodes) * GPUS

    async def _are_ungated(self) -> bool:
        found = (await self._client.list(PODS, SPACE)).items
        return not any(each["spec"].get("schedulingGates") for each in found)

    async def _is_full(self) -> bool:
        return len(await self._holders()) == self._places

    async def _fits_together(self) -> bool:
        return not await self._leaks()

    async def _leaks(self) -> list[str]:
        """Shares without a bound pod, and bound pods without exactly their share."""
        pods = (await self._client.list(PODS, SPACE)).items
        holders = await self._holders()
        wrong = []
        for pod in pods:
            if pod["metadata"]["name"] not in self._pods:
                continue
            uid, annotations = pod["metadata"]["uid"], pod["metadata"].get("annotations", {})
            held = [each for each in holders if each["demand"] == uid]
            named = [each for each in held if each.get("podUid") == uid]
            expected = 1 if pod["spec"].get("nodeName") else 0
            if len(held) != expected or len(named) != expected:
                wrong.append(f"{pod['metadata']['name']}: {len(held)} shares, not {expected}")
            if expected and [each["vgpu"] for each in held] != [annotations.get(ANNOTATION_GPUIDS)]:
                wrong.append(f"{pod['metadata']['name']}: another GPU than its annotation names")
        known = {pod["metadata"]["uid"] for pod in pods}
        known |= {each["metadata"]["uid"] for each in (await self._client.list(SHAREPODS)).items}
        wrong += [f"{each['name']}: gone" for each in holders if each["demand"] not in known]
        return wrong

    async def _until(self, check: Callable[[], Awaitable[bool]], what: str) -> None:
        try:
            async with asyncio.timeout(SECONDS):
                while not await check():  # noqa: ASYNC110 - the API server has the event
                    await asyncio.sleep(PAUSE)
        except TimeoutError:
            why = [*self._wrong, *await self._leaks()]
            raise AssertionError(f"waited {SECONDS:.0f} s for {what}: {why}") from None


async def _call(service: ExtenderService, verb: str, arguments: Raw) -> tuple[int, Any]:
    head = Head("POST", f"{PREFIX}/{verb}")
    answer = service.refuse(head) or await service.answer(head, json.dumps(arguments).encode())
    return answer.status, json.loads(answer.body)


def _meta(name: str) -> Raw:
    return {"name": name, "namespace": SPACE}


def main() -> int:
    """Run one race; exit code 1 if a GPU had too much or a share leaked."""
    parser = argparse.ArgumentParser(prog="bench.cluster.race", description=__doc__)
    parser.add_argument("pods", type=int, nargs="?", default=200)
    pods = parser.parse_args().pods
    print_machine()
    with local_api_server(Progress()) as server:
        found = race(server, pods)
    name = f"race: {pods} pods for {found.places} places, two extenders and Sched"
    counts = {"bound": found.bound, "shared": found.shared, "states": found.states}
    binds = {f"bind_{status}": times for status, times in sorted(found.binds.items())}
    for each in found.wrong:
        print(each, file=sys.stderr)
    wrong = report(f"{name}: over-commits and leaks", at_most(0), len(found.wrong), **counts)
    took = report(f"{name}: s", NO_GOAL, found.seconds, **binds)
    return summarize([wrong, took])


if __name__ == "__main__":
    sys.exit(main())
