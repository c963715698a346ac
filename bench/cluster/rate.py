"""Thousands of SharePods: how many a second, and what each costs each program.

*Ready* means here that the pod runs: the bench plays the kubelet no further. The writes of our
programs after that, the last status, are waited for before anything is counted.
"""

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Collection, Sequence

from msgspec import Struct

from bench.cluster import nodes
from bench.cluster.control_plane import DEVICES, MODULES, SCHEDULER, Cluster, Usage, cluster
from bench.report import NO_GOAL, Sample, at_least, at_most, sample
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.core_v1 import Pod
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.kube.client.client import Client
from kubeshare.kube.resources import PODS

GPUS = 8
NAMESPACE_OF_PODS = "default"

MOST_WRITES = 6
MOST_CPU_MS = 5.0
MOST_MEMORY_MIB = 250.0
LEAST_OF_POSSIBLE = 0.8
MOST_DRIFT = 1.25
IDLE_REQUESTS = 20.0
IDLE_CPU = 0.01

_CALIBRATION = 1500
_IN_FLIGHT = 32
_WRITES = {"create", "patch", "delete"}
_OF_A_VGPU = {("create", "vgpus"), ("create", "pods")}
_SETTLED_SECONDS = 3.0
_ALL_RUN_SECONDS = 1800.0


class Size(Struct, frozen=True):
    """How many nodes of 8 GPUs, SharePods, and seconds of looking at idle programs.

    A silent watch of events is opened anew after 75 seconds, any other after five to ten minutes.
    """

    nodes: int
    sharepods: int
    idle_seconds: float


SMALL = Size(50, 500, 150.0)
FULL = Size(500, 10_000, 150.0)


