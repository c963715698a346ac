"""`kubeshare inspect`, also `kubectl inspect gpushare`: shows allocated GPU memory."""

import asyncio
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import click
import yaml

from kubeshare.api.types.core_v1 import PODS
from kubeshare.api.types.v1 import GPUNODES, VGPU, VGPUS, GPUNode
from kubeshare.cli.inspect import tables
from kubeshare.cli.inspect.usage import InspectedNode, NodeUsage, usage
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.resources import NODES, Resource

if TYPE_CHECKING:
    from kubeshare.kube.client.client import Client

T = TypeVar("T")

COMPLETION_SECONDS: Final = 3.0
"""The most that the completion of a name waits for the cluster."""

_NODES = NODES.into(InspectedNode)


class NoNodeError(Exception):
    """There is no node of that name."""

    exit_code = 1


def _complete_node(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """The gpushare nodes whose names begin so; none if the cluster cannot be read soon."""
    try:
        nodes = asyncio.run(_read_soon(ctx.params.get("kubeconfig"), ctx.params.get("context")))
    except Exception:  # noqa: BLE001 - whoever presses Tab gets no message
        return []
    return [node.name for node in nodes if node.name.startswith(incomplete)]


@click.command(epilog="\b\nExample:\n  kubeshare inspect -o json | jq .allocated")
@click.argument("node", required=False, shell_complete=_complete_node)
@click.option("-d", "--details", is_flag=True, help="Show the pods of each node.")
@click.option(
    "-o", "--output", type=click.Choice(["table", "wide", "json", "yaml"]), default="table"
)
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="By default $KUBECONFIG.")
@click.option("--context", help="A context of the kubeconfig; by default its current one.")
def inspect(
    node: str | None, *, details: bool, output: str, kubeconfig: str | None, context: str | None
) -> None:
    """Show how much GPU memory of each gpushare node, or of NODE, is allocated.

    On nodes whose GPUs KubeShare owns it counts what pods hold; on nodes of Alibaba's own
    gpushare it reads the annotations of the pods. PENDING are pods without a GPU.
    """
    nodes = asyncio.run(_read(node, kubeconfig, context))
    if output in ("json", "yaml"):
        fields = as_fields(nodes)
        text = json.dumps(fields) if output == "json" else yaml.safe_dump(fields, sort_keys=False)
        click.echo(text.rstrip("\n"))
    elif details:
        click.echo(tables.details(nodes))
    else:
        click.echo(tables.summary(nodes, wide=output == "wide"))


async def _read(node: str | None, kubeconfig: str | None, context: str | None) -> list[NodeUsage]:
    # lightkube takes 150 ms to import, which `--help` does not pay.
    from kubeshare.kube.client.client import Client  # noqa: PLC0415

    async with Client.connect(kubeconfig, context) as client:
        return await read(client, node)


async def _read_soon(kubeconfig: str | None, context: str | None) -> list[NodeUsage]:
    async with asyncio.timeout(COMPLETION_SECONDS):
        return await _read(None, kubeconfig, context)


async def read(client: "Client", node: str | None = None) -> list[NodeUsage]:
    """Read the usage of one gpushare node, or of all.

    Raises:
        NoNodeError: there is no such node.
        ApiError: the cluster cannot be read.
    """
    try:
        nodes = [await client.get(_NODES, node)] if node else (await client.list(_NODES)).items
    except NotFoundError as error:
        raise NoNodeError(f"there is no node {node}") from error
    fields = f"spec.nodeName={node}" if node else ""
    pods = (await client.list(PODS, fields=fields)).items
    vgpus = await _ours(client, VGPUS.into(VGPU), f"spec.nodeName={node}" if node else "")
    gpunodes = await _ours(client, GPUNODES.into(GPUNode))
    return usage(nodes, pods, vgpus, gpunodes)


async def _ours(client: "Client", resource: Resource[T], fields: str = "") -> Sequence[T]:
    """All objects of a kind of KubeShare's; none on a cluster without it."""
    try:
        return (await client.list(resource, fields=fields)).items
    except NotFoundError:
        return ()


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
