"""The command ``kubeshare explain``, for SharePods and plain pods."""

import asyncio
import json

import click

from kubeshare.cli.output import output_option
from kubeshare.core.errors import UnknownPolicyError
from kubeshare.core.policies import Policy, policy
from kubeshare.explain.finding import Finding, find_out
from kubeshare.explain.formats import finding_fields, finding_text


@click.command(
    epilog="\b\nExamples:\n  kubeshare explain train-1 -n research\n"
    "  kubeshare explain pod/train-1 -o json | jq .change"
)
@click.argument("name", metavar="[sharepod/|pod/]NAME")
@click.option("-n", "--namespace", help="By default that of the kubeconfig.")
@output_option("text", "json")
@click.option("--policy", "policy_name", help="Decides.  [default: that of the scheduler]")
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="By default $KUBECONFIG.")
@click.option("--context", help="A context of the kubeconfig; by default its current one.")
def explain(  # noqa: PLR0913 - one argument an option
    name: str,
    *,
    namespace: str | None,
    output: str,
    policy_name: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> int:
    """Say where a SharePod or pod NAME is or would go, and why not elsewhere.

    For a pending one it also says which holders' departure would make room. The exit code is
    1 when it has no GPU and would get none.
    """
    try:
        given = policy(policy_name) if policy_name else None
    except UnknownPolicyError as error:
        raise click.BadParameter(str(error), param_hint="--policy") from error
    finding = asyncio.run(_explain(given, name, namespace, kubeconfig, context))
    click.echo(json.dumps(finding_fields(finding)) if output == "json" else finding_text(finding))
    return 0 if finding.held or finding.decision.outcome == "bound" else 1


async def _explain(
    given: Policy | None,
    name: str,
    namespace: str | None,
    kubeconfig: str | None,
    context: str | None,
) -> Finding:
    # lightkube takes 150 ms to import, which `--help` does not pay.
    from kubeshare.kube.client.client import Client  # noqa: PLC0415

    async with Client.connect(kubeconfig, context) as client:
        return await find_out(client, given, name, namespace or client.namespace)
