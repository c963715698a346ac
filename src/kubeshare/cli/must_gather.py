"""``kubeshare must-gather``: collects what finds a fault in a cluster."""

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

import kubeshare
from kubeshare.cli.doctor import as_json, examine
from kubeshare.core.errors import InvalidValueError

if TYPE_CHECKING:
    from kubeshare.install.must_gather.archive import Archive
    from kubeshare.kube.client.client import Client

_MIB = 1 << 20


@click.command(
    "must-gather",
    epilog="\b\nExamples:\n  kubeshare must-gather -o kubeshare.tar.gz\n"
    "  kubeshare must-gather -o kubeshare.tar.gz --node gpu-7 --node gpu-9",
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="The archive to write, FILE.tar.gz.",
)
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="NAME",
    help="A node whose programs' logs are needed; may be given several times. By default twenty "
    "nodes, first those with a program that fails.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=4096),
    default=256,
    show_default=True,
    help="The most MiB of content.",
)
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="By default $KUBECONFIG.")
@click.option("--context", help="A context of the kubeconfig; by default its current one.")
def must_gather(
    output: Path,
    nodes: tuple[str, ...],
    limit: int,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Collect objects, logs, metrics and findings of KubeShare into an archive.

    It changes nothing and reads no Secrets. Values of variables, and annotations of pods but
    KubeShare's own, are taken out; left-out.txt in the archive says what else is not there.
    """
    if not output.name.endswith(".tar.gz"):
        raise InvalidValueError("--output", f"{output.name!r} does not end with .tar.gz")
    left_out = asyncio.run(_gather(output, nodes, limit * _MIB, kubeconfig, context))
    size = output.stat().st_size / _MIB
    missing = f", without {left_out} things that left-out.txt lists" if left_out else ""
    click.echo(f"{output}: {size:.1f} MiB{missing}")
    click.echo(f"Next: look through it before you hand it on: tar -tzf {output}")


async def _gather(
    output: Path, nodes: tuple[str, ...], limit: int, kubeconfig: str | None, context: str | None
) -> int:
    # lightkube takes 150 ms to import, which `--help` does not pay.
    from kubeshare.install.must_gather.archive import open_archive  # noqa: PLC0415
    from kubeshare.kube.client.client import Client  # noqa: PLC0415

    async with Client.connect(kubeconfig, context) as client:
        with open_archive(output, limit, int(time.time())) as archive:
            await fill(client, archive, nodes)
            return len(archive.left_out)


async def fill(client: "Client", archive: "Archive", nodes: tuple[str, ...]) -> None:
    """Write the findings of ``kubeshare doctor``, versions, and all of ``gather``.

    Raises:
        UnreachableError: the API server does not answer.
        ApiError: it does not say its version.
    """
    from kubeshare.install.must_gather import gathering  # noqa: PLC0415 - for `--help`

    answer = await client.read("/version", limit=_MIB)
    archive.add("versions/kubernetes.json", answer.body)
    archive.add("versions/kubeshare.txt", f"{kubeshare.__version__}\n".encode())
    archive.add("doctor.json", as_json(await examine(client)).encode())
    await gathering.gather(client, archive, nodes)
    archive.close(gathering.NEVER)
