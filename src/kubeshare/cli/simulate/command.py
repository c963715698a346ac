"""``kubeshare sim``: runs jobs on a simulated cluster, under several policies.

The ledger, the policies, the queue, the pool arithmetic and the fair share are those of a real
cluster, and with ``--tier control`` its scheduler and device manager, too; only time and the jobs'
work are simulated.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from kubeshare.cli.output import output_option
from kubeshare.cli.simulate import output
from kubeshare.cli.simulate.bar import progress_bar
from kubeshare.cli.simulate.files import check_parquet_output, need_polars
from kubeshare.cli.simulate.inputs import check_unused, read_inputs
from kubeshare.cli.simulate.report import write_report
from kubeshare.cli.simulate.tiers import RunOne, parse_restarts, tier
from kubeshare.simulator.cluster import gpu_count
from kubeshare.simulator.engine.simulation import OnEnd
from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.experiment import Experiment, Run
from kubeshare.simulator.systems import names

INTERRUPTED = 130
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
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
@click.option("--philly", type=(_FILE, _FILE), help="Machine list and job log of the Philly trace.")
@click.option("--pai", type=_FOLDER, help="Folder with the tables of the trace of Alibaba PAI.")
@click.option("--audit", type=_FILE, help="Audit log of Kubernetes, JSON lines.")
@click.option(
    "--memory-unit",
    type=click.Choice(["GiB", "MiB"]),
    default="GiB",
    show_default=True,
    help="With --audit: the unit of aliyun.com/gpu-mem, as of gpushare's device plugin.",
)
@click.option("--nodes-from", type=_FILE, help="CSV file of nodes, instead of equal ones.")
@click.option("--lenient", is_flag=True, help="Skip invalid lines of the file, and count them.")
@click.option(
    "--fill",
    type=float,
    help="Draw jobs of the file, which never end, until they ask for so many times all GPUs.",
)
@click.option("--jobs", default=1000, show_default=True, help="Without a file: how many jobs.")
@click.option("--interarrival", default=1.0, show_default=True, help="Mean seconds between two.")
@click.option("--users", type=click.IntRange(1), help="As many users, each with one job at a time.")
@click.option("--think", default=0.0, show_default=True, help="Mean seconds between a user's jobs.")
@click.option("--duration", default=40.0, show_default=True, help="Seconds that each runs.")
@click.option("--demand", default=0.3, show_default=True, help="Mean demand, in GPUs.")
@click.option("--deviation", default=0.1, show_default=True, help="Its standard deviation.")
@click.option(
    "--service-time",
    default=0.0,
    help="Jobs serve requests, each of so many seconds of a whole GPU, as often as they demand.",
)
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
@click.option("--slowdowns-from", type=_FILE, help="CSV file of slowdowns that were measured.")
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
@click.option("--ended", type=_NEW_FILE, help="File to write, a row for each finished job.")
@click.option("--series", type=_NEW_FILE, help="File to write, of the course over time.")
@click.option("--report", type=_NEW_FILE, help="HTML file to write, with all results.")
@output_option(*output.FORMATS, name="form")
@click.pass_context
def simulate(
    context: click.Context, /, policies: tuple[str, ...], seeds: int, form: str, **given: Any
) -> int | None:
    """Run the jobs of JOBS_CSV, or random ones, on a simulated cluster.

    Prints throughput, waiting times and use of the GPUs for each policy; with several seeds
    their means and 95 % confidence intervals. Files are CSV, or Parquet where they end in
    .parquet.
    """
    check_unused(context, given)
    need_polars(given["ended"], given["series"])
    if form == "parquet":
        check_parquet_output()
    experiment, skipped, left_out = read_inputs(given)
    compared: tuple[str, str] | None = given["compare"]
    if compared:
        if context.get_parameter_source("policies") is ParameterSource.COMMANDLINE:
            raise SimulationError("give either --policy or --compare")
        policies = compared
    chosen = tier(given["tier"], given["request_time"], given["restarts"])
    for name in policies:
        chosen.check(experiment, name)
    work = [(name, seed) for name in policies for seed in range(seeds)]
    done = _run_all(experiment, work, chosen.run, given["ended"])
    if given["series"]:
        output.write_series(given["series"], done.runs)
    results = output.Results(
        gpus=gpu_count(experiment.nodes),
        skipped=skipped,
        left_out=left_out,
        runs=done.runs,
        compared=compared,
        interrupted=done.interrupted,
        failed=str(done.failure or ""),
    )
    if given["report"]:
        write_report(given["report"], results, _given(context))
    click.echo(output.FORMATS[form](results), nl=form != "parquet")
    if form == "text":
        for line in output.omissions(results):
            click.echo(line, err=True)
    if done.failure is not None:
        click.echo("The results are those of the runs before the one that failed.", err=True)
        raise done.failure
    if done.interrupted:
        partial = "the last run is partial, and " if done.runs[-1].summary.partial else ""
        click.echo(f"Interrupted: {partial}no more were begun.", err=True)
        return INTERRUPTED
    return None


def _given(context: click.Context) -> Mapping[str, object]:
    """The options and arguments of the command line, by name."""
    by_user = ParameterSource.COMMANDLINE
    return {
        max(option.opts, key=len): context.params[str(option.name)]
        for option in context.command.params
        if context.get_parameter_source(str(option.name)) is by_user
    }


class _Done(NamedTuple):
    """What was run: up to an error of a policy, or an interruption from the keyboard."""

    runs: list[Run]
    failure: SimulationError | None = None
    interrupted: bool = False


def _run_all(
    experiment: Experiment, work: Sequence[tuple[str, int]], run_one: RunOne, ended: Path | None
) -> _Done:
    """Run policies and seeds, up to a run that fails or is interrupted.

    Raises:
        SimulationError: the first one fails.
        KeyboardInterrupt: it is interrupted before its first job.
    """
    runs: list[Run] = []
    with ExitStack() as stack:
        on_end = output.ended_writer(stack, ended)
        progress = stack.enter_context(progress_bar(experiment.workload.count * len(work)))
        try:
            for name, seed in work:
                runs.append(run_one(experiment, name, seed, _of(on_end, name, seed), progress))
                if runs[-1].summary.partial:
                    return _Done(runs, interrupted=True)
        except SimulationError as error:
            if not runs:
                raise
            return _Done(runs, failure=error)
        except KeyboardInterrupt:  # while a policy reads the workload
            if not runs:
                raise
            return _Done(runs, interrupted=True)
    return _Done(runs)


def _of(on_end: Callable[..., None], policy: str, seed: int) -> OnEnd:
    return lambda ended: on_end(policy, seed, ended)
