"""`kubeshare usage`: reports who used how much of the GPUs."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import click

from kubeshare.cli.output import output_option
from kubeshare.cli.usage import formats
from kubeshare.client.usage.accounts import Usage, parse_keys, read
from kubeshare.client.usage.period import since as read_since
from kubeshare.core.usage.report import KEYS
from kubeshare.kube.clock import utc_now

FORMATS: Final = {
    "table": formats.as_table,
    "json": formats.as_json,
    "yaml": formats.as_yaml,
    "csv": formats.as_csv,
}


@click.command(epilog="\b\nExample:\n  kubeshare usage --since 7d --by namespace,owner -o csv")
@click.option(
    "--since",
    default="7d",
    show_default=True,
    help="A period (30m, 12h, 7d, 4w), or a date or time (UTC without a zone).",
)
@click.option(
    "--by",
    default="namespace",
    show_default=True,
    help=f"What to sum by, with commas: {', '.join(KEYS)}.",
)
@click.option("-n", "--namespace", default="", help="Only of this one; by default of all.")
@output_option(*FORMATS)
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="By default $KUBECONFIG.")
@click.option("--context", help="A context of the kubeconfig; by default its current one.")
def usage(  # noqa: PLR0913 - the options
    *,
    since: str,
    by: str,
    namespace: str,
    output: str,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Report who used how much of the GPUs.

    Requested is the guaranteed share of GPUs, times its duration. Held is what nobody else could
    be given: the same, or the whole GPU under an exclusion label. Used is the GPU time that was
    charged. The cost is the price of the model, by what was held.
    """
    now = utc_now()
    keys, begin = parse_keys(by), read_since(since, now)
    found = asyncio.run(_read(kubeconfig, context, namespace, keys, begin, now))
    click.echo(FORMATS[output](found))


async def _read(  # noqa: PLR0913, PLR0917 - as `read`, and where
    kubeconfig: str | None,
    context: str | None,
    namespace: str,
    by: Sequence[str],
    since: datetime,
    now: datetime,
) -> Usage:
    # lightkube takes 150 ms to import, which `--help` does not pay.
    from kubeshare.kube.client.client import Client  # noqa: PLC0415

    async with Client.connect(kubeconfig, context) as client:
        return await read(client, namespace, by, since, now)
