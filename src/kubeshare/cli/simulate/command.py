"""``kubeshare sim``: runs jobs on a simulated cluster, under several policies.

The ledger, the policies, the queue, the pool arithmetic and the fair share are those of a real
cluster, and with ``--tier control`` its scheduler and device manager, too; only time and the jobs'
work are simulated.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from kubeshare.cli.simulate import output
from kubeshare.cli.simulate.bar import progress_bar
from kubeshare.cli.simulate.tiers import parse_restarts, tier
from kubeshare.core.ledger.device import FreeGpu
from kubeshare.core.units import parse_size
from kubeshare.simulator.cluster import SimulatedNode, equal_nodes, gpu_count
from kubeshare.simulator.engine.host_room import HostCapacity
from kubeshare.simulator.engine.simulation import OnEnd, Settings
from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.experiment import Experiment, Run, Workload
from kubeshare.simulator.systems import names
from kubeshare.simulator.workloads.filled import Filled
from kubeshare.simulator.workloads.jobs_csv import JobsCsv
from kubeshare.simulator.workloads.openb import OpenbPods, read_nodes
from kubeshare.simulator.workloads.poisson import PoissonJobs

INTERRUPTED = 130
_OF_RANDOM_JOBS = ("jobs", "interarrival", "duration", "demand", "deviation")
_OF_EQUAL_NODES = ("nodes", "gpus", "gpu_memory", "gpu_model", "cpus", "memory")
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_NEW_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


def _slowdowns(
    context: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> Mapping[tuple[str, str], float]:
    """``A:B=1.5`` → (A, B): 1.5."""
    table = {}
    for text in values:
        kinds, _, factor = text.partition("=")
        kind, colon, other = kinds.partition(":")
        try:
            value = float(factor)
        except ValueError:
            value = 0.0
        if not colon or not 1 <= value < float("inf"):
            raise click.BadParameter(
                f"{text!r} is not KIND:BESIDE=FACTOR with a factor from 1", context, option
            )
        table[kind, other] = value
    return table


def _pair(
    context: click.Context, option: click.Parameter, text: str | None
) -> tuple[str, str] | None:
    """``A,B`` → A and B."""
    if text is None:
        return None
    first, _, second = (part.strip() for part in text.partition(","))
    if not first or not second or first == second or "," in second:
        raise click.BadParameter(f"{text!r} is not two policies, A,B", context, option)
    return first, second


@click.command(
    epilog="\b\nExamples:\n  kubeshare sim --policy locality --policy whole --seeds 3\n"
    "  kubeshare sim jobs.csv --nodes 2 -o json\n"
    "  kubeshare sim --openb openb_node_list_gpu_node.csv openb_pod_list_default.csv\n"
    "  kubeshare sim --jobs 200 --tier control --restart scheduler@60"
)
@click.argument("jobs_csv", type=_FILE, required=False)
@click.option("--openb", type=(_FILE, _FILE), help="Node list and pod list of the trace openb.")
@click.option("--lenient", is_flag=True, help="Skip invalid lines of the file, and count them.")
@click.option(
    "--fill",
    type=float,
    help="Draw jobs of the file, which never end, until they ask for so many times all GPUs.",
)
@click.option("--jobs", default=1000, show_default=True, help="Without a file: how many jobs.")
@click.option("--interarrival", default=1.0, show_default=True, help="Mean seconds between two.")
@click.option("--duration", default=40.0, show_default=True, help="Seconds that each runs.")
@click.option("--demand", default=0.3, show_default=True, help="Mean demand, in GPUs.")
@click.option("--deviation", default=0.1, show_default=True, help="Its standard deviation.")
@click.option("--nodes", default=8, show_default=True, help="Nodes of the cluster.")
@click.option("--gpus", default=4, show_default=True, help="GPUs of each node.")
@click.option("--gpu-memory", default="16Gi", show_default=True, help="Memory of each GPU.")
@click.option("--gpu-model", default="", help="Model of each GPU.")
@click.option("--cpus", type=click.IntRange(1), help="CPUs of each node; else not counted.")
@click.option("--memory", help="Memory of each node, such as 244Gi; else not counted.")
@click.option("--pack-hosts", is_flag=True, help="Jobs without GPUs go to the fullest node.")
@click.option("--owned", is_flag=True, help="All GPUs are vGPUs; else each is made on demand.")
@click.option("--keep", default=0.0, show_default=True, help="Seconds that idle vGPUs are kept.")
@click.option(
    "--slowdown",
    multiple=True,
    callback=_slowdowns,
    help="KIND:BESIDE=FACTOR: how jobs of a kind are slowed beside others, beyond their shares.",
)
@click.option(
    "--tier",
    type=click.Choice(["core", "control"]),
    default="core",
    show_default=True,
    help="control: SharePods through the real scheduler and device manager; for thousands of jobs.",
)
@click.option(
    "--request-time",
    default=0.0,
    show_default=True,
    help="With --tier control: seconds that each request to the API server takes.",
)
@click.option(
    "--restart",
    "restarts",
    multiple=True,
    callback=parse_restarts,
    help="With --tier control: PROGRAM@SECONDS, a program that is killed, and when.",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    default=["locality"],
    show_default=True,
    help=f"One of {', '.join(names())}, or of an installed package; may be repeated.",
)
@click.option(
    "--compare",
    callback=_pair,
    metavar="A,B",
    help="Instead of --policy: two policies, and what B has more than A, seed by seed.",
)
@click.option("--seeds", type=click.IntRange(1, 1000), default=1, show_default=True, help="Runs.")
@click.option("--ended", type=_NEW_FILE, help="CSV file to write, a line for each finished job.")
@click.option("--series", type=_NEW_FILE, help="CSV file to write, of the course over time.")
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["text", "json", "csv"]),
    default="text",
    show_default=True,
)
@click.pass_context
def simulate(
    context: click.Context, /, policies: tuple[str, ...], seeds: int, form: str, **given: Any
) -> int | None:
    """Run the jobs of JOBS_CSV, or random ones, on a simulated cluster.

    Prints throughput, waiting times and use of the GPUs for each policy; with several seeds
    their means and 95 % confidence intervals.
    """
    _check_unused(context, given)
    skipped, experiment = _experiment(given)
    compared: tuple[str, str] | None = given["compare"]
    if compared:
        if context.get_parameter_source("policies") is ParameterSource.COMMANDLINE:
            raise SimulationError("give either --policy or --compare")
        policies = compared
    run_one = tier(given["tier"], given["request_time"], given["restarts"])
    runs: list[Run] = []
    with ExitStack() as stack:
        on_end = output.ended_writer(stack, given["ended"])
        total = experiment.workload.count * len(policies) * seeds
        progress = stack.enter_context(progress_bar(total))
        for name, seed in ((name, seed) for name in policies for seed in range(seeds)):
            runs.append(run_one(experiment, name, seed, _of(on_end, name, seed), progress))
            if runs[-1].summary.partial:
                break
    if given["series"]:
        output.write_series(given["series"], runs)
    results = output.Results(gpu_count(experiment.nodes), skipped, runs, compared)
    click.echo(output.FORMATS[form](results))
    if skipped and form == "text":
        click.echo(f"{skipped} invalid lines of the file were skipped.", err=True)
    if runs[-1].summary.partial:
        click.echo("Interrupted: the last run is partial, and no more were begun.", err=True)
        return INTERRUPTED
    return None


def _check_unused(context: click.Context, given: Mapping[str, Any]) -> None:
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


def _experiment(given: Mapping[str, Any]) -> tuple[int, Experiment]:
    """How many lines of the file were skipped, and what all runs have in common.

    Raises:
        SimulationError: an option or a file is invalid.
        InvalidValueError: an amount of memory is not one.
    """
    if given["openb"] and given["jobs_csv"]:
        raise SimulationError("give either JOBS_CSV or --openb")
    if not given["keep"] >= 0:
        raise SimulationError(f"--keep: {given['keep']:g} s is negative")
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


def _of(on_end: Callable[..., None], policy: str, seed: int) -> OnEnd:
    return lambda ended: on_end(policy, seed, ended)
