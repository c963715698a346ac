"""Tells in which state a pod is, for several controllers."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kubeshare.api.types.constants import ANNOTATION_NODE, LABEL_ROLE, ROLE_POD
from kubeshare.api.types.core_v1 import Pod
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU
from kubeshare.dialects import vcuda
from kubeshare.dialects.gpushare import GPU_MEMORY


def view(raw: Mapping[str, Any]) -> Pod:
    """The narrow struct of a raw pod."""
    return msgspec.convert(raw, Pod)


def is_plain(pod: Pod) -> bool:
    """Whether it asks for shares itself, not through a SharePod."""
    return pod.metadata.labels.get(LABEL_ROLE) == ROLE_POD


def has_shares(pod: Pod) -> bool:
    """Whether a plain pod is annotated with GPUIDs; only holders prove that it has shares."""
    return is_plain(pod) and bool(pod.gpuids)


def names(pod: Pod, vgpu: VGPU) -> bool:
    """Whether a plain pod is annotated with a vGPU."""
    node = pod.metadata.annotations.get(ANNOTATION_NODE, vgpu.spec.node_name)
    return node == vgpu.spec.node_name and vgpu.gpuid in pod.gpuids


def may_be_binding(pod: Pod) -> bool:
    """Whether a scheduler extender may be binding it: it has a holder before it names a vGPU."""
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    return (
        not pod.gated
        and not pod.spec.node_name
        and any(GPU_MEMORY in container.resources.limits for container in containers)
    )


def may_have_passed_filter(pod: Pod) -> bool:
    """Whether an extender may have reserved its shares, and kube-scheduler be about to bind it."""
    return not pod.gated and not pod.spec.node_name and _asks_for_cores(pod)


def is_bound_with_cores(pod: Pod) -> bool:
    """Whether it is a bound pod of Gaia; nothing else names its GPUs if an extender placed it."""
    return is_plain(pod) and bool(pod.spec.node_name) and not pod.terminal and _asks_for_cores(pod)


def _asks_for_cores(pod: Pod) -> bool:
    return any(vcuda.CORE in container.resources.limits for container in pod.spec.containers)


def never_started(pod: Pod) -> bool:
    """Whether its node has not prepared the sandbox and no container has run; not if deleted."""
    prepared = pod.condition("PodReadyToStartContainers")
    return (
        pod.status.phase == "Pending"
        and pod.metadata.deletion_timestamp is None
        and (prepared is None or prepared.status != "True")
        and not any(
            each.state.running or each.state.terminated for each in pod.status.container_statuses
        )
    )


def unschedulable(pod: Pod) -> bool:
    """Whether kube-scheduler found no node for it, and does not preempt others for it."""
    scheduled = pod.condition("PodScheduled")
    return (
        not pod.spec.node_name
        and not pod.terminal
        and pod.metadata.deletion_timestamp is None
        and not pod.status.nominated_node_name
        and scheduled is not None
        and scheduled.status == "False"
        and scheduled.reason == Reason.UNSCHEDULABLE
    )
