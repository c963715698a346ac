"""``kubeshare uninstall``: removes KubeShare from the cluster of the kubeconfig."""

import asyncio

import click

from kubeshare.install import manifests
from kubeshare.install.readiness import WORKLOADS


@click.command(epilog="Example: kubeshare uninstall --wait 600")
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="By default $KUBECONFIG.")
@click.option("--context", help="A context of the kubeconfig; by default its current one.")
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="Seconds to wait for pods that share a GPU to end by themselves.",
)
@click.option(
    "--programs-only",
    is_flag=True,
    help="Leave what does not run, such as policies, to the tool that applied it, as Helm.",
)
def uninstall(
    kubeconfig: str | None, context: str | None, wait: float, *, programs_only: bool
) -> int:
    """Remove KubeShare from a cluster, without ending a running pod.

    SharePods are deleted and their pods run on. While pods share a GPU, the programs
    that enforce their shares stay, and the exit code is 1: run it again when the pods
    have ended.
    """
    running = asyncio.run(_uninstall(kubeconfig, context, wait, programs_only=programs_only))
    for pod in running:
        click.echo(f"still runs on a share of a GPU: pod {pod}")
    if running:
        click.echo(
            "The node programs, the vGPUs and their placeholders stay for these: "
            "run this again when they have ended."
        )
    return 1 if running else 0


async def _uninstall(
    kubeconfig: str | None, context: str | None, wait: float, *, programs_only: bool
) -> list[str]:
    # lightkube takes 150 ms to import, which `--help` does not pay.
    from kubeshare.install.uninstall import DEVICE_MANAGER  # noqa: PLC0415
    from kubeshare.install.uninstall import uninstall as remove  # noqa: PLC0415
    from kubeshare.kube.client.client import Client  # noqa: PLC0415

    async with (
        Client.connect(kubeconfig, context) as client,
        Client.connect(kubeconfig, context, impersonate=DEVICE_MANAGER) as device_manager,
    ):
        loaded = manifests.load(manifests.Options(extender=True, only_namespaces=()))
        if programs_only:
            loaded = [one for one in loaded if one["kind"] in WORKLOADS]
        return await remove(
            client, device_manager, loaded, wait=wait, deadline=120.0, say=click.echo
        )
