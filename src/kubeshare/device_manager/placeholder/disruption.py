"""Protects placeholders from eviction while their vGPU has holders.

A label puts the placeholder under a PodDisruptionBudget, and an annotation says the same to
cluster autoscalers. A placeholder that is created for a demand has both from the start, so this
costs no request while a vGPU has its first holders.
"""

from collections.abc import Mapping
from typing import Final

from kubeshare.api.holders import Operation
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.constants import LABEL_IN_USE, MANAGER_DEVICES, NAMESPACE
from kubeshare.api.types.core_v1 import PODS, Pod
from kubeshare.api.types.v1 import VGPU
from kubeshare.device_manager.placeholder.pods import Placeholders, in_use_metadata
from kubeshare.device_manager.pool.idle_times import IdleTimes
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.controller.controller import RequeueAfter

IDLE_SECONDS: Final = 10.0
"""Seconds until an idle vGPU loses its protection: most are used again, or deleted, by then."""


class DisruptionBudgets:
    """Labels placeholders by whether their vGPU has holders.

    Args:
        client: writes the labels.
        cluster_state: gets the labelled pods.
        placeholders: finds the placeholder pods.
        idle_times: how long a vGPU has been without holders.
    """

    def __init__(
        self,
        client: Client,
        cluster_state: ClusterState,
        placeholders: Placeholders,
        idle_times: IdleTimes,
    ) -> None:
        self._client = client
        self._cluster_state = cluster_state
        self._placeholders = placeholders
        self._idle_times = idle_times

    async def reconcile(self, vgpu: VGPU) -> RequeueAfter | None:
        """Label the placeholder of a vGPU; returns when to check again."""
        pod = self._placeholders.of(vgpu.metadata.name)
        in_use = bool(vgpu.status.holders)
        if pod is None or pod.terminal or pod.metadata.deletion_timestamp:
            return None
        if _is_labelled(pod) == in_use:
            return None
        left = IDLE_SECONDS - self._idle_times.seconds(vgpu)
        if not in_use and left > 0:
            return RequeueAfter(left)
        wanted = in_use_metadata(in_use=in_use)
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
            *_additions("labels", pod.metadata.labels, wanted),
            *_additions("annotations", pod.metadata.annotations, wanted),
        ]
        try:
            changed = await self._client.json_patch(
                PODS, pod.metadata.name, operations, NAMESPACE, field_manager=MANAGER_DEVICES
            )
        except NotFoundError:
            return None
        self._cluster_state.assume_pod(changed)
        return None


def _is_labelled(pod: Pod) -> bool:
    return pod.metadata.labels.get(LABEL_IN_USE) == "true"


def _additions(
    field: str, present: Mapping[str, str], wanted: Mapping[str, Mapping[str, str]]
) -> list[Operation]:
    """JSON patch operations; a member can be added only to a map that exists."""
    if not present:
        return [{"op": "add", "path": f"/metadata/{field}", "value": dict(wanted[field])}]
    return [
        {"op": "add", "path": f"/metadata/{field}/{key.replace('/', '~1')}", "value": value}
        for key, value in wanted[field].items()
    ]
