"""Decides who owns the GPUs of a node, and says why. Pure.

A node that is asked for becomes owned once nothing else hands out its GPUs: no device plugin and no
DRA driver offers them or parts of them, no pod uses one without KubeShare or may have one by a
claim, and no placeholder may have one that is not known yet. A node that is owned stays so while it
has static vGPUs. They accept holders while nothing else offers the GPUs, and no pod uses a whole
one.

Pods that have parts of its GPUs from the device plugin of gpushare or Gaia stay: on a cordoned node
the static vGPUs are created while that plugin runs, `kubeshare migrate` records what these pods
have as holders, and the vGPUs accept others when all of them are recorded and the plugin is gone.

The exception is a cordoned node, where no other pod gets a GPU. If a DRA driver offers its GPUs,
the vGPUs in use become static while the driver runs, since only that can release the claims of
their placeholders. And when the node is given back, and its device plugin or DRA driver runs again,
the vGPUs in use get placeholders.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kubeshare.api.types.constants import (
    LABEL_DEVICE_PLUGIN,
    LABEL_DRA_PLUGIN,
    LABEL_GPUS,
    MODE_OWNED,
    MODE_SHARED,
    WHOLE_GPU_RESOURCE,
)
from kubeshare.api.types.reasons import Reason
from kubeshare.dialects import families

MAX_NAMES: Final = 5
"""Pods or vGPUs that a message names; more are counted."""

_PODS: Final = ("users", "legacy", "claimants", "claims")
_VGPUS: Final = ("unresolved", "static", "held")


class Facts(Struct, frozen=True, kw_only=True):
    """The facts about a node that decide who owns its GPUs.

    Attributes:
        node: its name.
        requested: whether the administrator wants it to be owned.
        cordoned: whether it is cordoned.
        owned: whether it is, by the record.
        supported: whether its agent can share GPUs without placeholders.
        offered: whole GPUs that its device plugin offers.
        by_claims: whole GPUs that a DRA driver offers.
        parts: the resources by which other device plugins offer parts of its GPUs.
        users: the pods, placeholders aside, that use its GPUs without KubeShare.
        legacy: those with parts of GPUs from the plugin of a manifest family and without holders.
        migrating: whether such pods were being recorded at the last decision.
        used: the whole GPUs that such pods have, as the kubelet reports.
        claimants: pods, placeholders aside, with devices of a DRA driver, which may be GPUs.
        claims: the placeholders that have their GPU by a claim.
        unresolved: vGPUs whose placeholder may have a GPU that is not known yet.
        static: its static vGPUs.
        held: those of them with holders.
    """

    node: str
    requested: bool = False
    cordoned: bool = False
    owned: bool = False
    supported: bool = True
    offered: int = 0
    by_claims: int = 0
    parts: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    legacy: tuple[str, ...] = ()
    migrating: bool = False
    used: tuple[str, ...] = ()
    claimants: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    unresolved: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    held: tuple[str, ...] = ()


class Ownership(Struct, frozen=True, kw_only=True):
    """Who owns the GPUs of a node.

    Attributes:
        mode: ``shared`` or ``owned``.
        accepts: whether the static vGPUs of the node accept holders.
        converts: whether vGPUs with placeholders become static all the same.
        migrates: whether GPUs get static vGPUs all the same, so that pods can be recorded.
        returns: whether static vGPUs in use get placeholders.
        reason: the reason of the condition.
        message: its message, which names pods and vGPUs: only who reads GPUNodes may read it.
        summary: the same with numbers instead of these names.
    """

    mode: str
    accepts: bool = False
    converts: bool = False
    migrates: bool = False
    returns: bool = False
    reason: Reason
    message: str
    summary: str = ""


def decide(facts: Facts) -> Ownership:
    """Decide who owns the GPUs of a node."""
    return replace(_decide(facts), summary=_decide(_without_names(facts)).message)


def _without_names(facts: Facts) -> Facts:
    """The facts with a number of pods or vGPUs in place of their names."""
    pods = {field: _count(getattr(facts, field), "pod") for field in _PODS}
    vgpus = {field: _count(getattr(facts, field), "vGPU") for field in _VGPUS}
    return replace(facts, **pods, **vgpus)


def _count(names: Sequence[str], what: str) -> tuple[str, ...]:
    plural = "s" if len(names) > 1 else ""
    return (f"{len(names)} {what}{plural}",) if names else ()


def _decide(facts: Facts) -> Ownership:
    owned = facts.owned or bool(facts.static)
    if not facts.requested:
        return _given_up(facts)
    if _converts(facts, owned=owned):
        return Ownership(
            mode=MODE_OWNED,
            converts=True,
            reason=Reason.TAKING_OVER,
            message=_converting(facts),
        )
    if _migrates(facts):
        hindrance = _hindrance(facts)
        return Ownership(
            mode=MODE_OWNED,
            migrates=facts.cordoned and hindrance is None,
            reason=Reason.MIGRATING,
            message=hindrance[1] if hindrance else _migrating(facts),
        )
    conflict = _conflict(facts) if owned else _claimed(facts) or _conflict(facts)
    if conflict is None and not owned:
        conflict = _unresolved(facts)
    if conflict is not None:
        reason, message = conflict
        mode = MODE_OWNED if owned else MODE_SHARED
        return _refused(mode, (reason, message + _given_twice(facts, reason)))
    message = f"KubeShare owns the GPUs of node {facts.node}: each has a static vGPU"
    return Ownership(mode=MODE_OWNED, accepts=True, reason=Reason.OWNED, message=message)


def _given_up(facts: Facts) -> Ownership:
    """The decision about a node that is not asked for."""
    if not facts.static:
        return _refused(MODE_SHARED, (Reason.NOT_REQUESTED, _shared(facts)))
    if facts.cordoned and (facts.offered or facts.by_claims) and facts.supported:
        reason, message = Reason.RELEASING, _returning(facts)
        return Ownership(mode=MODE_OWNED, returns=True, reason=reason, message=message)
    if facts.offered or facts.by_claims:
        return _refused(MODE_OWNED, (Reason.GPUS_OFFERED, _returning(facts)))
    why = _conflict(_without_legacy(facts)) or _releasing(facts)
    # So the former plugin, which may still run, is not taken for KubeShare's.
    return _refused(MODE_OWNED, (Reason.MIGRATING, why[1]) if facts.migrating else why)


def _converts(facts: Facts, *, owned: bool) -> bool:
    """Whether the vGPUs become static while a DRA driver runs, which releases their claims."""
    if not (facts.supported and facts.cordoned and facts.by_claims):
        return False
    if facts.offered or facts.parts:
        return False
    if facts.users or facts.used or facts.claimants:
        return False
    return owned or bool(facts.claims and not facts.unresolved)


def _migrates(facts: Facts) -> bool:
    """Whether pods of a manifest family are recorded before the node is taken over.

    Once it has begun, it goes on until they are and their plugin is gone.
    """
    if not (facts.legacy or families.RESOURCES.intersection(facts.parts)):
        return False
    return facts.migrating or (facts.cordoned and _hindrance(facts) is None)


def _hindrance(facts: Facts) -> tuple[Reason, str] | None:
    """Why a node could not be taken over if the pods of a manifest family had ended."""
    others = _without_legacy(facts)
    return _claimed(others) or _conflict(others) or _unresolved(others)


def _without_legacy(facts: Facts) -> Facts:
    parts = tuple(part for part in facts.parts if part not in families.RESOURCES)
    return replace(facts, parts=parts, legacy=())


def taking_over(facts: Facts, seconds: float) -> Ownership:
    """The decision before a node has offered no GPUs for so many seconds."""
    message = (
        f"node {facts.node} offers no GPUs now: KubeShare takes them when that has lasted "
        f"{seconds:.0f} s, since a device plugin may only be restarting"
    )
    mode = MODE_OWNED if facts.owned or facts.static else MODE_SHARED
    reason = Reason.MIGRATING if facts.migrating else Reason.TAKING_OVER
    return replace(_refused(mode, (reason, message)), summary=message)


def _refused(mode: str, why: tuple[Reason, str]) -> Ownership:
    reason, message = why
    return Ownership(mode=mode, reason=reason, message=message)


def _conflict(facts: Facts) -> tuple[Reason, str] | None:
    """Why another pod may use a GPU of the node, and what to do about it."""
    if not facts.supported:
        return Reason.AGENT_OUTDATED, (
            f"the node agent of {facts.node} is of an earlier release, which shares GPUs only "
            "with a placeholder: update the DaemonSet kubeshare-node-agent"
        )
    for count, what, label in (
        (facts.offered, f"{WHOLE_GPU_RESOURCE} by its device plugin", LABEL_DEVICE_PLUGIN),
        (facts.by_claims, "its GPUs by a DRA driver", LABEL_DRA_PLUGIN),
    ):
        if count:
            return Reason.GPUS_OFFERED, (
                f"node {facts.node} offers {what} ({count}), so other pods may get them: run "
                f"`kubectl cordon {facts.node}` and `kubectl label node {facts.node} "
                f"{label}=false --overwrite`, and uncordon the node when it is owned"
            )
    if facts.parts:
        return Reason.GPUS_OFFERED, (
            f"node {facts.node} offers parts of its GPUs as {_names(facts.parts)} by another "
            f"device plugin, so other pods may get them: run `kubectl cordon {facts.node}`, stop "
            "that plugin on the node, and uncordon the node when it is owned"
        )
    if facts.legacy:
        return Reason.GPUS_IN_USE, (
            f"pods have parts of the GPUs of node {facts.node} from another device plugin: "
            f"{_names(facts.legacy)}. Run `kubectl cordon {facts.node}`, and record what they use: "
            "`kubeshare migrate --help`; or delete them"
        )
    if facts.users or facts.used:
        return Reason.GPUS_IN_USE, (
            f"pods use GPUs of node {facts.node} without KubeShare: "
            f"{_names(facts.users or facts.used)}. "
            "Delete them, or wait until they have ended"
        )
    return None


def _given_twice(facts: Facts, reason: Reason) -> str:
    """What a conflict means on a node whose vGPUs are in use, as a sentence; ``""`` elsewhere."""
    if not facts.held or reason not in (Reason.GPUS_OFFERED, Reason.GPUS_IN_USE):
        return ""
    users = (*facts.users, *facts.legacy)
    others = f"; GPUs of this node have: {_names(users)}" if users and facts.offered else ""
    return (
        f". Until then GPUs can be given out twice: these vGPUs accept no more pods, and their "
        f"pods stay unless `gpuFailure: evict` says otherwise: {_names(facts.held)}{others}"
    )


def _unresolved(facts: Facts) -> tuple[Reason, str] | None:
    if not facts.unresolved:
        return None
    return Reason.TAKING_OVER, (
        f"the node agent of {facts.node} has not reported yet which GPU these vGPUs have: "
        f"{_names(facts.unresolved)}"
    )


def _claimed(facts: Facts) -> tuple[Reason, str] | None:
    """Why a pod may have a GPU by a claim, which only its driver can release."""
    if facts.claimants:
        return Reason.GPUS_IN_USE, (
            f"pods of node {facts.node} use devices by ResourceClaims, which may be its GPUs: "
            f"{_names(facts.claimants)}. Delete them, or wait until they have ended, before you "
            "stop a DRA driver"
        )
    if not facts.claims:
        return None
    if facts.by_claims:
        beside = _conflict(replace(facts, by_claims=0)) or _unresolved(facts)
        if facts.cordoned and beside is not None:
            return beside  # the last step that is missing
        return Reason.GPUS_OFFERED, (
            f"node {facts.node} offers its GPUs by a DRA driver ({facts.by_claims}): run `kubectl "
            f"cordon {facts.node}`; then the pods that share its GPUs keep them without claims. "
            "Let the driver run until the claims are released"
        )
    return Reason.GPUS_IN_USE, (
        f"placeholders of node {facts.node} have GPUs by claims, which only their DRA driver "
        f"can release: {_names(facts.claims)}. Start it again, and cordon the node"
    )


def _converting(facts: Facts) -> str:
    if facts.claims:
        return (
            f"node {facts.node} is taken over under the pods that share its GPUs: the claims of "
            f"these placeholders are released: {_names(facts.claims)}. Let the DRA driver run, and "
            "keep the node cordoned"
        )
    return (
        f"no claim has a GPU of node {facts.node} any more: run `kubectl label node {facts.node} "
        f"{LABEL_DRA_PLUGIN}=false --overwrite` to stop its DRA driver, and uncordon the node when "
        "it is owned"
    )


def _migrating(facts: Facts) -> str:
    if facts.legacy:
        next_step = (
            f"record what these pods use (`kubeshare migrate --help`): {_names(facts.legacy)}, or "
            "delete them"
        )
    else:
        next_step = f"stop the device plugin that offers {_names(facts.parts)} on the node"
    keep = "Keep" if facts.cordoned else f"Run `kubectl cordon {facts.node}`, and keep"
    return (
        f"node {facts.node} is taken over under pods of another device plugin: {next_step}. {keep} "
        "the node cordoned until it is owned"
    )


def _releasing(facts: Facts) -> tuple[Reason, str]:
    return Reason.RELEASING, (
        f"node {facts.node} is no longer asked for. Its GPUs are given back when the pods on these "
        f"vGPUs have ended: {_names(facts.held or facts.static)}. To give them back now, run "
        f"`kubectl cordon {facts.node}` and start its device plugin or DRA driver: the GPUs in use "
        "then get placeholders. Start neither while the node is not cordoned"
    )


def _returning(facts: Facts) -> str:
    waiting = _names(facts.held or facts.static)
    if not facts.cordoned:
        return (
            f"node {facts.node} is no longer asked for, and offers GPUs that these vGPUs have: "
            f"{waiting}. Run `kubectl cordon {facts.node}`, so that they get placeholders, and "
            "uncordon it when its mode is shared"
        )
    return (
        f"node {facts.node} is given back: these vGPUs get placeholders: {waiting}. Keep the node "
        "cordoned until its mode is shared"
    )


def _shared(facts: Facts) -> str:
    return (
        f"the GPUs of node {facts.node} are shared with Kubernetes: neither its label {LABEL_GPUS} "
        "nor the configuration asks for more"
    )


def _names(names: Iterable[str]) -> str:
    ordered = sorted(names)
    shown = ", ".join(ordered[:MAX_NAMES])
    more = len(ordered) - MAX_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
