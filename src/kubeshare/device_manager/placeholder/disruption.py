"""Whether a placeholder may be evicted: not while somebody shares its GPU.

A label puts it under a PodDisruptionBudget, and an annotation tells cluster autoscalers the
same. One that was made for somebody says so from the beginning, so this costs no request as
long as a vGPU lives with its first holders only.
"""

from collections.abc import Mapping
from typing import Final

from kubeshare.api.holders import Operation
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.types.constants import LABEL_IN_USE, MANAGER_DEVICES, NAMESPACE
from kubeshare.api.types.core_v1 import PODS, Pod
from kubeshare.api.types.v1 import VGPU
from kubeshare.device_manager.placeholder.pods import Placeholders, guarded
from kubeshare.device_manager.pool.idle_times import IdleTimes
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.controller.controller import RequeueAfter

IDLE_SECONDS: Final = 10.0
"""Seconds after which an idle vGPU is no longer guarded: most are taken again, or gone, by then."""


class DisruptionBudgets:
    """Keeps what placeholders say in step with whether somebody shares their GPUs.

    Args:
        client: where they are changed.
        cluster_state: knows the pods.
        placeholders: finds them.
        idle_times: since when nobody does.
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
        self._times = idle_times

    async def reconcile(self, vgpu: VGPU) -> RequeueAfter | None:
        """Have a vGPU's placeholder say whether somebody shares it.

        Returns:
            when to look again.
        """
        pod = self._placeholders.of(vgpu.metadata.name)
        in_use = bool(vgpu.status.holders)
        if pod is None or pod.terminal or pod.metadata.deletion_timestamp or _says(pod) == in_use:
            return None
        left = IDLE_SECONDS - self._times.seconds(vgpu)
        if not in_use and left > 0:
            return RequeueAfter(left)
        said = guarded(in_use)
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
            *_additions("labels", pod.metadata.labels, said),
            *_additions("annotations", pod.metadata.annotations, said),
        ]
        try:
            changed = await self._client.json_patch(
                PODS, pod.metadata.name, operations, NAMESPACE, field_manager=MANAGER_DEVICES
            )
        except NotFoundError:
            return None
        self._cluster_state.assume_pod(changed)
        return None


def _says(pod: Pod) -> bool:
    return pod.metadata.labels.get(LABEL_IN_USE) == "true"


def _additions(
    field: str, present: Mapping[str, str], said: Mapping[str, Mapping[str, str]]
) -> list[Operation]:
    """A member can be added only to a map that is there."""
    if not present:
        return [{"op": "add", "path": f"/metadata/{field}", "value": dict(said[field])}]
    return [
        {"op": "add", "path": f"/metadata/{field}/{key.replace('/', '~1')}", "value": value}
        for key, value in said[field].items()
    ]
