"""The same cases on a real API server and kube-scheduler, and the time until a pod is bound.

The nodes exist as objects only, one for each tree; a pod selects that of its case. The bench
writes what a device manager and a node agent would: who owns the GPUs, and what is in use at the
start of a case. KubeShare's scheduler and extender and kube-scheduler are the real programs.
Experiment 5 of the paper compares the time with stock Kubernetes, which gives whole GPUs only and
knows no links.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from bench.cluster.control_plane import EXTENDER, SCHEDULER, Cluster, cluster
from bench.gaia.cases import BLOCKS, CASES, SWEEP, Case
from bench.gaia.placement import SEED
from bench.report import median, percentile
from kubeshare.api.owned_nodes import static_name
from kubeshare.api.types import core_v1
from kubeshare.api.types.constants import NAMESPACE, WHOLE_GPU_RESOURCE
from kubeshare.api.types.v1 import GPUNODES, VGPUS
from kubeshare.core.topology import read_notation
from kubeshare.core.topology.links import name_of
from kubeshare.core.units import GI, MICROS
from kubeshare.dialects.vcuda import BLOCK, CORE, CORES, MEMORY
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.resources import CONFIG_MAPS, NODES, PODS, RESOURCE_SLICES
from kubeshare.node.dra.resource_slice import slice_body

HOSTNAME: Final = "kubernetes.io/hostname"
MEMORY_BYTES: Final = 8 * GI
SECONDS: Final = 30.0
DELIVERY_SECONDS: Final = 0.2
"""Until all programs have seen what the bench has written."""
CONFIGURATION: Final = Path(__file__).parents[2] / "examples" / "vcuda" / "kube-scheduler.yaml"

Times = dict[str, list[float]]
"""Name of a case → milliseconds from the creation of a pod until it is bound."""


def run(runs: int) -> bool:
    """Print all; whether a placement contradicts the paper's."""
    with cluster(extender=True) as there:
        return asyncio.run(_measure(there, runs))


async def _measure(there: Cluster, runs: int) -> bool:
    cases = (*CASES, *SWEEP)
    async with Client.connect(there.server.kubeconfig) as client:
        player = _Player(client)
        for tree in dict.fromkeys(case.tree for case in cases):
            await player.make_node(tree)
        await asyncio.to_thread(there.start, SCHEDULER, EXTENDER)
        async with player.watching():
            stock = await player.times_of_stock(cases, runs)
            contradicts, ours = await player.play(cases, runs, "KubeShare's scheduler")
            extender = yaml.safe_load(CONFIGURATION.read_text())["extenders"][0]
            address = f"127.0.0.1:{there.extender_port}"
            extender["urlPrefix"] = extender["urlPrefix"].replace("NODE_ADDRESS:32766", address)
            await asyncio.to_thread(there.schedule_with, extender)
            await player.hand_over()
            also, through = await player.play(cases, runs, "the extender's predicates")
    _print_times(cases, stock, ours, through)
    return contradicts or also


