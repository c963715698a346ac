"""The command ``kubeshare explain``, for SharePods and plain pods.

It reads what the scheduler reads and asks the same functions, so it says what the
scheduler would say at this moment. It changes nothing.
"""

import asyncio
import json
from collections.abc import Iterator

import click

from kubeshare.cli.decision_output import as_fields, as_lines
from kubeshare.client.explain.finding import Finding, find_out
from kubeshare.client.explain.gang import GangFinding
from kubeshare.core.decision import Decision
from kubeshare.core.errors import UnknownPolicyError
from kubeshare.core.gang.nearness import WORDS
from kubeshare.core.policies import Policy, policy


@click.command(
    epilog="\b\nExamples:\n  kubeshare explain train-1 -n research\n"
    "  kubeshare explain pod/train-1 -o json | jq .change"
)
@click.argument("name", metavar="[sharepod/|pod/]NAME")
@click.option("-n", "--namespace", help="By default that of the kubeconfig.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@click.option("--policy", "policy_name", default="locality", show_default=True, help="Decides.")
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="By default $KUBECONFIG.")
@click.option("--context", help="A context of the kubeconfig; by default its current one.")
def explain(  # noqa: PLR0913 - one argument an option
    name: str,
    *,
    namespace: str | None,
    output: str,
    policy_name: str,
    kubeconfig: str | None,
    context: str | None,
) -> int:
    """Say where a SharePod or pod NAME is or would go, and why not elsewhere.

    For a pending one it also says which holders' departure would make room. The exit code is
    1 when it has no GPU and would get none.
    """
    try:
        chosen = policy(policy_name)
    except UnknownPolicyError as error:
        raise click.BadParameter(str(error), param_hint="--policy") from error
    finding = asyncio.run(_explain(chosen, name, namespace, kubeconfig, context))
    click.echo(_as_json(finding) if output == "json" else _as_text(finding))
    return 0 if finding.held or finding.decision.outcome == "bound" else 1


async def _explain(
    chosen: Policy, name: str, namespace: str | None, kubeconfig: str | None, context: str | None
) -> Finding:
    # lightkube takes 150 ms to import, which `--help` does not pay.
    from kubeshare.kube.client.client import Client  # noqa: PLC0415

    async with Client.connect(kubeconfig, context) as client:
        return await find_out(client, chosen, name, namespace or client.namespace)


def _as_json(finding: Finding) -> str:
    known: dict[str, object] = {"name": finding.name, "held": list(finding.held)}
    known |= as_fields(finding.decision, finding.change)
    if finding.gang is not None:
        known["gang"] = {
            "name": finding.gang.name,
            "needs": finding.gang.needs,
            "there": finding.gang.there,
            "placed": finding.gang.placed,
            "timeoutSeconds": finding.gang.timeout,
            "near": finding.gang.near.near if finding.gang.near else None,
            "members": dict(finding.gang.members),
        }
    if finding.preemption:
        known["preemption"] = finding.preemption
    if finding.degraded:
        known["degraded"] = dict(finding.degraded)
    if finding.priority_note:
        known["priorityNote"] = finding.priority_note
    return json.dumps(known)


def _as_text(finding: Finding) -> str:
    head = f"{finding.name}:"
    if finding.held:
        head = f"{head} has {', '.join(finding.held)}; placed now it would be"
    lines = [*as_lines(head, finding.decision, finding.change)]
    lines += [f"    {path} is degraded: {words}" for path, words in finding.degraded.items()]
    lines += [f"    {words}" for words in _new_gpus(finding.decision)]
    lines += [f"    {words}" for words in (finding.preemption, finding.priority_note) if words]
    return "\n".join([*lines, *(_of_gang(finding.gang) if finding.gang else ())])


def _new_gpus(decision: Decision) -> Iterator[str]:
    """Who chooses the physical GPU of each new vGPU."""
    for device in decision.new:
        if device.uuid:
            yield f"{device.path}: its GPU is {device.uuid}, as the policy chooses"
        else:
            yield f"{device.path}: its GPU is the choice of the device plugin on {device.node}"


def _of_gang(gang: GangFinding) -> Iterator[str]:
    start = "" if gang.timeout is None else f"; has {gang.timeout:g} s to start once it is placed"
    near = WORDS[gang.near.near] if gang.near else ""
    yield (
        f"gang {gang.name}: needs {gang.needs} members{near}, {gang.there} are there, "
        f"{gang.placed} are placed{start}"
    )
    for name, where in gang.members.items():
        yield f"    {name} {where}"
