"""The command `kubeshare get`."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import Struct

from kubeshare.cli.get.kinds import ALIASES, KINDS, Kind
from kubeshare.cli.get.listing import Listed, Table, as_csv, as_json, as_tables, as_yaml
from kubeshare.cli.output import output_option
from kubeshare.client.watching import Selection, changes
from kubeshare.explain.errors import NotInstalledError
from kubeshare.kube.client.errors import ForbiddenError, NotFoundError
from kubeshare.kube.clock import utc_now

if TYPE_CHECKING:
    from kubeshare.kube.client.client import Client

ALL: Final = "all"
FORMATS: Final = ("table", "wide", "json", "yaml", "csv")
WATCHED: Final = ("table", "wide", "json")


class Options(Struct, frozen=True, kw_only=True):
    """What to show."""

    kinds: tuple[Kind, ...]
    namespace: str | None = None
    all_namespaces: bool = False
    labels: str = ""
    output: str = "table"


@click.command(
    epilog="\b\nExamples:\n  kubeshare get -A\n  kubeshare get vgpus -o wide\n"
    "  kubeshare get sharepods -l app=train --watch\n"
    "  kubeshare get sharepods -A -o json | jq '.items[] | select(.ready | not)'"
)
@click.argument("kind", type=click.Choice([*KINDS, *ALIASES, ALL]), default=ALL, metavar="[KIND]")
@click.option("-n", "--namespace", help="Of SharePods.  [default: that of the kubeconfig]")
@click.option("-A", "--all-namespaces", is_flag=True, help="SharePods of all namespaces.")
@click.option("-l", "--selector", default="", help="Labels, such as app=train,tier in (x, y).")
@output_option(*FORMATS)
@click.option("-w", "--watch", is_flag=True, help="Go on with each change, until Ctrl-C.")
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="By default $KUBECONFIG.")
@click.option("--context", help="A context of the kubeconfig; by default its current one.")
def get(  # noqa: PLR0913 - one argument an option
    kind: str,
    *,
    namespace: str | None,
    all_namespaces: bool,
    selector: str,
    output: str,
    watch: bool,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """List SharePods, vGPUs and nodes: KIND is sharepods, vgpus, nodes or all.

    WHY is the reason of the first condition that does not hold. JSON, YAML and CSV have numbers
    and full lists; their fields are stable. With --watch each change is one more line, and of a
    deleted object one with the phase Deleted.
    """
    name = ALIASES.get(kind, kind)
    if name == ALL and (watch or output == "csv"):
        what = "--watch follows" if watch else "-o csv has the columns of"
        raise click.UsageError(f"{what} one kind: give {', '.join(KINDS)}")
    if watch and output not in WATCHED:
        raise click.UsageError(f"--watch prints {', '.join(WATCHED)}, not {output}")
    options = Options(
        kinds=tuple(KINDS.values()) if name == ALL else (KINDS[name],),
        namespace=namespace,
        all_namespaces=all_namespaces,
        labels=selector,
        output=output,
    )
    try:
        asyncio.run(_get(options, kubeconfig, context, watch=watch))
    except KeyboardInterrupt:
        if not watch:  # which ends so
            raise


async def _get(
    options: Options, kubeconfig: str | None, context: str | None, *, watch: bool
) -> None:
    # lightkube takes 150 ms to import, which `--help` does not pay.
    from kubeshare.kube.client.client import Client  # noqa: PLC0415

    async with Client.connect(kubeconfig, context) as client:
        await (follow if watch else show)(client, options)


async def show(client: "Client", options: Options) -> None:
    """Print what there is; of several kinds, those that the user may read.

    Raises:
        NotInstalledError: the cluster has no KubeShare.
        ApiError: the cluster cannot be read.
    """
    found: list[Listed] = []
    for kind in options.kinds:
        try:
            found.append(await _listed(client, kind, options))
        except ForbiddenError as error:
            if len(options.kinds) == 1 or (kind is options.kinds[-1] and not found):
                raise
            click.echo(f"without {kind.title}s, which you may not read ({error})", err=True)
    if options.output == "csv":
        click.echo(as_csv(found[0]))
    elif options.output in ("json", "yaml"):
        click.echo(as_json(found) if options.output == "json" else as_yaml(found))
    else:
        wide, everywhere = options.output == "wide", options.all_namespaces
        lines = as_tables(found, wide=wide, all_namespaces=everywhere, now=utc_now())
        click.echo("\n".join(lines))


async def follow(client: "Client", options: Options) -> None:
    """Print what there is, then each change.

    Raises:
        NotInstalledError: the cluster has no KubeShare.
        ApiError: the cluster cannot be read.
    """
    [kind] = options.kinds
    views = await _list(client, kind, options)
    table: Table | None = None
    if options.output != "json":
        wide, everywhere = options.output == "wide", options.all_namespaces
        table = Table(kind, wide=wide, all_namespaces=everywhere)
        click.echo("\n".join(table.lines([kind.fields(each) for each in views], utc_now())))
    else:
        for each in views:
            click.echo(json.dumps({"type": "ADDED", "object": kind.fields(each)}))
    where = Selection(_namespace(client, kind, options), options.labels)
    async with aclosing(changes(client, kind.resource, where, views)) as found:
        async for change, view in found:
            fields = dict(kind.fields(view))
            if table is None:
                click.echo(json.dumps({"type": change, "object": fields}))
                continue
            if change == "DELETED":
                fields |= {key: "Deleted" for key in ("phase", "mode") if key in fields}
            click.echo(table.later(fields, utc_now()))


async def _listed(client: "Client", kind: Kind, options: Options) -> Listed:
    return Listed(kind, [kind.fields(each) for each in await _list(client, kind, options)])


async def _list(client: "Client", kind: Kind, options: Options) -> Sequence[Any]:
    try:
        where = _namespace(client, kind, options)
        found = await client.list(kind.resource, where, labels=options.labels)
    except NotFoundError as error:
        raise NotInstalledError from error
    return sorted(found.items, key=lambda each: each.metadata.key)


def _namespace(client: "Client", kind: Kind, options: Options) -> str:
    if options.all_namespaces or not kind.namespaced:
        return ""
    return options.namespace or client.namespace
