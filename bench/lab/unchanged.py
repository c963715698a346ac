"""Compares each version of pods and vGPUs with what they were at first."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bench.report import Met, at_most, report
from kubeshare.api.types.v1 import VGPUS
from kubeshare.core.units import MICROS
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.client.client import Client
from kubeshare.kube.resources import PODS, Raw

_SPEC = ("nodeName", "uuid", "placeholderUid", "pool")
"""What of a vGPU says which physical GPU it is, and who keeps it."""


class Unchanged:
    """Watches the pods of a namespace, and all vGPUs, and notes what was lost.

    Later versions may add fields to a holder; those that it had keep their values.

    Args:
        client: of the API server.
        namespace: of the pods that must run on.
        pods: how many of them run now.
    """

    def __init__(self, client: Client, namespace: str, *, pods: int) -> None:
        self._expected = pods
        self._pods: Reflector[Raw] = Reflector(client, PODS, namespace=namespace)
        self._vgpus: Reflector[Raw] = Reflector(client, VGPUS)
        self._first_pods: dict[str, Raw] = {}
        self._first_vgpus: dict[str, Raw] = {}
        self._versions = 0
        self._ended: list[str] = []
        self._lost: list[str] = []
        self._overcommitted: list[str] = []

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Compare within the block; what there is at its start is how it must stay."""
        watched = (self._pods, self._vgpus)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.run()) for each in watched]
            for each in watched:
                await each.wait_for_sync()
            self._remember()
            self._pods.subscribe(self._pod_changed)
            self._vgpus.subscribe(self._vgpu_changed)
            yield
            for task in tasks:
                task.cancel()

    def report(self) -> list[Met]:
        """Print what was lost: a number each."""
        # A change of a CRD ends its watches; a list again may have left versions out.
        relists = self._pods.relists + self._vgpus.relists
        versions = {
            "pods": self._expected,
            "versions_compared": self._versions,
            "lists_again": relists,
        }
        return [
            report("pods that ended or restarted", at_most(0), len(self._ended), each=self._ended),
            report("changes that lost a holder", at_most(0), len(self._lost), each=self._lost),
            report(
                "versions of a vGPU with more than a whole GPU",
                at_most(0),
                len(self._overcommitted),
                each=self._overcommitted,
                **versions,
            ),
        ]

    def _remember(self) -> None:
        for pod in self._pods.store.snapshot().values():
            if pod["status"].get("phase") == "Running":
                self._first_pods[pod["metadata"]["uid"]] = pod
        for vgpu in self._vgpus.store.snapshot().values():
            self._first_vgpus[vgpu["metadata"]["name"]] = vgpu
        holders = [one for vgpu in self._first_vgpus.values() for one in _holders(vgpu)]
        found = len(self._first_pods), len(holders)
        assert found == (self._expected, self._expected), f"{found} pods and holders"

    def _pod_changed(self, change: Change[Raw]) -> None:
        pod = change.object
        if pod["metadata"]["uid"] not in self._first_pods:
            return
        self._versions += 1
        restarts = sum(one["restartCount"] for one in pod["status"].get("containerStatuses", []))
        going = change.type == DELETED or "deletionTimestamp" in pod["metadata"]
        if going or restarts or pod["status"].get("phase") != "Running":
            self._ended.append(pod["metadata"]["name"])

    def _vgpu_changed(self, change: Change[Raw]) -> None:
        vgpu = change.object
        name = vgpu["metadata"]["name"]
        self._versions += 1
        if sum(one["requestMicros"] for one in _holders(vgpu)) > MICROS:
            self._overcommitted.append(name)
        first = self._first_vgpus.get(name)
        if first is None:
            return
        if change.type == DELETED or _differs(first["spec"], vgpu["spec"], _SPEC):
            self._lost.append(f"{name}: {change.type} {vgpu['spec']}")
        now = {one["podUid"]: one for one in _holders(vgpu)}
        for one in _holders(first):
            if _differs(one, now.get(one["podUid"], {}), one):
                self._lost.append(f"{name}: {one['name']}")


def _holders(vgpu: Raw) -> list[Raw]:
    found: list[Raw] = vgpu.get("status", {}).get("holders", [])
    return found


def _differs(before: Raw, now: Raw, fields: Any) -> bool:
    return any(before.get(field) != now.get(field) for field in fields)
