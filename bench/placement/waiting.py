"""What waiting SharePods cost the scheduler on a full cluster.

The scheduler runs with an API server in memory and nodes of eight GPUs, all full. Other sizes:
``python -m bench.placement.waiting 40000 1000``; ``40000 1000 selecting`` gives each a selector.
Times are processor time of both: a busy neighbour does not count. The API server's part is that
of one write and its watch events.
"""

import asyncio
import gc
import sys
import time
from contextlib import suppress
from functools import partial
from typing import Any

from bench.report import Met, print_machine, report, time_at_most

from kubeshare.api.owned_nodes import static_name
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPUS
from kubeshare.core.policies import policy
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.resources import NODES
from kubeshare.scheduler.program import scheduler_program
from kubeshare.simulator.control import FakeApiServer, until

SIZES = (800, 4_000)
WAITING = 100

_GPUS = 8
_GIB = 1 << 30
_HALF = 500_000
_ROUNDS = 7
_EVENTS = 20
_IDLE_SECONDS = 10.0

Raw = dict[str, Any]


def run(
    sizes: tuple[int, ...] = SIZES, waiting: int = WAITING, *, selecting: bool = False
) -> list[Met]:
    """All sizes.

    Args:
        sizes: GPUs.
        waiting: SharePods that wait.
        selecting: whether each of them selects its nodes in its own words.
    """
    return [
        met for gpus in sizes for met in asyncio.run(_measure(gpus, waiting, selecting=selecting))
    ]


def program_of(cluster: "FullCluster") -> Program:
    """The scheduler that is measured."""
    return scheduler_program(
        cluster.server.client("scheduler"), policy("locality"), instance="bench"
    )


async def _measure(gpus: int, waiting: int, *, selecting: bool) -> list[Met]:
    cluster = FullCluster(gpus)
    program = program_of(cluster)
    running = asyncio.create_task(program.run())
    try:
        await until(lambda: not list(program.not_ready()), seconds=300.0)
        for number in range(waiting):
            cluster.add_waiting(number, affinity=_not_in(f"zone-{number}") if selecting else {})
        began = time.process_time()
        await until(lambda: _pending(program) >= waiting, seconds=3000.0)
        await cluster.settled()
        submitted = time.process_time() - began
        gc.collect()
        gc.freeze()
        selectors = f" with {waiting} selectors" if selecting else ""
        size = f"{waiting} waiting SharePods{selectors}, {gpus} GPUs"
        return [
            report(f"{size}: to report all of them at first, s", time_at_most(60), submitted),
            report(f"{size}: while nothing happens, of a core", time_at_most(0.01), await _idle()),
            *await _changes(cluster, program, size, waiting),
        ]
    finally:
        gc.unfreeze()
        program.stop()
        with suppress(asyncio.CancelledError):
            await running


async def _idle() -> float:
    """The part of a core that is used while nothing happens."""
    began = time.process_time()
    await asyncio.sleep(_IDLE_SECONDS)
    return (time.process_time() - began) / _IDLE_SECONDS


async def _changes(cluster: "FullCluster", program: Program, size: str, waiting: int) -> list[Met]:
    useless, taken, heartbeats, freed = [], [], [], []
    for number in range(_ROUNDS):
        useless.append(await cluster.cost(cluster.free, number, 10_000) / waiting * 1e3)
        taken.append(await cluster.cost(cluster.take, number, 10_000) * 1e3)
        heartbeats.append(await cluster.cost(cluster.beat_all, number) / _EVENTS * 1e3)
        bound = _bound(program)
        began = time.process_time()
        cluster.free(number, _HALF)
        await until(partial(_more_bound, program, bound), seconds=3000.0)
        freed.append(time.process_time() - began)
        await cluster.settled()
    return [
        report(f"{size}: a look that changes nothing, ms", time_at_most(1), useless),
        report(f"{size}: an event that takes room, ms", time_at_most(2), taken),
        report(f"{size}: a heartbeat of a node, ms", time_at_most(2), heartbeats),
        report(f"{size}: to place one on a freed share, s", time_at_most(1), freed),
    ]


def _pending(program: Program) -> float:
    return _decisions(program, "pending")


def _bound(program: Program) -> float:
    return _decisions(program, "bound")


def _more_bound(program: Program, than: float) -> bool:
    return _bound(program) > than


def _decisions(program: Program, outcome: str) -> float:
    name = "kubeshare_scheduler_decisions_total"
    return program.registry.get_sample_value(name, {"outcome": outcome}) or 0.0


