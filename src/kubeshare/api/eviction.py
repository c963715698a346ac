"""Evicts pods through the eviction API, which respects disruption budgets."""

from kubeshare.api.types.core_v1 import PODS, Pod
from kubeshare.kube.client.client import Client


async def evict(client: Client, pod: Pod, *, dry_run: bool = False) -> None:
    """Evict a pod; it gets its grace period, as with any deletion.

    Args:
        client: the API server.
        pod: the pod; a namesake with another uid is not evicted.
        dry_run: only check whether the eviction would be allowed.

    Raises:
        TooManyRequestsError: a disruption budget refuses it now.
        NotFoundError: it is gone.
        ConflictError: the name belongs to another pod now.
        ApiError: any other refusal.
    """
    metadata = pod.metadata
    options: dict[str, object] = {"preconditions": {"uid": metadata.uid}}
    if dry_run:
        options["dryRun"] = ["All"]
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": metadata.name, "namespace": metadata.namespace},
        "deleteOptions": options,
    }
    await client.post(PODS, metadata.name, "eviction", body, metadata.namespace)
