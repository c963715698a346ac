"""``kubeshare install``: installs KubeShare on the cluster of the kubeconfig."""

import asyncio

import click

from kubeshare.api.types.constants import NAMESPACE
from kubeshare.core.errors import InvalidValueError
from kubeshare.install import manifests, rollout


@click.command(epilog="Example: kubeshare install --image registry.example/kubeshare:0.1.0")
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="By default $KUBECONFIG.")
@click.option("--context", help="A context of the kubeconfig; by default its current one.")
@click.option("--image", default="kubeshare:dev", show_default=True, help="Image of all programs.")
@click.option(
    "--driver-root",
    default="/run/nvidia/driver",
    show_default=True,
    help="Folder of a node that has the GPU driver: '/' where it is installed on the host.",
)
@click.option(
    "--extender", is_flag=True, help="Install the scheduler extender of gpushare and Gaia as well."
)
@click.option(
    "--only-namespace",
    "only_namespaces",
    multiple=True,
    metavar="NAME",
    help="Only this namespace may use shares; may be given several times. It is created if it "
    f"does not exist, and gets a ResourceQuota of {manifests.MAX_SHAREPODS} SharePods, unless it "
    "has one named kubeshare.",
)
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=120.0,
    show_default=True,
    help="Seconds for each part to come up.",
)
@click.option("--dry-run", is_flag=True, help="Print the manifests and apply nothing.")
@click.option(
    "--check",
    is_flag=True,
    help="Only say whether this version can replace the installed one, as Helm's chart asks before "
    "an upgrade or a rollback.",
)
def install(  # noqa: PLR0913 - one argument an option
    kubeconfig: str | None,
    context: str | None,
    image: str,
    driver_root: str,
    wait: float,
    *,
    extender: bool,
    only_namespaces: tuple[str, ...],
    dry_run: bool,
    check: bool,
) -> None:
    """Install KubeShare on a cluster, or bring it up to date.

    Kubernetes 1.36 or later, and the GPUs known to it as nvidia.com/gpu. KubeShare runs in
    namespace kubeshare-system, or in that of $KUBESHARE_NAMESPACE, which every command reads.
    """
    if not image:
        raise InvalidValueError("--image", "is empty: say where the nodes find the image")
    if not driver_root.startswith("/"):
        raise InvalidValueError("--driver-root", f"{driver_root!r} is not a whole path, as in /")
    if "" in only_namespaces:
        raise InvalidValueError("--only-namespace", "is empty: say which namespace")
    if NAMESPACE in only_namespaces:
        raise InvalidValueError(
            "--only-namespace", f"{NAMESPACE} is for KubeShare's own pods: say another"
        )
    options = manifests.Options(
        image=image,
        driver_root=driver_root,
        extender=extender,
        only_namespaces=only_namespaces or None,
    )
    loaded = manifests.load(options)
    if dry_run:
        import yaml  # noqa: PLC0415

        click.echo(yaml.safe_dump_all(loaded, sort_keys=False), nl=False)
        return
    if check:
        asyncio.run(_check(loaded, kubeconfig, context))
        click.echo("This version understands everything that is in the cluster.")
        return
    asyncio.run(_install(loaded, kubeconfig, context, wait))
    click.echo("KubeShare is installed. Next: kubectl get gpunodes")


async def _install(
    loaded: list[manifests.Manifest], kubeconfig: str | None, context: str | None, wait: float
) -> None:
    # lightkube takes 150 ms to import, which `--help` and `--dry-run` do not pay.
    from kubeshare.kube.client.client import Client  # noqa: PLC0415

    async with Client.connect(kubeconfig, context) as client:
        await rollout.install(client, loaded, deadline=wait, say=click.echo)


async def _check(
    loaded: list[manifests.Manifest], kubeconfig: str | None, context: str | None
) -> None:
    from kubeshare.kube.client.client import Client  # noqa: PLC0415 - as above

    async with Client.connect(kubeconfig, context) as client:
        await rollout.check(client, loaded)
