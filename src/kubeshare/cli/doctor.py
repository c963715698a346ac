"""``kubeshare doctor``: checks a cluster or a node; says what mends it."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubeshare.cli.output import coloured, output_option
from kubeshare.core.errors import InvalidValueError
from kubeshare.install.checks.finding import Finding, Level, failed, run

if TYPE_CHECKING:
    from kubeshare.kube.client.client import Client

_COLOURS = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red"}


@click.command(
    epilog="\b\nExamples:\n  kubeshare doctor\n  kubeshare doctor -o json | jq .findings\n"
    "  kubectl debug node/NODE -it --profile=sysadmin --image=YOUR/kubeshare -- \\\n"
    "    python3 -m kubeshare.cli.main doctor --node --root /host"
)
@click.option("--node", is_flag=True, help="Check the node that this runs on, from its files.")
@click.option(
    "--root",
    default="/",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="With --node: where the node's file system is.",
)
@output_option("table", "json")
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="By default $KUBECONFIG.")
@click.option("--context", help="A context of the kubeconfig; by default its current one.")
def doctor(
    *, node: bool, root: Path, output: str, kubeconfig: str | None, context: str | None
) -> int:
    """Check all that KubeShare needs, on a cluster or with --node on a node.

    Before an installation it says whether the cluster can have KubeShare, afterwards also
    whether it is whole and at work. The exit code is 1 when a check fails, and 3 when the
    cluster does not answer.
    """
    if node:
        found = examine_node(root)
    elif root != Path("/"):
        raise InvalidValueError("--root", "is for a node: add --node")
    else:
        found = asyncio.run(_examine(kubeconfig, context))
    click.echo(as_json(found) if output == "json" else _as_table(found))
    return 1 if failed(found) else 0


def examine_node(root: Path) -> list[Finding]:
    """Check a node whose file system is below a folder."""
    from kubeshare.install.checks.node import ATTACHMENT, NODE  # noqa: PLC0415 - for `--help`
    from kubeshare.install.checks.node_reader import read_node  # noqa: PLC0415

    facts = read_node(root)
    found = run(NODE, facts, facts.unread)
    if facts.installed:
        return [*found, *run(ATTACHMENT, facts, facts.unread)]
    return [*found, _not_installed("on this node")]


async def examine(client: "Client") -> list[Finding]:
    """Check a cluster.

    Raises:
        UnreachableError: the API server does not answer.
        ApiError: it does not say its version.
    """
    from kubeshare.install import manifests  # noqa: PLC0415 - for `--help`
    from kubeshare.install.checks.cluster_reader import (  # noqa: PLC0415
        read_installation,
        read_platform,
    )
    from kubeshare.install.checks.installation import INSTALLATION  # noqa: PLC0415
    from kubeshare.install.checks.platform import PLATFORM  # noqa: PLC0415
    from kubeshare.kube.clock import utc_now  # noqa: PLC0415

    wanted = manifests.load(manifests.Options())
    platform = await read_platform(client, wanted, utc_now)
    found = run(PLATFORM, platform, platform.unread)
    now = platform.server.now or utc_now()
    installation = await read_installation(client, wanted, platform, now)
    if installation is None:
        return [*found, _not_installed("on this cluster")]
    return [*found, *run(INSTALLATION, installation, installation.unread)]


async def _examine(kubeconfig: str | None, context: str | None) -> list[Finding]:
    # lightkube takes 150 ms to import, which `--help` does not pay.
    from kubeshare.kube.client.client import Client  # noqa: PLC0415

    async with Client.connect(kubeconfig, context) as client:
        return await examine(client)


def _not_installed(where: str) -> Finding:
    return Finding(
        check="KubeShare",
        level=Level.WARN,
        seen=f"it is not installed {where}",
        fix="kubeshare install --image IMAGE",
    )


def as_json(found: Sequence[Finding]) -> str:
    """The findings as one JSON object, which stays stable."""
    findings = [
        {"check": each.check, "level": each.level, "seen": each.seen, "fix": each.fix}
        for each in found
    ]
    return json.dumps({"ok": not failed(found), "findings": findings})


def _as_table(found: Sequence[Finding]) -> str:
    width = max(len(each.check) for each in found)
    lines = []
    for each in found:
        level = f"{each.level:<4}"
        shown = coloured(level, _COLOURS[each.level])
        lines.append(f"{each.check:<{width}}  {shown}  {each.seen}")
        if each.fix:
            lines.append(f"{'':<{width}}        to mend: {each.fix}")
    bad = len(failed(found))
    lines.append(
        f"{bad} of {len(found)} checks fail" if bad else f"{len(found)} checks, none fails"
    )
    return "\n".join(lines)
