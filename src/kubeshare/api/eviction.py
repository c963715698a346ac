"""Ask a pod to go through the API's eviction, which respects disruption budgets."""

from kubeshare.api.types.core_v1 import PODS, Pod
from kubeshare.kube.client.client import Client


async def evict(client: Client, pod: Pod, *, dry_run: bool = False) -> None:
    """Evict a pod: it has its grace period, as with any deletion.

    Args:
        client: where it is.
        pod: this very pod, and no namesake.
        dry_run: only ask whether that would be allowed.

    Raises:
        TooManyRequestsError: a disruption budget refuses it now.
        NotFoundError: it is gone.
        ConflictError: the name is another pod's now.
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
