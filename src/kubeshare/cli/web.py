"""The command ``kubeshare web``: a page that shows a cluster."""

import asyncio

import click

from kubeshare.core.errors import UnknownPolicyError
from kubeshare.core.policies import Policy, policy
from kubeshare.kube.logs import configure_logging


class NoServerError(Exception):
    """The page's server is not installed."""

    exit_code = 3


@click.command(epilog="\b\nExamples:\n  kubeshare web\n  kubeshare web -n research --port 8080")
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    help="Show only this namespace; may be given several times. By default all that you may list, "
    "or else that of the kubeconfig.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Listen on this port of 127.0.0.1.  [default: a free one]",
)
@click.option("--policy", "policy_name", help="Decides.  [default: that of the scheduler]")
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="By default $KUBECONFIG.")
@click.option("--context", help="A context of the kubeconfig; by default its current one.")
def web(
    *,
    namespaces: tuple[str, ...],
    port: int,
    policy_name: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Show the cluster on a page: GPUs and their shares, what waits and why.

    The page shows what you may see with your kubeconfig, and changes nothing. Only who has the
    URL that is printed can open it. Ctrl-C ends it.
    """
    try:
        given = policy(policy_name) if policy_name else None
    except UnknownPolicyError as error:
        raise click.BadParameter(str(error), param_hint="--policy") from error
    configure_logging("warning")
    asyncio.run(_serve(given, namespaces, port, kubeconfig, context))


async def _serve(
    given: Policy | None,
    namespaces: tuple[str, ...],
    port: int,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    # lightkube takes 150 ms to import, which `--help` does not pay.
    from kubeshare.kube.client.client import Client  # noqa: PLC0415

    try:
        from kubeshare.web.server import serve  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise NoServerError(
            "the page needs Starlette and uvicorn: run `pip install 'kubeshare[web]'`"
        ) from error
    async with Client.connect(kubeconfig, context) as client:
        await serve(client, given, namespaces, port, cluster=context or "", ready=_print_url)


def _print_url(url: str, _: object) -> None:
    click.echo(f"The page is at {url}")
    click.echo("Only who has this URL can open it. Ctrl-C ends it.", err=True)
