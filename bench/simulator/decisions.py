"""How many decisions a second the baselines that know the workload make.

A cluster of the size of the trace ``openb`` (1 213 nodes, 6 213 GPUs) is filled to 1.3 times its
GPUs with jobs of about as many kinds as the trace has; its files are not part of KubeShare. With
two arguments, ``python -m bench.simulator.decisions NODES PODS``, it is the trace itself. A
decision is what the simulator asks a policy for: the best of the nodes with CPU and memory. Times
are processor time.
"""

import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
from bench.report import Met, print_machine, rate_at_least, report

from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import FreeGpu
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.units import GI, MICROS, Memory
from kubeshare.simulator.cluster import SimulatedNode, build_cluster, gpu_count
from kubeshare.simulator.engine.host_room import HostCapacity
from kubeshare.simulator.engine.simulation import Settings, Simulation
from kubeshare.simulator.jobs import FOREVER, HostRequest, Job
from kubeshare.simulator.systems import Setting, system
from kubeshare.simulator.workloads.filled import Filled
from kubeshare.simulator.workloads.openb import OpenbPods, read_nodes

POLICIES: Final = ("best-fit", "fgd", "gradient")

RUNS: Final = 5

KINDS: Final = 90

JOBS: Final = 8152

_NODES: Final = (
    # How many nodes, their GPUs, the GPUs' model, and CPUs.
    (549, 8, "A", 96),
    (387, 2, "B", 104),
    (107, 2, "C", 16),
    (39, 8, "D", 128),
    (28, 4, "E", 32),
    (29, 8, "F", 82),
    (27, 4, "B", 96),
    (22, 2, "C", 64),
    (20, 1, "E", 8),
    (5, 1, "C", 8),
)
"""About the nodes of the trace."""


def run() -> list[Met]:
    """The synthetic cluster."""
    return _report("a synthetic cluster", synthetic_nodes(), synthetic_jobs(Random(1)))


def synthetic_nodes() -> list[SimulatedNode]:
    """Nodes of several sizes."""
    sizes = [size[1:] for size in _NODES for _ in range(size[0])]
    return [
        SimulatedNode(
            name=f"n{number}",
            gpus=gpus,
            kind=FreeGpu(model, 16 * GI),
            host=HostCapacity(cpu_millis=cpus * 1000, memory_bytes=cpus * 4 * GI, model=model),
        )
        for number, (gpus, model, cpus) in enumerate(sizes)
    ]


def synthetic_jobs(random: Random) -> list[Job]:
    """Jobs of `KINDS` kinds, some of which occur often and most rarely."""
    kinds = [_kind(random) for _ in range(KINDS)]
    weights = [1 / (1 + place) for place in range(KINDS)]
    drawn = random.choices(kinds, weights, k=JOBS)
    return [_job(str(number), *kind) for number, kind in enumerate(drawn)]


def _kind(random: Random) -> tuple[int, int, int]:
    """Thousandths of a GPU, how many GPUs, thousandths of a CPU."""
    gpus = random.choices([0, 1, 2, 4, 8], [13, 80, 2, 2, 3])[0]
    milli = random.choice([1000, 1000, random.randrange(50, 1000, 10)]) if gpus == 1 else 1000
    return milli, gpus, random.choice([1000, 3152, 4000, 8000, 9810, 11_908]) * max(1, gpus)


def _job(name: str, milli: int, gpus: int, cpu_millis: int) -> Job:
    micros = milli * MICROS // 1000
    amounts: dict[str, Any] = {
        "request_micros": micros,
        "memory": Memory(micros=micros),
        "count": gpus,
    }
    return Job(
        uid=name,
        name=name,
        arrival_s=0,
        work_s=FOREVER,
        demand=Demand(uid=name, name=name, **amounts) if gpus else None,
        host=HostRequest(cpu_millis=cpu_millis, memory_bytes=cpu_millis * GI // 1000),
    )


def _per_second(policy: str, nodes: Sequence[SimulatedNode], jobs: Iterable[Job]) -> float:
    """Decisions a second about jobs that ask for GPUs."""
    workload = Filled(jobs, gpu_count(nodes), 1.3)
    chosen = system(policy, Setting(0, nodes, workload.draw))
    took, decisions = 0, 0

    def timed(ledger: Ledger, demand: Demand) -> Decision:
        nonlocal took, decisions
        began = time.process_time_ns()
        decision = chosen.policy(ledger, demand)
        took += time.process_time_ns() - began
        decisions += 1
        return decision

    system_timed = msgspec.structs.replace(chosen, policy=timed)
    simulation = Simulation(build_cluster(nodes, owned=True), system_timed, Settings())
    for _ in simulation.run(workload.draw(0)):
        pass
    return decisions / (took / 1e9)


def _report(what: str, nodes: Sequence[SimulatedNode], jobs: Sequence[Job]) -> list[Met]:
    size = f"simulator, {len(nodes)} nodes with {gpu_count(nodes)} GPUs of {what}"
    results = []
    for policy in POLICIES:
        rates = [_per_second(policy, nodes, jobs) for _ in range(RUNS)]
        results.append(report(f"{size}: decisions of {policy}, 1/s", rate_at_least(20_000), rates))
    return results


if __name__ == "__main__":
    print_machine()
    if sys.argv[1:]:
        its_nodes, its_pods = map(Path, sys.argv[1:])
        _report("openb", read_nodes(its_nodes), list(OpenbPods(its_pods).draw()))
    else:
        run()
