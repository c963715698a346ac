"""The same cases on a real API server and kube-scheduler, and the time until a pod is bound.

The nodes exist as objects only; a pod selects one with the tree of its case. The frequencies are
played on many nodes at once, the times on one, a pod after another. The bench writes what a device
manager and a node agent would: who owns the GPUs, and what is in use at the start of a case.
KubeShare's scheduler and extender and kube-scheduler are the real programs.
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
from kubeshare.simulator.figures.gaia.cases import BLOCKS, CASES, SWEEP, Case
from kubeshare.simulator.figures.gaia.placement import SEED

HOSTNAME: Final = "kubernetes.io/hostname"
MEMORY_BYTES: Final = 8 * GI
SECONDS: Final = 30.0
NODES_AT_ONCE: Final = 25
PAPERS: Final = tuple(case for case in CASES if case.paper)
"""The cases with frequencies in the paper."""
TIMED: Final = 20
"""Runs of each case for the times: one more tells no more."""
DELIVERY_SECONDS: Final = 0.2
"""Until all programs have seen what the bench has written, one case at a time."""
SLOWER_AT_ONCE: Final = 5
"""How much longer that takes beside so many nodes."""
CONFIGURATION: Final = Path(__file__).parents[2] / "examples" / "vcuda" / "kube-scheduler.yaml"

Times = dict[str, list[float]]
"""Name of a case → milliseconds from the creation of a pod until it is bound."""


def run(runs: int) -> bool:
    """Print all; whether a placement contradicts the paper's."""
    with cluster(extender=True) as there:
        return asyncio.run(_measure(there, runs))


