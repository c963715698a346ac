"""What controllers ask of pods, whoever made them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kubeshare.api.types.constants import LABEL_ROLE, ROLE_POD
from kubeshare.api.types.core_v1 import Pod
from kubeshare.api.types.reasons import Reason


def view(raw: Mapping[str, Any]) -> Pod:
    """The narrow struct of a raw pod."""
    return msgspec.convert(raw, Pod)


def has_shares(pod: Pod) -> bool:
    """It is a plain pod that says that Sched has given it parts of GPUs; holders say whether."""
    return pod.metadata.labels.get(LABEL_ROLE) == ROLE_POD and bool(pod.gpuids)


def never_started(pod: Pod) -> bool:
    """Its node has not even given it what its containers need, and nobody has deleted it."""
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
    """kube-scheduler has found no room for it, and is not making any by preemption."""
    told = pod.condition("PodScheduled")
    return (
        not pod.spec.node_name
        and not pod.terminal
        and pod.metadata.deletion_timestamp is None
        and not pod.status.nominated_node_name
        and told is not None
        and told.status == "False"
        and told.reason == Reason.UNSCHEDULABLE
    )
