"""Keeps the published annotations of a pod of gpushare or Gaia true.

The scheduler writes them with its decision (:mod:`kubeshare.dialects.write_back`). They say that
the pod has its GPUs from its first container on, and are removed when its last one has ended: in
the published versions nothing removes them. Nothing of KubeShare reads them.
"""

from collections.abc import Mapping

from kubeshare.api.types.constants import MANAGER_DEVICES
from kubeshare.api.types.core_v1 import PODS, Pod
from kubeshare.dialects.families import FAMILIES
from kubeshare.kube.client.client import Client


async def update_annotations(client: Client, pod: Pod) -> None:
    """Write what has changed: once when a pod starts, and once when it ends.

    Args:
        client: the API server.
        pod: a plain pod whose shares were decided.

    Raises:
        ApiError: the pod was changed meanwhile, or cannot be patched.
    """
    written = pod.metadata.annotations
    if pod.terminal:
        ours = [key for key in written if any(each.is_annotation(key) for each in FAMILIES)]
        await _patch(client, pod, dict.fromkeys(ours))
    elif pod.running_since:
        false = [each.assigned for each in FAMILIES if written.get(each.assigned) == "false"]
        await _patch(client, pod, dict.fromkeys(false, "true"))


async def _patch(client: Client, pod: Pod, annotations: Mapping[str, str | None]) -> None:
    if not annotations:
        return
    name, namespace = pod.metadata.name, pod.metadata.namespace
    metadata = {"annotations": annotations, "resourceVersion": pod.metadata.resource_version}
    patch = {"metadata": metadata}
    await client.merge_patch(PODS, name, patch, namespace, field_manager=MANAGER_DEVICES)