class Times:
    """When what happened, in seconds of the loop's clock.

    Args:
        count: of SharePods.

    Attributes:
        all_ran: set when so many run.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self.all_ran = asyncio.Event()
        self.applied: dict[str, float] = {}
        self.created: dict[str, float] = {}
        self.ran: dict[str, float] = {}

    def on_created(self, pod: Pod) -> None:
        self.created[pod.metadata.name] = asyncio.get_running_loop().time()

    def on_ran(self, pod: Pod) -> None:
        self.ran[pod.metadata.name] = asyncio.get_running_loop().time()
        if len(self.ran) == self._count:
            self.all_ran.set()


def run(size: Size) -> list[Sample]:
    """All numbers of a size."""
    with cluster() as there:
        return asyncio.run(_measure(there, size))


async def _measure(there: Cluster, size: Size) -> list[Sample]:
    async with Client.connect(there.server.kubeconfig) as client:
        await nodes.add(client, size.nodes, GPUS)
        possible = await _calibrate(client)
        await asyncio.to_thread(there.start, SCHEDULER, DEVICES)
        times = Times(size.sharepods)
        kubelets = nodes.Kubelets(client, GPUS, times.on_created, times.on_ran)
        async with kubelets.at_work():
            before, writes = there.cpu(), there.writes()
            await _apply(client, size, times)
            await there.until(times.all_ran, _ALL_RUN_SECONDS)
            writes = there.writes() - writes
            await _settle(there)
            after, asked = there.cpu(), there.asked()
            spent = {name: after[name] - before[name] for name in before}
            results = [
                *_of_rate(times, size, possible, writes),
                *_of_writes(asked, size),
                *_of_cpu(spent, size),
                _of_memory(there.usage()),
                *await _idle(there, size),
            ]
    return results


async def _calibrate(client: Client) -> float:
    """Writes a second that the API server takes from this client, half creations, half patches.

    The objects are pods that no scheduler takes: the cost of a write depends mostly on the object
    and the admission policies that match it, and nearly all later writes are about pods.
    """
    names = [f"calibration-{number}" for number in range(_CALIBRATION // 2)]
    main = {"name": "main", "image": "train:1"}
    spec = {"schedulerName": "none", "containers": [main]}
    pending = {"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}]}

    async def one(name: str) -> None:
        await client.create(PODS, {"metadata": {"name": name}, "spec": spec}, NAMESPACE_OF_PODS)
        await client.merge_patch(
            PODS, name, {"status": pending}, NAMESPACE_OF_PODS, subresource="status"
        )

    async def gone(name: str) -> None:
        await client.delete(PODS, name, NAMESPACE_OF_PODS)

    started = time.monotonic()
    await nodes.in_flight(names, one, _IN_FLIGHT)
    possible = _CALIBRATION / (time.monotonic() - started)
    await nodes.in_flight(names, gone, _IN_FLIGHT)
    return possible


async def _apply(client: Client, size: Size, times: Times) -> None:
    async def one(number: int) -> None:
        name = f"share-{number}"
        # Many a GPU: most SharePods come to a vGPU that is there.
        gpu = {"request": "0.1", "memory": "1Gi"}
        spec = {"gpu": gpu, "containers": [{"name": "main", "image": "train:1"}]}
        times.applied[name] = asyncio.get_running_loop().time()
        metadata = {"name": name, "namespace": NAMESPACE_OF_PODS}
        await client.create(SHAREPODS, {"metadata": metadata, "spec": spec})

    await nodes.in_flight(range(size.sharepods), one)


async def _settle(there: Cluster) -> None:
    """Until our programs have had nothing to write for a while but their Leases."""
    written = -1
    while (now := _written(there)) != written:
        written = now
        await asyncio.sleep(_SETTLED_SECONDS)


def _written(there: Cluster) -> int:
    return sum(
        count
        for asked in there.asked().values()
        for (verb, resource, _), count in asked.items()
        if verb in _WRITES and resource != "leases"
    )


def _of_rate(times: Times, size: Size, possible: float, writes: int) -> list[Sample]:
    first = min(times.applied.values())
    created = _rate(times.created.values(), first)
    ran = _rate(times.ran.values(), first)
    each = writes / size.sharepods
    share = created / (possible / each)
    drift = _drift(sorted(times.created.values()))
    waits = [times.ran[name] - times.applied[name] for name in times.ran]
    return [
        sample(
            f"{size.sharepods} SharePods on {size.nodes} nodes x {GPUS} GPUs, applied to pod "
            "created: rate by what the API server's writes allow",
            at_least(LEAST_OF_POSSIBLE),
            share,
            sharepods_a_second=round(created, 1),
            to_running_a_second=round(ran, 1),
            api_server_writes_a_second=round(possible),
            writes_a_sharepod_of_all_programs=round(each, 2),
            median_to_running_s=round(statistics.median(waits), 2),
        ),
        sample(
            "seconds a SharePod, the last tenth by the first",
            at_most(MOST_DRIFT),
            drift,
        ),
    ]


def _rate(moments: Collection[float], first: float) -> float:
    return len(moments) / (max(moments) - first)


def _drift(moments: Sequence[float]) -> float:
    tenth = len(moments) // 10
    return (moments[-1] - moments[-1 - tenth]) / (moments[2 * tenth] - moments[tenth])


def _of_writes(asked: dict[str, Counter[tuple[str, str, str]]], size: Size) -> list[Sample]:
    """Of a SharePod; writes for a vGPU and events are listed beside it."""
    per_sharepod, per_vgpu, events, reads = Counter[str](), Counter[str](), 0, Counter[str]()
    vgpus = 0
    for name, program in asked.items():
        for (verb, resource, namespace), count in program.items():
            what = f"{verb} {resource}"
            if resource == "leases":
                continue
            if resource == "events":
                events += count
            elif verb == "get":
                reads[f"{name}: {what}"] += count
            elif verb in _WRITES:
                own = (verb, resource) in _OF_A_VGPU and namespace in ("", NAMESPACE)
                (per_vgpu if own else per_sharepod)[f"{name}: {what}"] += count
                vgpus += count if what == "create vgpus" else 0
    # Marking a vGPU as active is a patch of its status too.
    per_sharepod[f"{DEVICES}: patch vgpus/status"] -= vgpus
    total = sum(per_sharepod.values()) / size.sharepods
    read = sum(reads.values()) / size.sharepods
    return [
        sample(
            "writes of our programs a SharePod up to Ready",
            at_most(MOST_WRITES + 0.02),
            total,
            by_kind={
                what: round(count / size.sharepods, 3) for what, count in per_sharepod.items()
            },
            events=round(events / size.sharepods, 3),
            vgpus=vgpus,
            of_a_vgpu={what: round(count / max(vgpus, 1), 3) for what, count in per_vgpu.items()},
        ),
        sample(
            "reads of our programs a SharePod up to Ready",
            at_most(0.01),
            read,
            by_kind=dict(reads),
        ),
    ]


def _of_cpu(spent: dict[str, float], size: Size) -> list[Sample]:
    """Of each program; the bench itself plays users, kubelets and node agents."""
    each = {name: seconds / size.sharepods * 1000 for name, seconds in spent.items()}
    whole = sample(
        "CPU of the control plane a SharePod, ms",
        NO_GOAL,
        sum(each.values()),
        by_program={name: round(value, 2) for name, value in each.items()},
    )
    ours = [name for name in each if name in MODULES]
    return [
        whole,
        *(
            sample(f"CPU of {name} a SharePod, ms", at_most(MOST_CPU_MS), each[name])
            for name in ours
        ),
    ]


def _of_memory(after: dict[str, Usage]) -> Sample:
    total = sum(usage.resident for usage in after.values())
    return sample(
        "memory of scheduler and device manager together, MiB",
        at_most(MOST_MEMORY_MIB),
        total,
        resident={name: round(usage.resident, 1) for name, usage in after.items()},
        peak={name: round(usage.peak, 1) for name, usage in after.items()},
    )


async def _idle(there: Cluster, size: Size) -> list[Sample]:
    """What the programs do while nothing happens, with all SharePods there."""
    asked, used = there.asked(), there.usage()
    await asyncio.sleep(size.idle_seconds)
    asked_after, used_after = there.asked(), there.usage()
    results = []
    for name in used:
        new = asked_after[name] - asked[name]
        a_minute = sum(new.values()) * 60 / size.idle_seconds
        cpu = (used_after[name].cpu - used[name].cpu) / size.idle_seconds
        by_kind = {f"{verb} {resource}": count for (verb, resource, _), count in new.items()}
        results += [
            sample(
                f"idle: requests of {name} a minute",
                at_most(IDLE_REQUESTS),
                a_minute,
                by_kind=by_kind,
            ),
            sample(f"idle: CPU of {name}, of a core", at_most(IDLE_CPU), cpu),
        ]
    return results
