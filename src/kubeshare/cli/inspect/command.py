"""`kubeshare inspect`, also `kubectl inspect gpushare`: shows allocated GPU memory."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final, TypeAlias

import click

from kubeshare.cli.inspect import tables
from kubeshare.cli.inspect.objects import follow, read
from kubeshare.cli.inspect.usage import NodeUsage
from kubeshare.cli.output import csv_text, output_option, yaml_text

Show: TypeAlias = Callable[[Sequence[NodeUsage]], str]

COMPLETION_SECONDS: Final = 3.0
"""The most that the completion of a name waits for the cluster."""


def _complete_node(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The gpushare nodes whose names begin so; none if the cluster cannot be read soon."""
    try:
        nodes = asyncio.run(_read_soon(ctx.params.get("kubeconfig"), ctx.params.get("context")))
    except Exception:  # noqa: BLE001 - whoever presses Tab gets no message
        return []
    return [node.name for node in nodes if node.name.startswith(incomplete)]


@click.command(
    epilog="\b\nExamples:\n  kubeshare inspect -o json | jq .allocated\n"
    "  kubeshare inspect node-1 -d --watch"
)
@click.argument("node", required=False, shell_complete=_complete_node)
@click.option("-d", "--details", is_flag=True, help="Show the pods of each node.")
@output_option("table", "wide", "json", "yaml", "csv")
@click.option("-w", "--watch", is_flag=True, help="Print it again when it changes, until Ctrl-C.")
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="By default $KUBECONFIG.")
@click.option("--context", help="A context of the kubeconfig; by default its current one.")
def inspect(  # noqa: PLR0913 - one argument an option
    node: str | None,
    *,
    details: bool,
    output: str,
    watch: bool,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Show how much GPU memory of each gpushare node, or of NODE, is allocated.

    On nodes whose GPUs KubeShare owns it counts what pods hold; on nodes of Alibaba's own
    gpushare it reads the annotations of the pods. PENDING are pods without a GPU.
    """
    if watch and output not in WATCHED:
        raise click.UsageError(f"--watch prints {', '.join(WATCHED)}, not {output}")
    show = FORMATS[output]
    if details and output in ("table", "wide"):
        show = tables.details
    if not watch:
        click.echo(show(asyncio.run(_read(node, kubeconfig, context))))
        return
    with contextlib.suppress(KeyboardInterrupt):  # which ends it
        asyncio.run(_follow(node, kubeconfig, context, show))


async def _read(node: str | None, kubeconfig: str | None, context: str | None) -> list[NodeUsage]:
    # lightkube takes 150 ms to import, which `--help` does not pay.
    from kubeshare.kube.client.client import Client  # noqa: PLC0415

    async with Client.connect(kubeconfig, context) as client:
        return await read(client, node)


async def _follow(
    node: str | None, kubeconfig: str | None, context: str | None, show: Show
) -> None:
    from kubeshare.kube.client.client import Client  # noqa: PLC0415 - as above

    async with (
        Client.connect(kubeconfig, context) as client,
        aclosing(follow(client, node)) as found,
    ):
        async for nodes in found:
            click.echo(show(nodes))


async def _read_soon(kubeconfig: str | None, context: str | None) -> list[NodeUsage]:
    async with asyncio.timeout(COMPLETION_SECONDS):
        return await _read(None, kubeconfig, context)


def as_fields(nodes: Sequence[NodeUsage]) -> dict[str, object]:
    """The usage as the fields of a JSON object; units are those of the first node."""
    return {
        "unit": next((node.unit for node in nodes if node.unit), ""),
        "allocated": sum(node.used for node in nodes),
        "total": sum(node.total for node in nodes),
        "nodes": [_node_fields(node) for node in nodes],
    }


def _node_fields(node: NodeUsage) -> dict[str, object]:
    allocated = node.allocated
    return {
        "name": node.name,
        "address": node.address,
        "unit": node.unit,
        "owned": node.owned,
        "allocated": node.used,
        "pending": node.pending,
        "total": node.total,
        "gpus": [
            {
                "id": gpu,
                "model": node.models.get(gpu, ""),
                "allocated": allocated[gpu],
                "total": total,
            }
            for gpu, total in sorted(node.totals.items())
        ],
        "pods": [
            {
                "namespace": pod.namespace,
                "name": pod.name,
                "gpus": {str(gpu): units for gpu, units in sorted(pod.gpus.items())},
                "pending": pod.pending,
            }
            for pod in node.pods
        ],
    }


def _as_csv(nodes: Sequence[NodeUsage]) -> str:
    """A line for each GPU."""
    rows = [
        (node.name, node.address, gpu, node.models.get(gpu, ""), node.unit, allocated[gpu], total)
        for node in nodes
        for allocated in [node.allocated]
        for gpu, total in sorted(node.totals.items())
    ]
    return csv_text([("node", "address", "gpu", "model", "unit", "allocated", "total"), *rows])


FORMATS: Final[dict[str, Show]] = {
    "table": tables.summary,
    "wide": partial(tables.summary, wide=True),
    "json": lambda nodes: json.dumps(as_fields(nodes)),
    "yaml": lambda nodes: yaml_text(as_fields(nodes)),
    "csv": _as_csv,
}
WATCHED: Final = ("table", "wide", "json")
