"""Voids the Bindings of a pod before its shares are released.

An extender records a share, then posts the Binding. Until its answer arrives, nobody else can tell
whether the pod will be bound with that share. So the Binding is for one version of the pod, which
is the ``attempt`` of the holder: the API server refuses it for any later version. A share of a pod
that is not bound is released only when the pod has another version than its holder.
"""

from collections.abc import Collection

from kubeshare.api.types.constants import ANNOTATION_VOIDED_BINDING
from kubeshare.api.types.core_v1 import PODS
from kubeshare.kube.client.client import Client
from kubeshare.kube.meta import ObjectMeta


async def void_bindings(
    client: Client,
    metadata: ObjectMeta,
    attempts: Collection[int],
    *,
    manager: str,
    subresource: str = "",
) -> int:
    """Make the API server refuse Bindings for some versions of a pod that is not bound.

    Args:
        client: the API server.
        metadata: the pod's, as a live read returned it after the holders had been seen.
        attempts: the versions; a version that the pod no longer has needs no write.
        manager: the field manager of the write.
        subresource: through which to write, ``""`` or ``status``.

    Returns:
        the version of the pod, which is none of ``attempts``.

    Raises:
        ConflictError: the pod has changed since it was read; it may be bound.
        ApiError: any other refusal.
    """
    version = metadata.resource_version
    if int(version) not in attempts:
        return int(version)
    patch = {
        "metadata": {
            "uid": metadata.uid,
            "resourceVersion": version,
            # The version is a new value each time: a patch without a change is no write.
            "annotations": {ANNOTATION_VOIDED_BINDING: version},
        }
    }
    written = await client.merge_patch(
        PODS,
        metadata.name,
        patch,
        metadata.namespace,
        subresource=subresource,
        field_manager=manager,
    )
    return int(written.metadata.resource_version)