class FullCluster:
    """Shared nodes whose GPUs have two holders of a half each.

    Args:
        gpus: how many.
        holders: a letter for each holder of a GPU.
    """

    def __init__(self, gpus: int, holders: str = "ab") -> None:
        self._holders = holders
        self.server = FakeApiServer()
        self.nodes = gpus // _GPUS
        for number in range(self.nodes):
            self._add_node(f"node-{number}")

    def _add_node(self, node: str) -> None:
        ready = {"type": "Ready", "status": "True"}
        status = {"allocatable": {"nvidia.com/gpu": str(_GPUS)}, "conditions": [ready]}
        self.server.seed(NODES, {"metadata": {"name": node}, "status": status})
        devices = [
            {"uuid": f"GPU-{node}-{index}", "index": index, "model": "V100", "memoryBytes": _GIB}
            for index in range(_GPUS)
        ]
        owned = {"type": "Owned", "status": "True", "reason": "Owned"}
        self.server.seed(
            GPUNODES,
            {
                "metadata": {"name": node},
                "spec": {"devices": devices},
                "status": {"mode": "owned", "conditions": [owned]},
            },
        )
        for device in devices:
            name = static_name(f"{device['uuid']}")
            spec = {"nodeName": node, "uuid": device["uuid"], "model": "V100", "pool": "static"}
            holders = [_holder(f"{name}-{side}", _HALF) for side in self._holders]
            self.server.seed(
                VGPUS,
                {
                    "metadata": {"name": name},
                    "spec": {**spec, "memoryBytes": _GIB},
                    "status": {"phase": "Active", "holders": holders},
                },
            )

    def add_waiting(
        self, number: int, *, affinity: Raw | None = None, metadata: Raw | None = None
    ) -> None:
        """A SharePod of more than anybody gives back but in :meth:`free` of a half."""
        gpu = {"request": "0.3", "limit": "1", "memory": str(1 << 20)}
        spec = {"gpu": gpu, "containers": [{"name": "main", "image": "train:1"}]}
        if affinity:
            spec["affinity"] = affinity
        meta = _meta(f"waits-{number}") | (metadata or {})
        self.server.seed(SHAREPODS, {"metadata": meta, "spec": spec})

    def free(self, number: int, micros: int) -> None:
        """The first holder of a GPU gives so much back."""
        self._change_holder(number, _HALF - micros)

    def take(self, number: int, micros: int) -> None:
        """The first holder of a GPU, which gave so much back, is followed by another one."""

        def change(obj: Raw) -> None:
            obj["status"]["holders"].append(_holder(f"new-{number}", micros))

        self.server.change(VGPUS, _first_gpu(number), "", change)

    def beat_all(self, number: int) -> None:
        """The kubelets of some nodes say that these live."""

        def change(obj: Raw) -> None:
            obj["status"]["conditions"][0]["lastHeartbeatTime"] = str(number)

        for node in range(_EVENTS):
            self.server.change(NODES, f"node-{node % self.nodes}", "", change)

    def _change_holder(self, number: int, micros: int) -> None:
        def change(obj: Raw) -> None:
            obj["status"]["holders"][0]["requestMicros"] = micros

        self.server.change(VGPUS, _first_gpu(number), "", change)

    async def cost(self, change: Any, *arguments: int) -> float:
        """Processor seconds that a change costs until nothing is left to do."""
        began = time.process_time()
        change(*arguments)
        await self.settled()
        return time.process_time() - began

    async def settled(self) -> None:
        """Wait until the programs are idle: nothing uses the processor for a while."""
        while True:
            before = time.process_time()
            await asyncio.sleep(0.05)
            if time.process_time() - before < 0.002:
                return


def _first_gpu(node: int) -> str:
    return static_name(f"GPU-node-{node}-0")


def _not_in(zone: str) -> Raw:
    """Any node but those of a zone that has none."""
    terms = [{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": [zone]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


def _meta(name: str) -> Raw:
    return {"name": name, "namespace": "default"}


def _holder(demand: str, micros: int) -> Raw:
    return {"demand": demand, "name": demand, "requestMicros": micros, "memoryBytes": 1 << 20}


if __name__ == "__main__":
    print_machine()
    gpus = tuple(int(each) for each in sys.argv[1].split(","))
    run(gpus, int(sys.argv[2]), selecting=sys.argv[3:] == ["selecting"])
