"""``kubeshare trace``: records what a cluster runs."""

import asyncio
import signal
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeshare.cli.simulate.bar import elapsed_time
from kubeshare.client.usage.period import parse_period

if TYPE_CHECKING:
    from kubeshare.cli.trace.recorder import Counts

_EXAMPLE = "\b\nExample:\n  kubeshare trace record --for 24h -o week-48.csv"


@click.group(epilog=_EXAMPLE)
def trace() -> None:
    """Record what a cluster runs, to simulate it again."""


@trace.command("record", epilog=_EXAMPLE)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    required=True,
    help="CSV file of jobs; that of nodes is written beside it.",
)
@click.option("--for", "period", help="How long, such as 30m or 24h; by default until Ctrl-C.")
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="By default $KUBECONFIG.")
@click.option("--context", help="A context of the kubeconfig; by default its current one.")
def record_command(
    output: Path, period: str | None, kubeconfig: str | None, context: str | None
) -> None:
    """Record the SharePods and the pods with GPUs of a cluster, and its nodes.

    All names are replaced by hashes with a random key that is not stored. The file of jobs is
    whole at any time: it is written anew every 30 seconds, and at the end.
    """
    if output.exists():
        raise click.BadParameter(
            f"{output} is there already: give another file, or remove it", param_hint="--output"
        )
    seconds = parse_period(period, "--for") if period else None
    with elapsed_time("recording", seconds.total_seconds() if seconds else 0):
        counts = asyncio.run(_record(output, seconds, kubeconfig, context))
    click.echo(_words(output, counts))


async def _record(
    output: Path, period: timedelta | None, kubeconfig: str | None, context: str | None
) -> "Counts":
    # lightkube takes 150 ms to import, which `--help` does not pay.
    from kubeshare.cli.trace.recording import record  # noqa: PLC0415
    from kubeshare.kube import logs  # noqa: PLC0415
    from kubeshare.kube.client.client import Client  # noqa: PLC0415

    logs.configure_logging("warning", json=False)  # a watch that breaks, on the standard error
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if period is not None:
        loop.call_later(period.total_seconds(), stop.set)
    async with Client.connect(kubeconfig, context) as client:
        return await record(client, output, nodes_file(output), stop)


def nodes_file(jobs: Path) -> Path:
    """The file of nodes beside a file of jobs: ``trace.nodes.csv`` beside ``trace.csv``."""
    return jobs.with_name(f"{jobs.stem}.nodes.csv")


def _words(output: Path, counts: "Counts") -> str:
    lines = [f"{output}: jobs that ended: {counts.ended}, that still run: {counts.running}."]
    if counts.left_out:
        lines.append(f"Left out, as they never ran: {counts.left_out}.")
    if counts.unreadable:
        lines.append(f"Left out, as KubeShare refuses what they ask for: {counts.unreadable}.")
    if counts.full:
        lines.append("It ended because it takes no more jobs: record a shorter time.")
    nodes = nodes_file(output)
    lines.append(f"Next: kubeshare sim {output} --nodes-from {nodes} --compare locality,binpack")
    return "\n".join(lines)
