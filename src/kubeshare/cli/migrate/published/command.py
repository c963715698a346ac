"""``kubeshare migrate kubeshare``: replaces versions 1 and 2 of KubeShare."""

import asyncio
from typing import TYPE_CHECKING

import click

from kubeshare.cli.migrate.modes import checked, show, with_modes
from kubeshare.cli.migrate.published.output import Answer, formatted
from kubeshare.cli.migrate.published.reading import read_former
from kubeshare.cli.migrate.published.replacing import replace_former
from kubeshare.cli.migrate.published.restoring import restore_former
from kubeshare.cli.migrate.recording import Say

if TYPE_CHECKING:
    from kubeshare.kube.client.client import Client


@click.command(
    name="kubeshare",
    epilog="\b\nExample:\n  kubeshare migrate kubeshare --plan -o json | jq .problems",
)
@with_modes(
    apply="Stop the former programs, and replace their CRD under its SharePods. May be repeated.",
    back="Undo --apply: start them again, with a CRD that takes their status.",
)
def command(mode: str | None, output: str, kubeconfig: str | None, context: str | None) -> int:
    """Replace versions 1 and 2 of KubeShare; no pod with a share is ended.

    Before `kubeshare install`.
    """
    answer = asyncio.run(_connect(checked(mode), kubeconfig, context))
    text, fields, code = formatted(answer)
    show(text, fields, output)
    return code


async def _connect(mode: str, kubeconfig: str | None, context: str | None) -> Answer:
    # lightkube takes 150 ms to import, which `--help` does not pay.
    from kubeshare.kube.client.client import Client  # noqa: PLC0415

    async with Client.connect(kubeconfig, context) as client:
        return await perform(client, mode, lambda line: click.echo(line, err=True))


async def perform(client: "Client", mode: str, say: Say) -> Answer:
    """Do what ``--plan``, ``--apply`` or ``--back`` says, and return the outcome.

    Raises:
        MigrationError: KubeShare is installed already, or something takes too long.
        ApiError: the cluster cannot be reached, or refuses.
    """
    if mode == "apply":
        return await replace_former(client, say)
    if mode == "back":
        return await restore_former(client, say)
    return await read_former(client)
