"""What a start on a large cluster takes and holds: the longest step, processor time, memory.

``python -m bench.cluster.start 40000 100000`` starts each program, in a process of its own, with so
many GPUs and SharePods, all of which run. They are computed page by page as they are listed, so
the memory is the program's, and that of one page. A waiting replica has filled its stores; a
leader has built its ledger, too, and queued the keys of all objects.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from bench.report import Met, at_most, print_machine, report, summarize
from kubeshare.api.owned_nodes import static_name
from kubeshare.api.types.constants import (
    LABEL_ROLE,
    LABEL_SHAREPOD_UID,
    LABEL_VGPU,
    NAMESPACE,
    ROLE_SHAREPOD,
)
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPUS
from kubeshare.core.policies import policy
from kubeshare.device_manager.program import device_manager_program
from kubeshare.kube.client.client import Client
from kubeshare.kube.controller.gc_tuning import collections_paused, freeze_live_objects
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.resources import LEASES, NODES, PODS, Raw, Resource
from kubeshare.scheduler.program import scheduler_program
from kubeshare.simulator.control.generated_lists import Generated, GeneratedLists
from kubeshare.simulator.control.step_times import GOAL_SECONDS, StepTimes

GPUS: Final = 40_000
SHAREPODS_IN_ALL: Final = 100_000
PROGRAMS: Final = ("scheduler", "device-manager")
MEMORY_GOAL_MIB: Final = 800
OBJECT_GOAL_KIB: Final = 6.0
_SHORTEST_STEP: Final = 0.0005
"""Seconds of the shortest step that is kept: all of them would count as the program's memory."""
_OF_A_NODE: Final = 8
_GIB: Final = 1 << 30
_TIME: Final = "2026-11-21T23:50:00Z"
_TRUE: Final = {"status": "True", "lastTransitionTime": _TIME, "observedGeneration": 1}


def run(gpus: int, sharepods: int, *, leading: bool = True) -> list[Met]:
    """Each program, waiting and, unless told otherwise, leading."""
    met = []
    for program in PROGRAMS:
        for waits in (True, False) if leading else (True,):
            found = _measured(program, gpus, sharepods, waits=waits)
            what = f"{program}, {'waiting' if waits else 'leading'}, {gpus} GPUs"
            what += f", {sharepods} SharePods"
            met += [
                report(f"{what}: longest step, ms", at_most(GOAL_SECONDS * 1e3), found["step_ms"]),
                report(f"{what}: resident memory, MiB", at_most(MEMORY_GOAL_MIB), found["mib"]),
                report(
                    f"{what}: memory of a SharePod with all that belongs to it, KiB",
                    at_most(OBJECT_GOAL_KIB),
                    (found["mib"] - found["empty_mib"]) * 1024 / sharepods,
                ),
                report(f"{what}: processor time of the start, s", at_most(60), found["cpu_s"]),
            ]
            if waits:
                met.append(report(f"{what}: keys in its queues", at_most(0), found["queued"]))
    return met


def _measured(program: str, gpus: int, sharepods: int, *, waits: bool) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.cluster.earlier", "bench.cluster.start"]
    command += [str(gpus), str(sharepods), "--program", program, *(["--waits"] if waits else [])]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


async def _start(name: str, gpus: int, sharepods: int, *, waits: bool) -> dict[str, float]:
    server = GeneratedLists(generated(gpus, sharepods))
    if waits:
        spec = {"holderIdentity": "another", "leaseDurationSeconds": 3600, "renewTime": _TIME}
        program_name = f"kubeshare-{name}"
        metadata = {"name": program_name, "namespace": NAMESPACE}
        server.seed(LEASES, {"metadata": metadata, "spec": spec})
    built = asyncio.Event()

    def set_built() -> None:
        freeze_live_objects()
        built.set()

    program = program_of(name, server.client(name), elect=waits, built=set_built)
    steps = StepTimes(at_least=_SHORTEST_STEP)
    steps.exclude(server, "_answer")
    empty = _resident_mib()
    began = time.process_time()
    with steps:
        async with collections_paused(program.wait_for_sync):
            running = asyncio.create_task(program.run())
            await (program.wait_for_sync() if waits else built.wait())
            await asyncio.sleep(0.5)
            found = {"cpu_s": time.process_time() - began, "mib": _resident_mib()}
            found["empty_mib"] = empty
            found["queued"] = _queued(program)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    longest = steps.longest(1)
    return found | {"step_ms": longest[0].seconds * 1e3 if longest else 0.0}


def program_of(
    name: str, client: Client, *, elect: bool, built: Callable[[], None] = freeze_live_objects
) -> Program:
    """A program of that name; `built` is called when it has built its ledger."""
    if name == "scheduler":
        return scheduler_program(
            client, policy("locality"), instance="bench", elect=elect, built=built
        )
    return device_manager_program(
        client,
        policy("locality"),
        placeholder_image="pause:1",
        instance="bench",
        elect=elect,
        built=built,
    )


def _queued(program: Program) -> int:
    """Keys that wait for the program's controllers."""
    return sum(len(each.queue) for each in program._controllers)  # noqa: SLF001


