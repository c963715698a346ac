"""Why a vGPU that somebody has a part of is not there yet, or is of no use."""

from typing import Final

from msgspec import Struct

from kubeshare.api.state.ledger_builder import DELETING
from kubeshare.api.types.constants import CONDITION_DEGRADED, CONDITION_SHAREABLE
from kubeshare.api.types.core_v1 import Pod
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU
from kubeshare.kube.conditions import find_condition

_HAS_GPU: Final = ("Active", "Idle")


class Blocker(Struct, frozen=True):
    """What keeps an asker from its GPU.

    Attributes:
        reason: in a word.
        message: a sentence for people.
        transient: it is normally over in a moment, and worth telling only when it is not.
    """

    reason: Reason
    message: str
    transient: bool = False


def blocker(vgpu: VGPU, placeholder: Pod | None) -> Blocker | None:
    """What a vGPU waits for; None when it is there.

    Args:
        vgpu: whose GPU.
        placeholder: the pod that is to keep the GPU for it, if there is one.
    """
    gpuid, node = vgpu.metadata.name, vgpu.spec.node_name
    if vgpu.status.phase in _HAS_GPU:
        return None
    if vgpu.status.phase == DELETING:
        return Blocker(Reason.RELEASING, f"vGPU {gpuid} is being given back", transient=True)
    refused = find_condition(vgpu.status.conditions, CONDITION_SHAREABLE)
    if refused is not None and refused.status == "False":
        return Blocker(Reason.NOT_SHAREABLE, f"vGPU {gpuid} on node {node}: {refused.message}")
    return _of_placeholder(f"vGPU {gpuid} on node {node} is being made", node, placeholder)


def failure(vgpu: VGPU) -> Blocker | None:
    """What is wrong with the GPU of a vGPU that has one; None where nothing is."""
    told = find_condition(vgpu.status.conditions, CONDITION_DEGRADED)
    if told is None or told.status != "True":
        return None
    return Blocker(Reason(told.reason), told.message)


def _of_placeholder(words: str, node: str, placeholder: Pod | None) -> Blocker:
    """How far the pod is that is to keep the GPU."""
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
