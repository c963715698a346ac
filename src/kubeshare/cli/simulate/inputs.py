"""The jobs and the cluster that the options of ``kubeshare sim`` give."""

from collections.abc import Mapping
from typing import Any, Final

import click
from click.core import ParameterSource

from kubeshare.cli.simulate.bar import elapsed_time
from kubeshare.core.ledger.device import FreeGpu
from kubeshare.core.units import parse_size
from kubeshare.simulator.cluster import SimulatedNode, equal_nodes, gpu_count
from kubeshare.simulator.engine.host_room import HostCapacity
from kubeshare.simulator.engine.simulation import Settings
from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.experiment import Experiment, Workload
from kubeshare.simulator.workloads.filled import Filled
from kubeshare.simulator.workloads.jobs_csv import JobsCsv
from kubeshare.simulator.workloads.openb import OpenbPods, read_nodes
from kubeshare.simulator.workloads.poisson import PoissonJobs

_OF_RANDOM_JOBS: Final = ("jobs", "interarrival", "duration", "demand", "deviation")
_OF_EQUAL_NODES: Final = ("nodes", "gpus", "gpu_memory", "gpu_model", "cpus", "memory")


def check_unused(context: click.Context, given: Mapping[str, Any]) -> None:
    """Refuse options that a file leaves without effect.

    Raises:
        SimulationError: such an option is given.
    """
    unused: list[tuple[str, str]] = []
    if given["openb"] or given["jobs_csv"]:
        unused += [(name, "random jobs, and the file") for name in _OF_RANDOM_JOBS]
    if given["openb"]:
        unused += [(name, "a cluster of equal nodes, and the trace") for name in _OF_EQUAL_NODES]
    for name, purpose in unused:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise SimulationError(f"--{name.replace('_', '-')} is for {purpose} has its own")


def experiment_of(given: Mapping[str, Any]) -> tuple[int, Experiment]:
    """How many lines of the file were skipped, and what all runs have in common.

    Raises:
        SimulationError: an option or a file is invalid.
        InvalidValueError: an amount of memory is not one.
    """
    if given["openb"] and given["jobs_csv"]:
        raise SimulationError("give either JOBS_CSV or --openb")
    if not given["keep"] >= 0:
        raise SimulationError(f"--keep: {given['keep']:g} s is negative")
    with elapsed_time("reading"):
        nodes = read_nodes(given["openb"][0]) if given["openb"] else _nodes(given)
        workload, skipped = _workload(given)
    if given["fill"] is not None:
        workload = Filled(workload.draw(0), gpu_count(nodes), given["fill"])
    return skipped, Experiment(
        nodes=nodes,
        workload=workload,
        settings=Settings(
            keep_s=given["keep"], slowdowns=given["slowdown"], pack_hosts=given["pack_hosts"]
        ),
        # The cluster of the trace has no other pods that could use a GPU.
        owned=given["owned"] or bool(given["openb"]),
    )


def _workload(given: Mapping[str, Any]) -> tuple[Workload, int]:
    """The jobs, and how many lines of their file were skipped."""
    if given["openb"]:
        pods = OpenbPods(given["openb"][1], lenient=given["lenient"])
        return pods, pods.skipped
    if given["jobs_csv"]:
        jobs = JobsCsv(given["jobs_csv"], lenient=given["lenient"])
        return jobs, jobs.skipped
    drawn = PoissonJobs(
        count=given["jobs"],
        interarrival_s=given["interarrival"],
        duration_s=given["duration"],
        demand_mean=given["demand"],
        demand_deviation=given["deviation"],
    )
    return drawn, 0


def _nodes(given: Mapping[str, Any]) -> list[SimulatedNode]:
    """The nodes of the options, all equal."""
    memory = parse_size(given["gpu_memory"], "--gpu-memory")
    return equal_nodes(
        given["nodes"],
        given["gpus"],
        FreeGpu(given["gpu_model"], memory),
        _host(given["cpus"], given["memory"]),
    )


def _host(cpus: int | None, memory: str | None) -> HostCapacity | None:
    """The CPU and memory of each node; None if neither is given, so that both are ignored.

    Raises:
        SimulationError: only one is given.
        InvalidValueError: the memory is not an amount.
    """
    if cpus is None and memory is None:
        return None
    if cpus is None or memory is None:
        raise SimulationError("give both --cpus and --memory, or neither")
    return HostCapacity(cpu_millis=cpus * 1000, memory_bytes=parse_size(memory, "--memory"))
