"""Keeps the annotations of gpushare on a pod true.

The scheduler writes them with its decision (:mod:`kubeshare.dialects.write_back`). They say that
the pod has its GPU from its first container on, and are removed when its last one has ended: in
Alibaba's version nothing removes them. Nothing of KubeShare reads them.
"""

from collections.abc import Mapping

from kubeshare.api.types.core_v1 import PODS, Pod
from kubeshare.dialects.write_back import GPUSHARE_ANNOTATIONS, GPUSHARE_ASSIGNED
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
        await _patch(client, pod, dict.fromkeys(written.keys() & GPUSHARE_ANNOTATIONS))
    elif pod.running_since and written.get(GPUSHARE_ASSIGNED) == "false":
        await _patch(client, pod, {GPUSHARE_ASSIGNED: "true"})


async def _patch(client: Client, pod: Pod, annotations: Mapping[str, str | None]) -> None:
    if not annotations:
        return
    name, namespace = pod.metadata.name, pod.metadata.namespace
    metadata = {"annotations": annotations, "resourceVersion": pod.metadata.resource_version}
    await client.merge_patch(PODS, name, {"metadata": metadata}, namespace)