class _Player:
    """Plays cases in the cluster."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._reflector = Reflector(client, core_v1.PODS, namespace="default")
        self._bound: dict[str, asyncio.Future[float]] = {}
        self._reflector.subscribe(lambda change: self._changed(change.object))
        self._number = 0
        self._draw = random.Random(SEED)

    def watching(self) -> "_Watching":
        return _Watching(self._reflector)

    def _changed(self, pod: core_v1.Pod) -> None:
        waiter = self._bound.get(pod.metadata.name)
        if pod.spec.node_name and waiter is not None and not waiter.done():
            waiter.set_result(time.monotonic())

    async def make_node(self, tree: str) -> None:
        """A node with the GPUs of a tree, which KubeShare owns."""
        links = read_notation(tree, "the tree")
        node, count = _node(tree), len(links)
        labels = {HOSTNAME: node, "kubeshare.nthu/gpus": "owned", "kubeshare.nthu/family": "vcuda"}
        client = self._client
        made = await client.create(NODES, {"metadata": {"name": node, "labels": labels}})
        room = {"cpu": "64", "memory": "512Gi", "pods": "250", WHOLE_GPU_RESOURCE: str(count)}
        room |= {CORE: str(CORES * count), MEMORY: str(count * MEMORY_BYTES // BLOCK)}
        ready = [{"type": "Ready", "status": "True"}]
        status = {"allocatable": room, "capacity": room, "conditions": ready}
        await client.merge_patch(NODES, node, {"status": status}, subresource="status")
        await client.merge_patch(NODES, node, {"spec": {"taints": None}})
        devices = [
            {"uuid": _uuid(node, index), "index": index, "minor": index, "model": "Tesla P4"}
            | {"memoryBytes": MEMORY_BYTES}
            for index in range(count)
        ]
        pairs = [
            {"a": a, "b": b, "link": name_of(links[a][b])}
            for a in range(count)
            for b in range(a + 1, count)
        ]
        spec = {"count": count, "devices": devices, "links": pairs}
        spec |= {"supportsOwned": True, "supportsShares": True}
        await client.create(GPUNODES, {"metadata": {"name": node}, "spec": spec})
        since = "2026-01-01T00:00:00Z"
        owned = {"type": "Owned", "status": "True", "reason": "Owned", "message": "the bench's"}
        await client.merge_patch(
            GPUNODES,
            node,
            {"status": {"mode": "owned", "conditions": [owned | {"lastTransitionTime": since}]}},
            subresource="status",
        )
        await client.create(RESOURCE_SLICES, slice_body(node, made["metadata"]["uid"]))
        for index in range(count):
            name = static_name(_uuid(node, index))
            spec = {"nodeName": node, "gpuid": name, "pool": "static", "model": "Tesla P4"}
            spec |= {"uuid": _uuid(node, index), "memoryBytes": MEMORY_BYTES}
            await client.create(VGPUS, {"metadata": {"name": name}, "spec": spec})
        await self._use(tree, {})

    async def hand_over(self) -> None:
        """Let the extender place the pods."""
        text = yaml.safe_dump({"vcuda": {"door": "extender"}})
        await self._client.merge_patch(
            CONFIG_MAPS, "kubeshare", {"data": {"config.yaml": text}}, NAMESPACE
        )
        await asyncio.sleep(5 * DELIVERY_SECONDS)

    async def play(self, cases: Sequence[Case], runs: int, placed_by: str) -> tuple[bool, Times]:
        """Print the frequencies; whether they contradict the paper's, and the times."""
        print(f"\nThe same on a real API server, placed by {placed_by}, {runs} runs each")
        contradicts, times = False, {}
        for case in cases:
            found, taken = await self._repeat(case, runs)
            times[case.name] = taken
            here = "; ".join(
                f"{cores} cores: {', '.join(f'gpu {each}: {n}' for each, n in counts.items())}"
                for cores, counts in zip(case.requests, found, strict=True)
            )
            print(f"  {case.name}: {here}")
            pairs = zip(found, case.paper, strict=bool(case.paper))
            contradicts |= any(not counts.keys() <= paper.keys() for counts, paper in pairs)
        return contradicts, times

    async def _repeat(self, case: Case, runs: int) -> tuple[list[Counter[str]], list[float]]:
        found: list[Counter[str]] = [Counter() for _ in case.requests]
        taken: list[float] = []
        for _ in range(runs):
            await self._use(case.tree, case.before)
            names = []
            arrivals = list(zip(found, case.requests, strict=True))
            if case.shuffled:
                self._draw.shuffle(arrivals)
            for counts, cores in arrivals:
                limits = {CORE: str(cores)} | ({MEMORY: str(BLOCKS)} if cores < CORES else {})
                name, seconds = await self._schedule(case.tree, limits)
                names.append(name)
                taken.append(seconds * 1000)
                counts[await self._gpus_of(name)] += 1
            await self._remove(names)
        await self._use(case.tree, {})
        return found, taken

    async def times_of_stock(self, cases: Sequence[Case], runs: int) -> Times:
        """How long pods take that ask for whole GPUs in Kubernetes' own way."""
        times: Times = {}
        for case in cases:
            if any(cores % CORES for cores in (*case.requests, *case.before.values())):
                continue
            taken = times[case.name] = []
            for _ in range(runs):
                in_use = [
                    (await self._schedule(case.tree, _whole(cores)))[0]
                    for cores in case.before.values()
                ]
                for cores in case.requests:
                    name, seconds = await self._schedule(case.tree, _whole(cores))
                    in_use.append(name)
                    taken.append(seconds * 1000)
                await self._remove(in_use)
        return times

    async def _schedule(self, tree: str, limits: Mapping[str, str]) -> tuple[str, float]:
        """Create a pod; its name, and the seconds until it is bound."""
        self._number += 1
        name = f"pod-{self._number}"
        waiter = self._bound[name] = asyncio.get_running_loop().create_future()
        main = {"name": "main", "image": "any", "resources": {"limits": limits}}
        started = time.monotonic()
        metadata = {"name": name, "namespace": "default"}
        spec = {"containers": [main], "nodeSelector": {HOSTNAME: _node(tree)}}
        await self._client.create(PODS, {"metadata": metadata, "spec": spec})
        async with asyncio.timeout(SECONDS):
            bound = await waiter
        del self._bound[name]
        return name, bound - started

    async def _gpus_of(self, name: str) -> str:
        """The GPUs on which a pod has holders."""
        listed = (await self._client.list(VGPUS)).items
        found = [
            _index(vgpu)
            for vgpu in listed
            if any(each["name"] == name for each in vgpu["status"].get("holders", ()))
        ]
        return ",".join(map(str, sorted(found)))

    async def _remove(self, names: Sequence[str]) -> None:
        for name in names:
            try:
                await self._client.delete(PODS, name, "default", grace=0)
            except NotFoundError:
                continue
        await asyncio.sleep(DELIVERY_SECONDS)

    async def _use(self, tree: str, before: Mapping[str, int]) -> None:
        """Let these GPUs of a node be in use, by somebody who is no pod of the case, no others."""
        for index in range(len(read_notation(tree, "the tree"))):
            cores, uuid = before.get(str(index), 0), _uuid(_node(tree), index)
            status = {"phase": "Active" if cores else "Idle", "holders": _holders(uuid, cores)}
            name = static_name(uuid)
            await self._client.merge_patch(VGPUS, name, {"status": status}, subresource="status")
        await asyncio.sleep(DELIVERY_SECONDS)


