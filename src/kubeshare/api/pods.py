"""What controllers ask of pods, whoever made them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kubeshare.api.cluster import Pod
from kubeshare.api.reasons import Reason


def view(raw: Mapping[str, Any]) -> Pod:
    """The narrow struct of a raw pod."""
    return msgspec.convert(raw, Pod)


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