def _resident_mib() -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def generated(gpus: int, sharepods: int) -> dict[Resource[Any], Generated]:
    """The objects of a cluster in which so many SharePods run on so many GPUs."""

    def name(number: int) -> str:
        return static_name(_uuid(number % gpus))

    def vgpu(number: int) -> Raw:
        holders = [_holder(each, sharepods // gpus + 1) for each in range(number, sharepods, gpus)]
        spec = {"nodeName": f"node-{number // _OF_A_NODE}", "uuid": _uuid(number)}
        return {
            "metadata": {"name": name(number)},
            "spec": spec | {"model": "V100", "pool": "static", "memoryBytes": _GIB},
            "status": {"phase": "Active" if holders else "Idle", "holders": holders},
        }

    return {
        NODES: Generated(gpus // _OF_A_NODE, _node),
        GPUNODES: Generated(gpus // _OF_A_NODE, _gpunode),
        VGPUS: Generated(gpus, vgpu),
        SHAREPODS: Generated(sharepods, lambda number: _sharepod(number, gpus, name)),
        PODS: Generated(sharepods, lambda number: _pod(number, gpus, name)),
    }


def _uuid(gpu: int) -> str:
    return f"GPU-00000000-0000-4000-8000-{gpu:012x}"


def _uid(number: int) -> str:
    return f"00000000-0000-4000-9000-{number:012x}"


def _holder(number: int, on_gpu: int) -> Raw:
    return {
        "demand": _uid(number),
        "attempt": 1,
        "namespace": "default",
        "name": f"share-{number}",
        "podUid": f"uid-{number}",
        "requestMicros": 1_000_000 // on_gpu,
        "limitMicros": 1_000_000,
        "memoryBytes": 1 << 20,
    }


def _node(number: int) -> Raw:
    ready = {"type": "Ready", "status": "True"}
    status = {"allocatable": {"cpu": "96", "memory": "1Ti"}, "conditions": [ready]}
    labels = {"kubernetes.io/hostname": f"node-{number}", "kubernetes.io/arch": "amd64"}
    return {"metadata": {"name": f"node-{number}", "labels": labels}, "status": status}


def _gpunode(number: int) -> Raw:
    first = number * _OF_A_NODE
    devices = [
        {"uuid": _uuid(first + index), "index": index, "model": "V100", "memoryBytes": _GIB}
        for index in range(_OF_A_NODE)
    ]
    owned = {"type": "Owned", "status": "True", "reason": "Owned"}
    return {
        "metadata": {"name": f"node-{number}"},
        "spec": {"devices": devices},
        "status": {"mode": "owned", "conditions": [owned]},
    }


def _sharepod(number: int, gpus: int, name: Callable[[int], str]) -> Raw:
    node = f"node-{number % gpus // _OF_A_NODE}"
    gpu = {"request": "0.1", "memory": "1Mi", "id": name(number), "attempt": 1}
    said = {"reason": "PodReady", "message": f"it shares vGPU {name(number)} on node {node}"}
    kinds = ("Scheduled", "Allocated", "Ready")
    conditions = [{"type": kind} | _TRUE | said for kind in kinds]
    metadata = {"name": f"share-{number}", "namespace": "default", "uid": _uid(number)}
    return {
        "metadata": metadata | {"creationTimestamp": _TIME, "finalizers": ["kubeshare.nthu/pod"]},
        "spec": {"gpu": gpu, "nodeName": node, "containers": _containers()},
        "status": {"conditions": conditions, "phase": "Running", "nodeName": node},
    }


def _pod(number: int, gpus: int, name: Callable[[int], str]) -> Raw:
    owner = {"apiVersion": "kubeshare.nthu/v1", "kind": "SharePod", "uid": _uid(number)}
    labels = {
        LABEL_ROLE: ROLE_SHAREPOD,
        LABEL_SHAREPOD_UID: _uid(number),
        LABEL_VGPU: name(number),
    }
    running = {"running": {"startedAt": _TIME}}
    return {
        "metadata": {
            "name": f"share-{number}",
            "namespace": "default",
            "creationTimestamp": _TIME,
            "labels": labels,
            "ownerReferences": [owner | {"name": f"share-{number}", "controller": True}],
        },
        "spec": {
            "nodeName": f"node-{number % gpus // _OF_A_NODE}",
            "containers": _containers(),
        },
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.7",
            "startTime": _TIME,
            "conditions": [{"type": "PodScheduled"} | _TRUE, {"type": "Ready"} | _TRUE],
            "containerStatuses": [{"name": "main", "state": running}],
        },
    }


def _containers() -> list[Raw]:
    limits = {"kubeshare.nthu/vgpu": "1", "cpu": "1", "memory": "2Gi"}
    environment = [{"name": f"OPTION_{number}", "value": "x" * 20} for number in range(10)]
    mounts = [{"name": "data", "mountPath": "/data"}]
    resources = {"limits": limits, "requests": limits}
    main = {"name": "main", "image": "registry.example/train:1", "args": ["--epochs", "10"]}
    return [main | {"env": environment, "volumeMounts": mounts, "resources": resources}]


def main() -> int:
    """Run it and say how many goals are met."""
    parser = argparse.ArgumentParser(prog="bench.cluster.start")
    parser.add_argument("gpus", type=int, nargs="?", default=GPUS)
    parser.add_argument("sharepods", type=int, nargs="?", default=SHAREPODS_IN_ALL)
    parser.add_argument("--program", choices=PROGRAMS, help="measure this one, in this process")
    parser.add_argument("--waits", action="store_true", help="only replicas without the Lease")
    options = parser.parse_args()
    if options.program:
        started = _start(options.program, options.gpus, options.sharepods, waits=options.waits)
        sys.stdout.write(json.dumps(asyncio.run(started)) + "\n")
        return 0
    print_machine()
    return summarize(run(options.gpus, options.sharepods, leading=not options.waits))


if __name__ == "__main__":
    sys.exit(main())