class _Watching:
    """While a reflector runs."""

    def __init__(self, reflector: Reflector[core_v1.Pod]) -> None:
        self._reflector = reflector

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._reflector.run())
        await self._reflector.wait_for_sync()

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()


def _holders(uuid: str, cores: int) -> list[dict[str, Any]]:
    if not cores:
        return []
    micros = cores * MICROS // CORES
    memory = MEMORY_BYTES if cores == CORES else BLOCKS * BLOCK
    uid = f"in-use-{uuid[-4:]}"
    amounts = {"requestMicros": micros, "limitMicros": micros, "memoryBytes": memory}
    return [{"demand": uid, "podUid": uid, "namespace": "default", "name": uid, **amounts}]


def _whole(cores: int) -> dict[str, str]:
    """What a pod asks for in Kubernetes' own way."""
    return {WHOLE_GPU_RESOURCE: str(cores // CORES)}


def _node(tree: str) -> str:
    """The name of the node with the GPUs of a tree, by their number."""
    return f"gaia-{len(read_notation(tree, 'the tree')):02}"


def _index(vgpu: Mapping[str, Any]) -> int:
    return int(vgpu["spec"]["uuid"][-2:])


def _uuid(node: str, index: int) -> str:
    return f"GPU-00000000-0000-0000-0000-00000000{node[-2:]}{index:02}"


def _print_times(cases: Sequence[Case], stock: Times, ours: Times, through: Times) -> None:
    print(
        "\nExperiment 5: ms from the creation of a pod until it is bound, median (90th percentile)"
        "\nand how many times that of kube-scheduler alone"
    )
    print(f"  {'':52s} kube-scheduler   KubeShare's             kube-scheduler")
    print(f"  {'':52s} alone            scheduler               and extender")
    for case in cases:
        alone = stock.get(case.name, [])
        each = "".join(f"{_shown(times[case.name], alone):24s}" for times in (ours, through))
        print(f"  {case.name:52s} {_shown(alone):17s}{each}".rstrip())


def _shown(taken: Sequence[float], baseline: Sequence[float] = ()) -> str:
    if not taken:
        return "-"
    ratio = f" x{median(taken) / median(baseline):.1f}" if baseline else ""
    return f"{median(taken):.0f} ({percentile(taken, 90):.0f}){ratio}"
