"""`kubeshare migrate`: moves a cluster to KubeShare under its running pods."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import yaml

from kubeshare.cli.migrate.cluster_reader import read_cluster
from kubeshare.cli.migrate.going_back import GivenBack, give_back
from kubeshare.cli.migrate.model import Plan
from kubeshare.cli.migrate.modes import checked, show, with_modes
from kubeshare.cli.migrate.output import (
    SYSTEMS,
    given_back_fields,
    given_back_text,
    plan_fields,
    plan_text,
)
from kubeshare.cli.migrate.planning import plan
from kubeshare.cli.migrate.published.command import command as published
from kubeshare.cli.migrate.recording import Say, record_pods
from kubeshare.dialects.scheduler_policy import configuration_of

if TYPE_CHECKING:
    from kubeshare.kube.client.client import Client

MAX_FILE_BYTES: Final = 1 << 20
"""The largest Policy file that is read."""

Answer = Plan | list[GivenBack]


class PolicyFileError(ValueError):
    """The file is no Policy."""


@click.group(epilog="\b\nExample:\n  kubeshare migrate gpushare --plan")
def migrate() -> None:
    """Move a cluster of another system, or of an earlier KubeShare; its pods run on."""


def _command(system: str) -> click.Command:
    """The command that moves the nodes of one system."""

    @click.command(
        name=system,
        help=f"Move NODE, or all nodes of {system}, to KubeShare, and no pod is touched.",
        epilog=f"\b\nExample:\n  kubeshare migrate {system} --plan -o json | jq .nodes[].problems",
    )
    @click.argument("nodes", nargs=-1, metavar="[NODE]...")
    @with_modes(
        apply="Cordon and label the nodes, and record what their pods use. May be repeated.",
        back="Undo --apply: remove these records, so that the nodes are given back.",
    )
    def command(
        nodes: tuple[str, ...],
        mode: str | None,
        output: str,
        kubeconfig: str | None,
        context: str | None,
    ) -> int:
        answer = asyncio.run(_connect(system, checked(mode), nodes, kubeconfig, context))
        text, fields, code = formatted(system, answer)
        show(text, fields, output)
        return code

    return command


async def _connect(
    system: str, mode: str, nodes: tuple[str, ...], kubeconfig: str | None, context: str | None
) -> Answer:
    # lightkube takes 150 ms to import, which `--help` does not pay.
    from kubeshare.kube.client.client import Client  # noqa: PLC0415

    async with Client.connect(kubeconfig, context) as client:
        return await perform(client, system, mode, nodes, lambda line: click.echo(line, err=True))


async def perform(
    client: "Client", system: str, mode: str, nodes: tuple[str, ...], say: Say
) -> Answer:
    """Do what ``--plan``, ``--apply`` or ``--back`` says, and return the outcome.

    Raises:
        MigrationError: a node is not there, or another program has not done its part.
        ApiError: the cluster cannot be reached, or refuses.
    """
    family = SYSTEMS[system]
    if mode == "apply":
        return await record_pods(client, family, nodes, say)
    if mode == "back":
        return await give_back(client, family, nodes, say)
    return plan(family, await read_cluster(client, nodes), nodes)


def formatted(system: str, answer: Answer) -> tuple[str, dict[str, Any], int]:
    """The outcome as text and as fields, and the exit code: 1 where a person has to do more."""
    if isinstance(answer, Plan):
        return plan_text(system, answer), plan_fields(system, answer), int(answer.has_problems)
    code = int(any(node.sharing for node in answer))
    return given_back_text(system, answer), given_back_fields(system, answer), code


for _system in SYSTEMS:
    migrate.add_command(_command(_system))
migrate.add_command(published)


@migrate.command(
    "scheduler-policy",
    epilog="\b\nExample:\n  kubeshare migrate scheduler-policy policy.json > kube-scheduler.yaml",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def scheduler_policy(file: Path) -> int:
    """Print the kube-scheduler configuration for a Policy FILE of Kubernetes 1.22 or earlier.

    The extenders are translated. What cannot be is named on standard error, and the exit code
    is 1.
    """
    if file.stat().st_size > MAX_FILE_BYTES:
        raise PolicyFileError(f"{file}: is larger than {MAX_FILE_BYTES >> 20} MiB")
    try:
        policy = yaml.safe_load(file.read_text())
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise PolicyFileError(f"{file}: is neither JSON nor YAML: {error}") from None
    configuration, left = configuration_of(policy)
    click.echo(yaml.safe_dump(configuration, sort_keys=False).rstrip("\n"))
    for line in left:
        click.echo(f"not translated: {line}", err=True)
    return int(bool(left))
