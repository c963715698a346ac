"""How fast the simulator's core tier is, and how much memory it takes.

``make bench`` runs the small size. The large one, a million jobs on 100 000 GPUs, takes minutes:
``PYTHONPATH=tests python -m bench.simulator.speed 100000 1000000``. Times are processor time.
"""

import subprocess
import sys
import time
from pathlib import Path

from bench.report import Met, at_most, print_machine, report, time_at_most

from kubeshare.core.ledger.device import FreeGpu
from kubeshare.core.units import GI
from kubeshare.simulator.cluster import build_cluster, equal_nodes
from kubeshare.simulator.engine.simulation import Settings, Simulation
from kubeshare.simulator.systems import Setting, system
from kubeshare.simulator.workloads.poisson import PoissonJobs

SMALL = (1000, 10_000)
"""GPUs and jobs."""

LOAD = 0.8
"""Of the GPU time, what the jobs ask for."""

_DURATION_S = 100.0
_DEMAND = 0.3


def run() -> list[Met]:
    """The small size, in a process of its own, whose memory is its own."""
    command = [sys.executable, "-m", "bench.simulator.speed", *map(str, SMALL), "number"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return _report(*SMALL, *map(float, done.stdout.split()))


def _measure(gpus: int, jobs: int) -> tuple[float, float]:
    """Seconds of processor time, and MiB of memory at the most."""
    chosen = system("locality", Setting(0))
    workload = PoissonJobs(
        count=jobs,
        interarrival_s=_DURATION_S * _DEMAND / (gpus * LOAD),
        duration_s=_DURATION_S,
        demand_mean=_DEMAND,
        demand_deviation=0.1,
    )
    began = time.process_time()
    nodes = equal_nodes(gpus // 8, 8, FreeGpu("V100", 16 * GI))
    simulation = Simulation(build_cluster(nodes, owned=False), chosen, Settings())
    for _ in simulation.run(workload.draw(0)):
        pass
    took = time.process_time() - began
    assert simulation.measured.finished == jobs
    return took, _most_memory()


def _most_memory() -> float:
    """MiB resident at the most, of this program only: `ru_maxrss` keeps its parent's peak."""
    status = Path("/proc/self/status").read_text("ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _report(gpus: int, jobs: int, took: float, memory: float) -> list[Met]:
    size = f"simulator, {jobs} jobs on {gpus} GPUs"
    return [
        # A million in ten minutes.
        report(f"{size}: processor time of a job, us", time_at_most(600), took / jobs * 1e6),
        report(f"{size}: resident memory at most, MiB", at_most(100 + gpus / 50), memory),
    ]


if __name__ == "__main__":
    measured = _measure(int(sys.argv[1]), int(sys.argv[2]))
    if sys.argv[3:]:
        print(*measured)
    else:
        print_machine()
        _report(int(sys.argv[1]), int(sys.argv[2]), *measured)
