"""The command ``kubeshare explain``, for SharePods and plain pods.

It reads what the scheduler reads and asks the same functions, so it says what the
scheduler would say at this moment. It changes nothing.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.api.sharepods import original_demand
from kubeshare.api.types.v1 import SHAREPODS, GPUSpec
from kubeshare.api.vgpu_readiness import failure
from kubeshare.cli.decision_output import as_fields, as_lines
from kubeshare.cli.explain.cluster_reader import Seen, read
from kubeshare.cli.explain.gang import GangFinding, controller_of, of_gang, read_members
from kubeshare.cli.explain.preemption import preemption
from kubeshare.core.decision import Decision, device_names
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.explain import Change
from kubeshare.core.errors import InvalidValueError, UnknownPolicyError
from kubeshare.core.gang import near_to
from kubeshare.core.gang.nearness import WORDS
from kubeshare.core.natural_sort import natural
from kubeshare.core.policies import Policy, policy
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.clock import utc_now
from kubeshare.kube.resources import PODS, Raw, Resource
from kubeshare.scheduler.scheduling import decide, helpful_change, restrict_nodes

if TYPE_CHECKING:
    from kubeshare.kube.client.client import Client

# A SharePod's pod has its name, and what it asks for stands in the SharePod.
_EITHER = (SHAREPODS, PODS)
_KINDS: Final = {
    "": _EITHER,
    "pod": _EITHER,
    "po": _EITHER,
    "sharepod": (SHAREPODS,),
    "shp": (SHAREPODS,),
}


class NothingToExplainError(ValueError):
    """The object does not exist, or does not ask for a share of a GPU."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What `explain` prints of one SharePod or pod.

    Attributes:
        name: ``namespace/name``.
        held: ``node/GPUID`` of each GPU of which it holds a share; empty while it is pending.
        decision: where it would be placed now, without what it holds.
        change: the smallest change that would place it, while it is pending.
        gang: the state of its gang, if it has one.
        preemption: the pods that it would preempt, or why none; ``""`` where it is not pending.
        degraded: what is wrong with GPUs of ``held``, by their path.
        priority_note: why its priority is not that of its label; ``""`` if it is.
    """

    name: str
    held: tuple[str, ...] = ()
    decision: Decision
    change: Change | None = None
    gang: GangFinding | None = None
    preemption: str = ""
    degraded: Mapping[str, str] = {}
    priority_note: str = ""


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


async def find_out(client: "Client", chosen: Policy, name: str, namespace: str) -> Finding:
    """Read a cluster and compute what the scheduler would answer for one SharePod or pod.

    Args:
        client: the cluster.
        chosen: the policy that decides.
        name: ``NAME``, ``sharepod/NAME`` or ``pod/NAME``.
        namespace: of it.

    Raises:
        NothingToExplainError: there is none of that name, or it asks for nothing of a GPU.
        ApiError: the cluster cannot be read.
    """
    resource, raw = await _read(client, name, namespace)
    title = f"{namespace}/{raw['metadata']['name']}"
    seen = await read(client, chosen, namespace, utc_now())
    try:
        demand, standing = seen.demand(resource, raw), seen.standing(raw)
        if demand is None:
            raise NothingToExplainError(f"{title} asks for no share of a GPU")
        gang = standing.gang
        if gang is None:
            members = []
        else:
            members = await read_members(client, seen, gang, namespace, controller_of(raw))
        known = any(member.demand.uid == demand.uid for member in members)
        together = of_gang(seen, members, demand.uid) if known else None
    except InvalidValueError as error:
        reasons = {error.field: error.message}
        return Finding(
            name=title, decision=Decision(outcome="rejected", reasons=reasons, field=error.field)
        )
    if together is not None and together.decision is not None:
        held: tuple[str, ...] = ()
        decision, change = together.decision, together.change
        claim, needed = together.claim, together.needed
    else:
        ask = msgspec.convert(raw["spec"].get("gpu") or {}, GPUSpec)
        where, asked = seen.where(resource, raw, demand), original_demand(ask, demand)
        near = together.near if together else None
        alone = near_to(seen.policy, near) if near else seen.policy
        held, decision, change = _alone(seen, alone, asked, where)
        claim, needed = (restrict_nodes(asked, where),), 1
    waits = decision.outcome == "pending" and not held and claim
    return Finding(
        name=title,
        held=held,
        decision=decision,
        change=change,
        gang=together,
        preemption=preemption(
            seen, claim, needed, standing.priority, together.near if together else None
        )
        if waits
        else "",
        degraded=_degraded(seen, demand.uid),
        priority_note=standing.priority_note,
    )


def _degraded(seen: Seen, uid: str) -> dict[str, str]:
    """What is wrong with the vGPUs of which a demand holds a share, by ``node/GPUID``."""
    return {
        f"{vgpu.spec.node_name}/{vgpu.gpuid}": f"{problem.reason}: {problem.message}"
        for vgpu in seen.held_by(uid)
        if (problem := failure(vgpu))
    }


async def _read(
    client: "Client", name: str, namespace: str
) -> tuple[Resource[Raw], Mapping[str, Any]]:
    """Get the object; a bare name is a SharePod's before it is a pod's."""
    kind, _, rest = name.rpartition("/")
    if kind not in _KINDS:
        raise NothingToExplainError(f"{kind} is not a kind to explain: sharepod or pod is")
    if not rest:
        raise NothingToExplainError("the name is missing: give NAME, sharepod/NAME or pod/NAME")
    for resource in _KINDS[kind]:
        try:
            return resource, await client.get(resource, rest, namespace)
        except NotFoundError:
            continue
    raise NothingToExplainError(f"no {kind or 'SharePod or pod'} {rest} in namespace {namespace}")


def _alone(
    seen: Seen, policy: Policy, demand: Demand, where: Eligible
) -> tuple[tuple[str, ...], Decision, Change | None]:
    """Find what a requester without a gang holds, where it would go, and what would help."""
    built = seen.ledger
    held = [built.devices[device_id].path for device_id in built.held_by(demand.uid)]
    change = None
    with built.what_if():
        if held:
            built.release(demand.uid)
        decision = decide(policy, built, demand, where)
        named = device_names(decision, built.devices)
        if decision.outcome == "pending":
            change = helpful_change(policy, built, demand, where)
    decision = msgspec.structs.replace(decision, devices=named)
    return tuple(sorted(held, key=natural)), decision, change


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
