"""The same calls to two extenders, each with a cluster of its own, and what they answer."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field

from bench.extender.objects import (
    SPACE,
    Raw,
    Size,
    container,
    filter_arguments,
    holder,
    seed_owned_node,
    seed_placed_pod,
)
from bench.extender.programs import CallError, Extender
from kubeshare.api.configuration import KEY, NAME
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.v1 import VGPUS
from kubeshare.core.units import MI
from kubeshare.kube.resources import CONFIG_MAPS, PODS
from kubeshare.simulator.control import FakeApiServer

CARD: Final = 16276
"""MiB of each GPU."""
WAITS: Final = "waits"
"""The place of a pod that is not bound."""

_SECONDS = 60.0


class Cluster:
    """The nodes and pods that one extender decides about.

    Attributes:
        server: has them.
    """

    def __init__(self) -> None:
        self.server = FakeApiServer()
        config = {"name": NAME, "namespace": NAMESPACE}
        data = {KEY: "{gpushare: {memoryUnit: MiB, door: extender}}"}
        self.server.seed(CONFIG_MAPS, {"metadata": config, "data": data})

    def add_node(self, name: str, used: Sequence[int]) -> None:
        """Add a node, with a pod for what is in use of each GPU."""
        size = Size(len(used), CARD, MI)
        left = iter(enumerate(used))

        def holders(_: str) -> list[Raw]:
            index, units = next(left)
            return [holder(_first(name, index), units, size)] if units else []

        seed_owned_node(self.server, name, holders, size=size)
        for index, units in enumerate(used):
            if units:
                seed_placed_pod(self.server, _first(name, index), (name, index), units, size)

    def create(self, name: str, units: Sequence[int]) -> None:
        """Add a pod that is not bound."""
        self.server.seed(PODS, _pod(name, units) | {"status": {"phase": "Pending"}})

    def place(self, name: str) -> str:
        """The node and the GPU of a pod."""
        pod = self.server.stored(PODS, name, SPACE)
        assert pod is not None
        annotations = pod["metadata"].get("annotations") or {}
        index = annotations.get("ALIYUN_COM_GPU_MEM_IDX")
        return f"{pod['spec'].get('nodeName')}, GPU {index}"

    def remove(self, name: str) -> None:
        """Remove a pod, and what it holds, as node and device manager do."""
        self.server.remove(PODS, name, SPACE)
        for vgpu in self.server.all(VGPUS):
            held = vgpu["status"].get("holders") or []
            kept = [each for each in held if each["demand"] != name]
            if len(kept) < len(held):
                self.server.change(VGPUS, vgpu["metadata"]["name"], "", _holding(kept))


def _holding(holders: list[Raw]) -> Callable[[Raw], object]:
    def change(obj: Raw) -> None:
        obj["status"]["holders"] = holders

    return change


def _used(node: Mapping[str, Any] | None) -> list[int]:
    """The units in use of each GPU of a node; empty if it is unknown."""
    return [gpu["usedGPU"] for gpu in node["devs"]] if node else []


def _pod(name: str, units: Sequence[int]) -> Raw:
    containers = [container(each, f"c{number}") for number, each in enumerate(units)]
    metadata = {"name": name, "namespace": SPACE, "uid": name}
    return {"metadata": metadata, "spec": {"containers": containers}}


def _first(node: str, index: int) -> str:
    return f"{node}-{index}"


class Comparison(Struct):
    """Both sides, and how their answers differ so far.

    Attributes:
        sides: ours and Alibaba's.
        differences: a line each.
        filters: how many were compared.
        binds: how many succeeded at both.
    """

    sides: tuple[tuple[Cluster, Extender], tuple[Cluster, Extender]]
    differences: list[str] = field(default_factory=list)
    filters: int = 0
    binds: int = 0

    async def add_nodes(self, nodes: Mapping[str, Sequence[int]]) -> None:
        """Add nodes, and wait until both know them."""
        for cluster, _ in self.sides:
            for name, used in nodes.items():
                cluster.add_node(name, used)
        await self.settle(nodes)

    async def settle(self, expected: Mapping[str, Sequence[int]]) -> None:
        """Wait until both know these nodes, with so much in use of their GPUs, and compare.

        Raises:
            CallError: one does not within a minute.
        """
        views = []
        known = json.dumps(filter_arguments(1) | {"NodeNames": [*expected]}).encode()
        for _, extender in self.sides:
            deadline = time.monotonic() + _SECONDS
            while True:
                await asyncio.to_thread(extender.call, "filter", known)  # Alibaba's reads them
                found = await asyncio.to_thread(extender.inspect)
                if all(_used(found.get(name)) == [*used] for name, used in expected.items()):
                    break
                if time.monotonic() > deadline:
                    raise CallError(f"inspect shows {found}, not {expected}")
                await asyncio.sleep(0.01)
            views.append({name: found[name] for name in expected})
        if views[0] != views[1]:
            self.differences.append(f"inspect: {views[0]}, {views[1]}")

    async def schedule(
        self,
        name: str,
        units: Sequence[int],
        nodes: Sequence[str],
        choose: Callable[[list[str]], str],
    ) -> tuple[str, str]:
        """Filter and bind a pod; returns where it is at both.

        Args:
            name: of the pod, which is created.
            units: of its containers.
            nodes: the candidates.
            choose: given the nodes that fit, returns the node to bind to, or ``""``.
        """
        for cluster, _ in self.sides:
            cluster.create(name, units)
        arguments = {"Pod": _pod(name, units), "NodeNames": [*nodes]}
        ours, theirs = await self._both("filter", arguments)
        self.filters += 1
        for key in ("NodeNames", "FailedNodes"):
            if (ours[key] or None) != (theirs[key] or None):
                self.differences.append(f"{name} {units}: {key}: {ours[key]}, {theirs[key]}")
        node = choose(ours["NodeNames"])
        if not node:
            return WAITS, WAITS
        named = {"PodName": name, "PodNamespace": SPACE, "PodUID": name, "Node": node}
        bound = [not answer.get("failed") for answer in await self._both("bind", named)]
        places = [
            cluster.place(name) if ok else WAITS
            for ok, (cluster, _) in zip(bound, self.sides, strict=True)
        ]
        if places[0] != places[1]:
            self.differences.append(f"{name} {units} on {node}: {places[0]}; {places[1]}")
        self.binds += all(bound)
        return places[0], places[1]

    async def _both(self, verb: str, arguments: Raw) -> list[Any]:
        body = json.dumps(arguments).encode()
        answers = []
        for _, extender in self.sides:
            try:
                answers.append(await asyncio.to_thread(extender.call, verb, body))
            except CallError as error:
                answers.append({"failed": str(error), "NodeNames": [], "FailedNodes": {}})
        return answers
