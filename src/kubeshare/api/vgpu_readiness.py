"""Finds out why a vGPU is not ready, or has failed."""

from typing import Final

from msgspec import Struct

from kubeshare.api.state.ledger_builder import DELETING
from kubeshare.api.types.constants import CONDITION_DEGRADED, CONDITION_SHAREABLE
from kubeshare.api.types.core_v1 import Pod
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU
from kubeshare.kube.conditions import find_condition

_READY_PHASES: Final = ("Active", "Idle")


class Blocker(Struct, frozen=True):
    """Why a holder cannot use its vGPU.

    Attributes:
        reason: the reason for a condition.
        message: a sentence for people.
        transient: it normally ends within seconds, so it is reported only if it does not.
    """

    reason: Reason
    message: str
    transient: bool = False


def blocker(vgpu: VGPU, placeholder: Pod | None) -> Blocker | None:
    """What a vGPU waits for; None if it is ready.

    Args:
        vgpu: the vGPU.
        placeholder: its placeholder pod, if there is one.
    """
    gpuid, node = vgpu.gpuid, vgpu.spec.node_name
    if vgpu.status.phase in _READY_PHASES:
        return None
    if vgpu.status.phase == DELETING:
        return Blocker(Reason.RELEASING, f"vGPU {gpuid} is being given back", transient=True)
    shareable = find_condition(vgpu.status.conditions, CONDITION_SHAREABLE)
    if shareable is not None and shareable.status != "True":
        words = f"vGPU {gpuid} on node {node}: {shareable.message}"
        other_model = shareable.reason == Reason.OTHER_MODEL
        return Blocker(Reason.OTHER_MODEL if other_model else Reason.NOT_SHAREABLE, words)
    return _of_placeholder(f"vGPU {gpuid} on node {node} is being made", node, placeholder)


def failure(vgpu: VGPU) -> Blocker | None:
    """Why a vGPU is degraded; None if it is not."""
    degraded = find_condition(vgpu.status.conditions, CONDITION_DEGRADED)
    if degraded is None or degraded.status != "True":
        return None
    return Blocker(Reason(degraded.reason), degraded.message)


def _of_placeholder(words: str, node: str, placeholder: Pod | None) -> Blocker:
    """What the placeholder waits for."""
    if placeholder is None:
        return Blocker(Reason.CREATING, words, transient=True)
    if placeholder.terminal:
        return Blocker(Reason.PLACEHOLDER_FAILED, f"{words}: {placeholder.status.message}")
    bound = placeholder.condition("PodScheduled")
    if bound is not None and bound.status == "False":
        return Blocker(Reason.GPU_NOT_FREE, f"{words}: kube-scheduler says: {bound.message}")
    name = placeholder.metadata.name
    words = f"{words}: node agent of {node} has not named the GPU of pod {name}"
    return Blocker(Reason.CREATING, words, transient=True)