async def _measure(there: Cluster, runs: int) -> bool:
    cases, timed = (*CASES, *SWEEP), min(runs, TIMED)
    async with Client.connect(there.server.kubeconfig) as client:
        player = _Player(client)
        nodes = {_node(case.tree): case.tree for case in cases}
        nodes |= {each: case.tree for case in PAPERS for each in _nodes(case.tree)}
        for node, tree in nodes.items():
            await player.make_node(node, tree)
        await asyncio.to_thread(there.start, SCHEDULER, EXTENDER)
        async with player.watching():
            stock = await player.times_of_stock(cases, timed)
            contradicts = await player.play(PAPERS, runs, "KubeShare's scheduler")
            ours = await player.times(cases, timed)
            extender = yaml.safe_load(CONFIGURATION.read_text())["extenders"][0]
            address = f"127.0.0.1:{there.extender_port}"
            extender["urlPrefix"] = extender["urlPrefix"].replace("NODE_ADDRESS:32766", address)
            await asyncio.to_thread(there.schedule_with, extender)
            await player.hand_over()
            contradicts |= await player.play(PAPERS, runs, "the extender's predicates")
            through = await player.times(cases, timed)
    _print_times(cases, stock, ours, through)
    return contradicts


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

    async def make_node(self, node: str, tree: str) -> None:
        """A node with the GPUs of a tree, which KubeShare owns."""
        links = read_notation(tree, "the tree")
        count = len(links)
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
        await self._use(node, tree, {}, 0)

    async def hand_over(self) -> None:
        """Let the extender place the pods."""
        text = yaml.safe_dump({"vcuda": {"door": "extender"}})
        await self._client.merge_patch(
            CONFIG_MAPS, "kubeshare", {"data": {"config.yaml": text}}, NAMESPACE
        )
        await asyncio.sleep(5 * DELIVERY_SECONDS)

    async def play(self, cases: Sequence[Case], runs: int, placed_by: str) -> bool:
        """Print the frequencies, from many nodes at once; whether they contradict the paper's."""
        print(f"\nThe same on a real API server, placed by {placed_by}, {runs} runs each")
        contradicts = False
        for case in cases:
            found: list[Counter[str]] = [Counter() for _ in case.requests]
            nodes = _nodes(case.tree)
            shares = [len(range(number, runs, len(nodes))) for number in range(len(nodes))]
            async with asyncio.TaskGroup() as tasks:
                for node, share in zip(nodes, shares, strict=True):
                    tasks.create_task(
                        self._repeat(case, node, share, found, DELIVERY_SECONDS * SLOWER_AT_ONCE)
                    )
            here = "; ".join(
                f"{cores} cores: {', '.join(f'gpu {each}: {n}' for each, n in counts.items())}"
                for cores, counts in zip(case.requests, found, strict=True)
            )
            print(f"  {case.name}: {here}", flush=True)
            pairs = zip(found, case.paper, strict=bool(case.paper))
            contradicts |= any(not counts.keys() <= paper.keys() for counts, paper in pairs)
            contradicts |= any(counts.total() != runs for counts in found)
        return contradicts

    async def times(self, cases: Sequence[Case], runs: int) -> Times:
        """How long pods take, a pod after another."""
        return {
            case.name: await self._repeat(
                case, _node(case.tree), runs, [Counter() for _ in case.requests], DELIVERY_SECONDS
            )
            for case in cases
        }

    async def _repeat(
        self, case: Case, node: str, runs: int, found: Sequence[Counter[str]], delivery: float
    ) -> list[float]:
        """Count where the pods of a case run; the milliseconds until each was bound."""
        taken: list[float] = []
        for _ in range(runs):
            await self._use(node, case.tree, case.before, delivery)
            names = []
            arrivals = list(zip(found, case.requests, strict=True))
            if case.shuffled:
                self._draw.shuffle(arrivals)
            for counts, cores in arrivals:
                limits = {CORE: str(cores)} | ({MEMORY: str(BLOCKS)} if cores < CORES else {})
                name, seconds = await self._schedule(node, limits)
                names.append(name)
                taken.append(seconds * 1000)
                counts[await self._gpus_of(name, node, case.tree)] += 1
            await self._remove(names, delivery)
        await self._use(node, case.tree, {}, delivery)
        return taken

    async def times_of_stock(self, cases: Sequence[Case], runs: int) -> Times:
        """How long pods take that ask for whole GPUs in Kubernetes' own way."""
        times: Times = {}
        for case in cases:
            if any(cores % CORES for cores in (*case.requests, *case.before.values())):
                continue
            taken = times[case.name] = []
            for _ in range(runs):
                in_use = [
                    (await self._schedule(_node(case.tree), _whole(cores)))[0]
                    for cores in case.before.values()
                ]
                for cores in case.requests:
                    name, seconds = await self._schedule(_node(case.tree), _whole(cores))
                    in_use.append(name)
                    taken.append(seconds * 1000)
                await self._remove(in_use, DELIVERY_SECONDS)
        return times

    async def _schedule(self, node: str, limits: Mapping[str, str]) -> tuple[str, float]:
        """Create a pod; its name, and the seconds until it is bound."""
        self._number += 1
        name = f"pod-{self._number}"
        waiter = self._bound[name] = asyncio.get_running_loop().create_future()
        main = {"name": "main", "image": "any", "resources": {"limits": limits}}
        started = time.monotonic()
        metadata = {"name": name, "namespace": "default"}
        spec = {"containers": [main], "nodeSelector": {HOSTNAME: node}}
        await self._client.create(PODS, {"metadata": metadata, "spec": spec})
        async with asyncio.timeout(SECONDS):
            bound = await waiter
        del self._bound[name]
        return name, bound - started

    async def _gpus_of(self, name: str, node: str, tree: str) -> str:
        """The GPUs of a node on which a pod has holders."""
        found = []
        for index in range(len(read_notation(tree, "the tree"))):
            vgpu = await self._client.get(VGPUS, static_name(_uuid(node, index)))
            if any(each["name"] == name for each in vgpu["status"].get("holders", ())):
                found.append(index)
        return ",".join(map(str, found))

    async def _remove(self, names: Sequence[str], delivery: float) -> None:
        for name in names:
            try:
                await self._client.delete(PODS, name, "default", grace=0)
            except NotFoundError:
                continue
        await asyncio.sleep(delivery)

    async def _use(
        self,
        node: str,
        tree: str,
        before: Mapping[str, int],
        delivery: float = DELIVERY_SECONDS,
    ) -> None:
        """Let these GPUs of a node be in use, by somebody who is no pod of the case, no others."""
        for index in range(len(read_notation(tree, "the tree"))):
            cores, uuid = before.get(str(index), 0), _uuid(node, index)
            status = {"phase": "Active" if cores else "Idle", "holders": _holders(uuid, cores)}
            name = static_name(uuid)
            await self._client.merge_patch(VGPUS, name, {"status": status}, subresource="status")
        await asyncio.sleep(delivery)


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
    uid = f"in-use-{uuid[-12:]}"
    amounts = {"requestMicros": micros, "limitMicros": micros, "memoryBytes": memory}
    return [{"demand": uid, "podUid": uid, "namespace": "default", "name": uid, **amounts}]


def _whole(cores: int) -> dict[str, str]:
    """What a pod asks for in Kubernetes' own way."""
    return {WHOLE_GPU_RESOURCE: str(cores // CORES)}


def _node(tree: str, copy: int = 0) -> str:
    """The name of a node with the GPUs of a tree, by their number."""
    return f"gaia-{len(read_notation(tree, 'the tree')):02}{copy:02}"


def _nodes(tree: str) -> list[str]:
    return [_node(tree, copy) for copy in range(NODES_AT_ONCE)]


def _uuid(node: str, index: int) -> str:
    return f"GPU-00000000-0000-0000-0000-000000{node[-4:]}{index:02}"


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
