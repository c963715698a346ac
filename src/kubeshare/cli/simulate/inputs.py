"""The jobs and the cluster that the options of ``kubeshare sim`` give."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

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
from kubeshare.simulator.workloads import nodes_csv, openb, pai, philly
from kubeshare.simulator.workloads.closed_loop import ClosedLoopJobs
from kubeshare.simulator.workloads.filled import Filled
from kubeshare.simulator.workloads.jobs_csv import JobsCsv
from kubeshare.simulator.workloads.poisson import PoissonJobs
from kubeshare.simulator.workloads.slowdowns_csv import read_slowdowns

_OF_RANDOM_JOBS: Final = (
    *("jobs", "interarrival", "users", "think", "duration", "demand", "deviation"),
    "service_time",
)
_OF_OPEN_LOOP: Final = ("interarrival", "fill")
_OF_EQUAL_NODES: Final = ("nodes", "gpus", "gpu_memory", "gpu_model", "cpus", "memory")
_NAMES: Final = {
    "jobs_csv": "JOBS_CSV",
    "openb": "--openb",
    "philly": "--philly",
    "pai": "--pai",
    "audit": "--audit",
}
"""Each option that gives jobs."""

_WITH_NODES: Final = frozenset({"openb", "philly", "pai"})
"""The traces that have the nodes, too."""


class Inputs(NamedTuple):
    """What a command simulates.

    Attributes:
        experiment: what all runs have in common.
        skipped: the invalid lines or entries of the file that were skipped.
        left_out: those that are valid, but never ran.
    """

    experiment: Experiment
    skipped: int
    left_out: int


class _Jobs(Workload, Protocol):
    """The jobs of a file."""

    @property
    def skipped(self) -> int:
        """How many invalid lines or entries were skipped."""


def check_unused(context: click.Context, given: Mapping[str, Any]) -> None:
    """Refuse options that a file leaves without effect.

    Raises:
        SimulationError: such an option is given.
    """
    unused: list[tuple[str, str]] = []
    if _source(given):
        unused += [(name, "random jobs, and the file has its own") for name in _OF_RANDOM_JOBS]
    if _source(given) != "audit":
        unused.append(("memory_unit", "--audit"))
    if given["nodes_from"]:
        unused += [(name, "equal nodes, and --nodes-from has its own") for name in _OF_EQUAL_NODES]
    if _source(given) in _WITH_NODES:
        words = "a cluster of equal nodes, and the trace has its own"
        unused += [(name, words) for name in (*_OF_EQUAL_NODES, "nodes_from")]
    if given["users"]:
        unused += [(name, "jobs that arrive at random, not for --users") for name in _OF_OPEN_LOOP]
    else:
        unused.append(("think", "a closed loop: give --users, too"))
    for name, purpose in unused:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise SimulationError(f"--{name.replace('_', '-')} is for {purpose}")


def read_inputs(given: Mapping[str, Any]) -> Inputs:
    """The jobs and the cluster.

    Raises:
        SimulationError: an option or a file is invalid.
        InvalidValueError: an amount of memory is not one.
        OSError: a file cannot be read.
    """
    if not given["keep"] >= 0:
        raise SimulationError(f"--keep: {given['keep']:g} s is negative")
    source = _source(given)
    with elapsed_time(f"reading {_NAMES.get(source, 'jobs')}"):
        nodes = _trace_nodes(source, given) or _nodes(given)
        measured = given["slowdowns_from"]
        slowdowns = read_slowdowns(measured) if measured else {}
        hosts = any(node.host is not None for node in nodes)
        jobs = _read(source, given, hosts=hosts)
    workload: Workload = jobs or _random(given)
    if given["fill"] is not None:
        workload = Filled(workload.draw(0), gpu_count(nodes), given["fill"])
    experiment = Experiment(
        nodes=nodes,
        workload=workload,
        settings=Settings(
            keep_s=given["keep"],
            slowdowns={**slowdowns, **given["slowdown"]},
            pack_hosts=given["pack_hosts"],
        ),
        # The cluster of a trace has no other pods that could use a GPU.
        owned=given["owned"] or source in _WITH_NODES,
    )
    left_out = getattr(jobs, "left_out", 0)
    return Inputs(experiment, jobs.skipped if jobs else 0, left_out)


def _source(given: Mapping[str, Any]) -> str:
    """The option that names the file of jobs; "" for random ones.

    Raises:
        SimulationError: there are several.
    """
    found = [name for name in _NAMES if given[name]]
    if len(found) > 1:
        names = " or ".join(_NAMES[name] for name in found)
        raise SimulationError(f"give either {names}")
    return found[0] if found else ""


def _read(source: str, given: Mapping[str, Any], *, hosts: bool) -> _Jobs | None:
    """The jobs of the file; None without one.

    Args:
        source: the option that names it.
        given: all options.
        hosts: whether the CPU and memory of the nodes are known.
    """
    lenient = given["lenient"]
    match source:
        case "jobs_csv":
            return JobsCsv(given["jobs_csv"], lenient=lenient)
        case "openb":
            return openb.OpenbPods(given["openb"][1], lenient=lenient)
        case "philly":
            return philly.PhillyJobs(given["philly"][1], lenient=lenient)
        case "pai":
            return pai.PaiTasks(given["pai"], lenient=lenient)
        case "audit":
            # It imports what reads manifests, which other commands need not wait for.
            from kubeshare.api.configuration import GpushareConfiguration  # noqa: PLC0415
            from kubeshare.simulator.workloads import audit  # noqa: PLC0415

            unit = GpushareConfiguration(memory_unit=given["memory_unit"]).unit_bytes
            return audit.AuditJobs(given["audit"], lenient=lenient, hosts=hosts, unit=unit)
    return None


def _trace_nodes(source: str, given: Mapping[str, Any]) -> list[SimulatedNode] | None:
    """The nodes of a file; None without one."""
    match source:
        case "openb":
            return openb.read_nodes(given["openb"][0])
        case "philly":
            return philly.read_machines(given["philly"][0])
        case "pai":
            return pai.read_machines(given["pai"])
    return nodes_csv.read_nodes(given["nodes_from"]) if given["nodes_from"] else None


def _random(given: Mapping[str, Any]) -> Workload:
    drawn = {
        "count": given["jobs"],
        "duration_s": given["duration"],
        "demand_mean": given["demand"],
        "demand_deviation": given["deviation"],
        "service_s": given["service_time"],
    }
    if given["users"]:
        return ClosedLoopJobs(users=given["users"], think_s=given["think"], **drawn)
    return PoissonJobs(interarrival_s=given["interarrival"], **drawn)


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
