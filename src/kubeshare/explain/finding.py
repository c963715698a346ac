"""Computes what the scheduler would answer for one SharePod or pod.

It reads what the scheduler reads and asks the same functions, so it says what the
scheduler would say at this moment. It changes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.api.sharepods import original_demand
from kubeshare.api.types.v1 import SHAREPODS, GPUSpec
from kubeshare.api.vgpu_readiness import failure
from kubeshare.core.decision import Decision, device_names
from kubeshare.core.demand import Demand
from kubeshare.core.diagnosis.explain import Change
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.gang import near_to
from kubeshare.core.natural_sort import natural
from kubeshare.core.policies import Policy
from kubeshare.explain.cluster_reader import Seen, read
from kubeshare.explain.gang import GangFinding, Member, controller_of, of_gang, read_members
from kubeshare.explain.preemption import preemption
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
        policy_note: that the scheduler's policy is assumed, and why; ``""`` if it is known.
    """

    name: str
    held: tuple[str, ...] = ()
    decision: Decision
    change: Change | None = None
    gang: GangFinding | None = None
    preemption: str = ""
    degraded: Mapping[str, str] = {}
    priority_note: str = ""
    policy_note: str = ""


async def find_out(client: "Client", given: Policy | None, name: str, namespace: str) -> Finding:
    """Read a cluster and compute what the scheduler would answer for one SharePod or pod.

    Args:
        client: the cluster.
        given: the policy that decides; None for the scheduler's.
        name: ``NAME``, ``sharepod/NAME`` or ``pod/NAME``.
        namespace: of it.

    Raises:
        NothingToExplainError: there is none of that name, or it asks for nothing of a GPU.
        NotInstalledError: the cluster has no KubeShare.
        NotAllowedError: some of the cluster may not be read.
        UnknownPolicyError: the scheduler's policy is not installed here.
        ApiError: the cluster cannot be read.
    """
    resource, raw = await _read(client, name, namespace)
    seen = await read(client, given, namespace, utc_now())
    return finding_of(seen, resource, raw, await members_of(client, seen, raw))


async def members_of(client: "Client", seen: Seen, raw: Raw) -> list[Member]:
    """Read the members of the gang of a SharePod or pod, the oldest first; none without a gang.

    Raises:
        ApiError: they cannot be read.
    """
    try:
        gang = seen.standing(raw).gang
    except InvalidValueError:
        return []
    if gang is None:
        return []
    return await read_members(client, seen, gang, raw["metadata"]["namespace"], controller_of(raw))


def finding_of(
    seen: Seen, resource: Resource[Raw], raw: Raw, members: Sequence[Member] = ()
) -> Finding:
    """Compute what the scheduler would answer for one SharePod or pod, which need not exist.

    Args:
        seen: the cluster; it is unchanged afterwards.
        resource: the kind of the object.
        raw: the object, with name, namespace and uid.
        members: those of its gang, the oldest first.

    Raises:
        NothingToExplainError: it asks for nothing of a GPU.
    """
    title = f"{raw['metadata']['namespace']}/{raw['metadata']['name']}"
    try:
        demand, standing = seen.demand(resource, raw), seen.standing(raw)
        if demand is None:
            raise NothingToExplainError(f"{title} asks for no share of a GPU")
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
        policy_note=seen.policy_note,
    )


def _degraded(seen: Seen, uid: str) -> dict[str, str]:
    """What is wrong with the vGPUs of which a demand holds a share, by ``node/GPUID``."""
    return {
        f"{vgpu.spec.node_name}/{vgpu.gpuid}": f"{problem.reason}: {problem.message}"
        for vgpu in seen.held_by(uid)
        if (problem := failure(vgpu))
    }


async def _read(client: "Client", name: str, namespace: str) -> tuple[Resource[Raw], Raw]:
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
