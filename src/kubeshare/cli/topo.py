"""`kubeshare topo`: draws how the GPUs of a node are linked."""

import asyncio
import json
from typing import TYPE_CHECKING

import click

from kubeshare.api.topology.drawings import LEGEND, matrix_text, svg
from kubeshare.api.topology.fields import as_fields
from kubeshare.api.topology.node_topology import NodeTopology
from kubeshare.api.topology.tree_text import tree_text
from kubeshare.api.types.v1 import GPUNODES, GPUNode
from kubeshare.cli.output import output_option, yaml_text
from kubeshare.kube.client.errors import NotFoundError

if TYPE_CHECKING:
    from kubeshare.kube.client.client import Client


class NoTopologyError(Exception):
    """There is no such node, or nothing is known of its GPUs."""

    exit_code = 1


@click.command(epilog="\b\nExample:\n  kubeshare topo node-1 -o svg > topology.svg")
@click.argument("node")
@output_option("text", "json", "yaml", "svg")
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="By default $KUBECONFIG.")
@click.option("--context", help="A context of the kubeconfig; by default its current one.")
def topo(node: str, *, output: str, kubeconfig: str | None, context: str | None) -> None:
    """Show how the GPUs of NODE are linked.

    First the access-cost tree by which the policy topology chooses GPUs, then the matrix as
    `nvidia-smi topo -m` prints it; both are what the node's agent found.
    """
    topology = asyncio.run(_read(node, kubeconfig, context))
    if output == "json":
        click.echo(json.dumps(as_fields(topology)))
    elif output == "yaml":
        click.echo(yaml_text(as_fields(topology)))
    elif output == "svg":
        click.echo(svg(topology))
    else:
        click.echo("\n\n".join([tree_text(topology), matrix_text(topology), LEGEND]))


async def _read(node: str, kubeconfig: str | None, context: str | None) -> NodeTopology:
    # lightkube takes 150 ms to import, which `--help` does not pay.
    from kubeshare.kube.client.client import Client  # noqa: PLC0415

    async with Client.connect(kubeconfig, context) as client:
        return await read(client, node)


async def read(client: "Client", node: str) -> NodeTopology:
    """Read the topology of a node.

    Raises:
        NoTopologyError: there is no such node, or it has no GPUs.
        ApiError: the cluster cannot be read.
    """
    try:
        found = await client.get(GPUNODES.into(GPUNode), node)
    except NotFoundError as error:
        words = (
            f"nothing is known of the GPUs of node {node}: no node agent runs there; "
            "`kubeshare get nodes` lists the nodes that have one"
        )
        raise NoTopologyError(words) from error
    if not found.spec.devices:
        raise NoTopologyError(f"node {node} has no GPUs")
    return NodeTopology(node, found.spec)
